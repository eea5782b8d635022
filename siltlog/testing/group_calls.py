"""Consumer groups and dead letters over a log in memory: the server's own, without a Redis."""

from typing import Any, cast

from siltlog.consumers.dead_letters.discard import Discard, DiscardRequest
from siltlog.consumers.dead_letters.letters import DeadLetters
from siltlog.consumers.dead_letters.listing import DeadLetterList
from siltlog.consumers.dead_letters.marks import MarkIndex
from siltlog.consumers.dead_letters.replay import Replay, ReplayRequest
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import (
    CommitRequest,
    CountRequest,
    DeadLetterRequest,
    GroupState,
    MemberRequest,
    Membership,
)
from siltlog.consumers.groups.reset import OffsetReset, ResetRequest
from siltlog.consumers.keeping.upkeep import lag_of
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.view import Key
from siltlog.infra.client.core import Response
from siltlog.infra.clock import Clock, format_ms, format_us
from siltlog.infra.listing.ranking import GROUP_SORTS, NAME
from siltlog.testing.call import LIMITS, LIST_LIMIT, NOTHING, Call, Steps, page, ranked_page, reply, settled
from siltlog.testing.log import MemoryLog
from siltlog.testing.redis import MemoryRedis


class GroupCalls:
    """Used by one thread at a time."""

    def __init__(self, log: MemoryLog, fetcher: Fetcher, redis: MemoryRedis, clock: Clock) -> None:
        self._log = log
        self._redis = redis
        self._clock = clock
        self._groups = Groups(redis, log, clock, None)  # type: ignore[arg-type]
        marks = MarkIndex(fetcher)
        self._dead_letters = DeadLetters(self._groups.offsets, fetcher, log, clock, marks)
        self._replay = Replay(log, fetcher, log, clock, marks)
        self._letters = DeadLetterList(log, fetcher, marks)
        self._discard = Discard(log, log, marks, None)
        self._reset = OffsetReset(self._groups, log, fetcher.lookup)

    def tick(self) -> None:
        """Sessions end, and assignments follow topics that came, went or grew."""
        settled(self._groups.tick())

    def state(self, group: str) -> GroupState:
        """Raises Refused `unknown_group`."""
        return settled(self._groups.describe(group))

    def heartbeat(self, call: Call) -> Steps:
        group, member = call.names
        asked = call.document(MemberRequest)
        began = self._clock.monotonic()
        told = settled(self._groups.members.beat(group, member, asked))
        while told.assignment is None:
            left = began + told.wait_s(min(asked.wait_ms, LIMITS["wait_ms"])) - self._clock.monotonic()
            if left <= 0:
                break
            yield left
            self.tick()
            told = settled(self._groups.members.beat(group, member, MemberRequest(generation=asked.generation)))
        return reply(
            {
                "generation": told.generation,
                "assignment": _assigned(told),
                "heartbeat_interval_ms": told.heartbeat_interval_ms,
            }
        )

    def leave(self, call: Call) -> Response:
        group, member = call.names
        settled(self._groups.members.leave(group, member))
        return NOTHING

    def commit(self, call: Call) -> Response:
        settled(self._groups.offsets.commit(call.names[0], call.document(CommitRequest), call.query.get("topic_id")))
        return NOTHING

    def attempt(self, call: Call) -> Response:
        asked = call.document(CountRequest)
        found = settled(self._dead_letters.attempt(call.names[0], asked, asked.attempts_max))
        return reply({"attempts": found.attempts} | ({} if asked.attempts_max is None else {"spent": found.spent}))

    def dead_letter(self, call: Call) -> Response:
        buried = settled(self._dead_letters.bury(call.names[0], call.document(DeadLetterRequest)))
        columns = ("topic", "partition", "offset", "attempts", "duplicate")
        return reply({name: getattr(buried, name) for name in columns})

    def replay_dead_letters(self, call: Call) -> Response:
        asked = call.document(ReplayRequest)
        done = settled(self._replay.replay(call.names[0], asked))
        counts = {"replayed": done.replayed, "duplicates": done.duplicates}
        return reply({"topic": call.names[0], "replay_id": asked.replay_id} | counts)

    def list_dead_letters(self, call: Call) -> Response:
        limit = int(call.query.get("limit", LIST_LIMIT))
        values = cast(Values, call.query.get("values", "text"))
        found = self._letters.page(call.names[0], call.query.get("group"), call.query.get("after"), limit, values)
        page = settled(found)
        counts = {"count": page.letters_all, "next": page.following}
        return reply({"topic": call.names[0], "dead_letters": page.letters, **counts})

    def discard_dead_letters(self, call: Call) -> Response:
        done = settled(self._discard.discard(call.names[0], call.document(DiscardRequest)))
        starts = [{"partition": at, "log_start_offset": start} for at, start in done.log_starts.items()]
        counts = {"discarded": done.discarded, "duplicates": done.duplicates}
        return reply({"topic": call.names[0], **counts, "partitions": starts})

    def list_groups(self, call: Call) -> Response:
        there = sorted(name for name, group in self._redis.groups.items() if group.exists)
        ranked = not call.query.keys().isdisjoint(("topic", "sort", "order"))
        if ranked:
            return self._ranked_groups(call, there)
        listed, after = page(call, there)
        states = [(name, self.state(name)) for name in listed]
        entries = [
            {"group": name, "state": state.state, "members": len(state.members), "type": state.type}
            for name, state in states
        ]
        return reply({"groups": entries, "next": after})

    def _ranked_groups(self, call: Call, there: list[str]) -> Response:
        topic, sort = call.query.get("topic", ""), call.query.get("sort", NAME)
        entries: dict[str, dict[str, Any]] = {}
        for name in there:
            state = self.state(name)
            rows = [row for row in self._progress(state) if topic in ("", row["topic"])]
            if rows or not topic:
                entries[name] = {
                    "group": name,
                    "state": state.state,
                    "members": len(state.members),
                    "type": state.type,
                    "topics": sorted({row["topic"] for row in rows}),
                    "lag": sum(row["lag"] for row in rows),
                }
        values = {name: 0.0 if sort == NAME else float(entry.get(sort, 0)) for name, entry in entries.items()}
        listed, after = ranked_page(call, values, GROUP_SORTS)
        return reply({"groups": [entries[name] for name in listed], "next": after})

    def describe_group(self, call: Call) -> Response:
        state = self.state(call.names[0])
        members = [
            {
                "member_id": member.member,
                "client_id": member.client_id or None,
                "instance_id": member.instance_id or None,
                "topics": member.topics,
                "topic_pattern": member.topic_pattern or None,
                "auto_offset_reset": member.auto_offset_reset,
                "joined_at": format_ms(member.joined_ms),
                "assignment": [_at(key) for key in member.partitions],
                "client_host": None,
            }
            for member in state.members
        ]
        return reply(
            {
                "group": call.names[0],
                "state": state.state,
                "generation": state.generation,
                "last_rebalance_at": format_ms(state.rebalanced_ms),
                "members": members,
                "moving": [_at(key) | {"to": member or None} for key, member in sorted(state.moving.items())],
                "partitions": self._progress(state),
                "type": state.type,
                # Nobody speaks Kafka's protocol to it.
                **dict.fromkeys(("phase", "protocol_type", "protocol")),
            }
        )

    def _progress(self, state: GroupState) -> list[dict[str, Any]]:
        """Every partition with an offset: where it is, who holds it, and how far behind that is."""
        holders = {key: member.member for member in state.members for key in member.partitions}
        rows = []
        for entry in state.offsets:
            topic = self._log.topic(entry.key.topic)
            log = topic.partition(entry.key.partition)
            lag = settled(lag_of(topic, log, entry.offset, self._clock.now_us()))
            bounds = log.bounds()
            rows.append(
                _at(entry.key)
                | {
                    "member_id": holders.get(entry.key),
                    "offset": entry.offset,
                    "log_start_offset": bounds.log_start_offset,
                    "high_watermark": bounds.high_watermark,
                    "lag": lag.records,
                    "lag_seconds": lag.seconds,
                }
            )
        return rows

    def group_offsets(self, call: Call) -> Response:
        offsets = [
            _at(it.key)
            | {"offset": it.offset, "metadata": it.metadata, "committed_at": format_us(it.committed_ms * 1000)}
            for it in self.state(call.names[0]).offsets
        ]
        return reply({"group": call.names[0], "offsets": offsets})

    def reset_group(self, call: Call) -> Response:
        moved = settled(self._reset.reset(call.names[0], call.document(ResetRequest)))
        return reply({"offsets": [move._asdict() for move in moved]})

    def delete_group(self, call: Call) -> Response:
        settled(self._groups.delete(call.names[0]))
        return NOTHING


def _at(key: Key) -> dict[str, Any]:
    return {"topic": key.topic, "partition": key.partition}


def _assigned(told: Membership) -> list[dict[str, Any]] | None:
    if told.assignment is None:
        return None
    return [
        _at(key)
        | {"topic_id": key.topic_id, "offset": offset}
        | ({"delivered": told.delivered[key]} if key in told.delivered else {})
        for key, offset in told.assignment
    ]
