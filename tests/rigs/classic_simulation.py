"""A seeded world of members of a classic group: what groups_simulation does, to clients of Kafka.

A client joins, has its part from the leader, reads, commits and beats. Its connection breaks while it waits, or its
server goes on waiting for nobody.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from classic_rig import assignment, joining
from groups_simulation import LATE_MS, REBALANCE_MS, SESSION_MS, STEP_MS, At, Client, Tenure, World, id_of

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest
from siltlog.consumers.kafka.classic import ClassicGroups, Joined, JoinedMember, Speaker, Synced
from siltlog.consumers.kafka.epoch import generation_of
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.consumer_protocol import assigned_partitions
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.telemetry import logger

DELAY_MS = 1_000
WAITS_MS = REBALANCE_MS + 5_000
"""How long a client waits for the others."""
AGAIN_MS = 500
_PASSING = ("unknown_topic", "unknown_partition", "coordinator_unavailable")
"""What was shared out may be of a topic that is another by now, with fewer partitions."""
_OF_REFUSALS = {
    "generation": KafkaError.ILLEGAL_GENERATION,
    "rebalance": KafkaError.REBALANCE_IN_PROGRESS,
    "instance_id": KafkaError.FENCED_INSTANCE_ID,
}


@dataclass
class Member(Client):
    """A client of Kafka. `name` tells it from others; its id it is given."""

    member_id: str = ""
    epoch: int = -1
    has_part: bool = False
    leads: list[JoinedMember] | None = None
    shared_out: Any = None
    """The topics, as they were when it shared them out."""
    again_at: float = 0.0


class ClassicWorld(World):
    clients: list[Member]  # type: ignore[assignment]

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.refused: Counter[KafkaError] = Counter()
        self.epochs: set[int] = set()
        self._parts: dict[tuple[int, At], str] = {}
        """Tells who has a partition in an epoch."""

    async def settle(self) -> None:
        """Nothing goes wrong any more: within a bounded time all who are left share all there is, and nobody else is
        there."""
        self._faults = False
        for _ in range((3 * SESSION_MS + 3 * REBALANCE_MS + LATE_MS) // STEP_MS):
            await self._step()
        groups = Groups(self.redis, self.log, self.clock, logger("critical", "console"))
        state = await groups.describe("g")
        assert state.classic is not None and state.classic.phase == "stable"
        assert {at.member for at in state.members} == {member.member_id for member in self.clients}
        assert {member.epoch for member in self.clients} == {max(self.epochs)}
        every = [at for member in self.clients for at in member.tenures]
        assert len(every) == len(set(every)) and set(every) == self._partitions(), "each partition has one reader"
        loads = sorted(len(member.tenures) for member in self.clients)
        assert loads[-1] - loads[0] <= 1

    async def _go_wrong(self) -> None:
        await super()._go_wrong()
        for server in self.servers:
            # It is time for whoever waits to be looked after, which is no time of the world's.
            server.groups.look()

    # --- members ------------------------------------------------------------------------------------------
    def _new_client(self, instance: str | None) -> None:
        self._number += 1
        self.clients.append(Member(f"m{self._number}", instance))

    def _replace(self, client: Client) -> None:
        self._hang_up(client)
        super()._replace(client)

    def _hang_up(self, client: Client) -> None:
        """Its server hears of that, or goes on waiting for it."""
        if client.call is not None and self.rng.random() < 0.7:
            client.call.cancel()
        client.call = client.on_reply = None

    def _act(self, client: Client) -> None:
        assert isinstance(client, Member)
        if self._now_ms < client.stalled_until:
            return
        if client.on_reply is not None:
            self._hear(client)
        elif self._chance(0.02):
            self._replace(client)
        elif self._chance(0.02):
            client.stalled_until = self._now_ms + self.rng.uniform(2_000, 2.5 * SESSION_MS)
        elif self._chance(0.006):
            name = client.member_id
            self._replace(client)
            self._to_any(lambda groups: self._of(groups).leave("g", [(name, "")], None))
        elif self._now_ms < client.again_at:
            return
        elif client.epoch < 0:
            self._join(client)
        elif not client.has_part:
            self._sync(client)
        elif client.leads is not None and client.shared_out != self._topics():
            self._rejoin(client)
        elif self._now_ms >= client.next_beat_at:
            client.next_beat_at = self._now_ms + self.rng.uniform(500, 2_500)
            speaker = self._speaker(client)
            self._send(client, lambda groups: self._of(groups).heartbeat("g", speaker, None), self._beaten)
        else:
            self._work(client)

    def _of(self, groups: Groups) -> ClassicGroups:
        return ClassicGroups(groups, DELAY_MS, lambda: False)

    def _speaker(self, client: Member) -> Speaker:
        return Speaker(client.member_id, client.instance or "", client.epoch)

    def _topics(self) -> list[tuple[str, str, int]]:
        return [(topic.name, topic.topic_id, len(topic.partitions)) for topic in self.log.topics()]

    def _join(self, client: Member) -> None:
        sent = joining(
            client.member_id,
            client.instance or "",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            skips=self.rng.random() < 0.5,
        )
        self._send(client, lambda groups: self._of(groups).join("g", sent, None), self._joined)
        client.gives_up_at = self._now_ms + WAITS_MS

    def _sync(self, client: Member) -> None:
        speaker, given = self._speaker(client), []
        if client.leads is not None:
            client.shared_out = self._topics()
            every = [(name, number) for name, _, count in client.shared_out for number in range(count)]
            for index, member in enumerate(client.leads):
                parts: dict[str, list[int]] = {}
                for name, number in every[index :: len(client.leads)]:
                    parts.setdefault(name, []).append(number)
                given.append((member.member_id, assignment(**parts)))
        self._send(client, lambda groups: self._of(groups).sync("g", speaker, None, None, given, None), self._synced)
        client.gives_up_at = self._now_ms + WAITS_MS

    def _rejoin(self, client: Member) -> None:
        client.epoch, client.has_part, client.leads = -1, False, None
        client.tenures.clear()

    def _hear(self, client: Client) -> None:
        assert isinstance(client, Member)
        call, on_reply = client.call, client.on_reply
        assert on_reply is not None
        if call is None or not call.done():
            if self._now_ms >= client.gives_up_at:
                self._hang_up(client)
            return
        client.call = client.on_reply = None
        if call.cancelled() or self._chance(0.08):
            client.again_at = self._now_ms + AGAIN_MS
            return
        error = call.exception()
        if error is None:
            on_reply(client, call.result())
        elif isinstance(error, SiltlogError) and error.error_code == "fenced_member":
            self._refused(client, _OF_REFUSALS[str(error.members["fenced_by"])])
        elif isinstance(error, SiltlogError) and error.error_code == "unknown_member":
            self._refused(client, KafkaError.UNKNOWN_MEMBER_ID)
        elif isinstance(error, SiltlogError) and error.error_code in _PASSING:
            client.again_at = self._now_ms + AGAIN_MS
        else:
            raise error

    def _refused(self, client: Member, error: KafkaError) -> None:
        self.refused[error] += 1
        if error == KafkaError.FENCED_INSTANCE_ID:
            self._replace(client)
            return
        assert error in (
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.REBALANCE_IN_PROGRESS,
        )
        if error == KafkaError.REBALANCE_IN_PROGRESS and client.tenures and self.rng.random() < 0.5:
            # It commits what it has read, and then lets go.
            self._work(client)
            client.on_reply = lambda found, _: self._rejoin(found)
            return
        if error == KafkaError.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        self._rejoin(client)

    def _joined(self, client: Any, joined: Joined) -> None:
        if joined.error:
            self._refused(client, joined.error)
            return
        client.member_id, client.epoch = joined.member_id, joined.epoch
        leads = joined.leader == joined.member_id and not joined.skip
        client.leads = list(joined.members) if leads else None
        assert bool(joined.members) == (joined.leader == joined.member_id)
        self.epochs.add(joined.epoch)

    def _synced(self, client: Any, synced: Synced) -> None:
        if synced.error:
            self._refused(client, synced.error)
            return
        client.has_part = True
        ids = {topic.name: topic.topic_id for topic in self.log.topics()}
        for name, number in assigned_partitions(synced.assignment):
            at = f"{name}/{ids[name]}", number
            whose = client.instance or client.member_id
            before = self._parts.setdefault((client.epoch, (name, number)), whose)
            assert before == whose, f"{before} and {whose} both have {name}/{number} in epoch {client.epoch}"
            client.tenures[at] = Tenure(self._processed.get(at, 0), len(self._commits.get(at, ())))

    def _beaten(self, client: Any, error: KafkaError) -> None:
        if error:
            self._refused(client, error)

    def _work(self, client: Client) -> None:
        """Reads a few records of each partition and commits those of one topic."""
        assert isinstance(client, Member)
        chosen, offsets = self._read_on(client)
        if not offsets:
            return
        request = CommitRequest(offsets, client.member_id, generation_of(client.epoch))
        nothing: Callable[[Client, Any], None] = lambda *_: None  # noqa: E731
        self._send(client, lambda groups: groups.offsets.commit("g", request, id_of(chosen)), nothing)

    # --- what must hold -----------------------------------------------------------------------------------
    async def _look(self) -> None:
        await self._store()
        arrived = await self.redis.command("SMEMBERS", "silt:{g}:arrived")
        there = await self.redis.command("ZRANGE", "silt:{g}:sessions", 0, -1)
        fields = await self.redis.command("HMGET", "silt:{g}:state", "phase", "deadline", "leader")
        phase, deadline, leader = (field and field.decode() for field in fields)
        assert set(arrived) <= set(there), "who has come is there"
        assert phase in (None, "empty", "preparing", "completing", "stable")
        assert (phase in (None, "empty")) == (not there)
        if phase in ("preparing", "completing"):
            assert int(deadline) > 0, "a rebalance ends"
        if phase == "completing":
            assert leader.encode() in there
        await self._look_at_summary()

    async def _look_at_summary(self) -> None:
        packed = await self.redis.command("HGET", "silt:{g}:state", "summary")
        members = [msgspec.msgpack.decode(each) for each in await self.redis.command("HVALS", "silt:{g}:members")]
        summary = msgspec.msgpack.decode(packed) if packed else {"of": -1}
        if summary["of"] == len(members):
            named = Counter(name for member in members for name in member["protocols"])
            assert Counter(summary["named"] or {}) == named, "what all say is what each says"
            assert summary["bytes"] == sum(member["metadata_bytes"] for member in members)
