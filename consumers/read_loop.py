"""What goes on between two records of a consumer: partitions come and go, replies arrive, what is done is committed.

Everything here runs on the consumer's own thread; the heartbeat and the fetch on theirs only leave news.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from siltlog.consumers.background_fetch import BackgroundFetch
from siltlog.consumers.group_member import GroupMember, MemberOptions
from siltlog.consumers.positions import FetchProblem, Marks, Positions
from siltlog.infra.client.calls import path_part
from siltlog.infra.client.core import BACKOFF_MS_MAX, Endpoints, json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller, Transport
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, OffsetOutOfRange, SiltlogError, Unavailable, problem

Reset = Literal["earliest", "latest", "error"]
Isolation = Literal["wal", "table"]
OnPartitions = Callable[[list[TopicPartition]], None]

FETCH_WAIT_MS = 500
"""How long the server holds a fetch; partitions that come meanwhile wait for its end."""
FETCH_RECORDS_MAX = 100_000
FETCH_BYTES_MAX = 16 * 1024 * 1024
LAST_COMMIT_MS = 10_000
"""How long a commit is tried before partitions are let go."""
WAIT_S_MAX = 1.0
"""A wait is looked at this often, whatever it waits for."""
GONE_CODES = frozenset(("unknown_topic", "unknown_partition"))
_log = logging.getLogger("siltlog.consumer")


@dataclass(frozen=True, slots=True)
class LoopOptions:
    member: MemberOptions | None
    assign: Sequence[TopicPartition]
    auto_offset_reset: Reset
    isolation: Isolation
    auto_commit_interval_ms: int | None
    """None: nothing is committed by itself."""
    retry_timeout_ms: int
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    on_lost: OnPartitions | None


class ReadLoop:
    def __init__(self, options: LoopOptions, endpoints: Endpoints, transport: Transport, clock: Clock) -> None:
        self.positions = Positions()
        self.assigned = False
        """Whether it is known which partitions to read, none being an answer too."""
        self.news = threading.Condition()
        self.woken = False
        self.closing = False
        self._options = options
        self._clock = clock
        self._caller = Caller(endpoints, transport, clock, retry_timeout_ms=options.retry_timeout_ms)
        self._background = Caller(endpoints, transport, clock, retry_timeout_ms=options.retry_timeout_ms)
        fetch = {
            "max_records": FETCH_RECORDS_MAX,
            "max_bytes": FETCH_BYTES_MAX,
            "wait_ms": FETCH_WAIT_MS,
            "isolation": options.isolation,
        }
        self._fetch = BackgroundFetch(self._background, self.news, fetch)
        self.member: GroupMember | None = None
        if options.member is not None:
            self.member = GroupMember(options.member, self._background, self._caller, clock, self.news)
        self._topic_ids: dict[str, str] = {}
        self._started = False
        self._not_before = 0.0
        self._troubled_since: float | None = None
        self._commit_at = clock.monotonic()
        self._put_off_commit()

    # --- waiting for what comes ---------------------------------------------------------------------------
    def step(self) -> None:
        """Takes what has come. Raises what cannot be helped by trying again."""
        self.start()
        if self.member is not None:
            self._take_news(self.member)
        if self._fetch.ready:
            asked, result = self._fetch.take()
            if isinstance(result, SiltlogError):
                raise result
            problems = self.positions.accept(asked, result)
            if not problems:
                self._troubled_since = None
            for found in problems:
                self._trouble(found)
        if self.commit_due(self._clock.monotonic()):
            self._put_off_commit()
            self.commit_done(self.positions.uncommitted(), retry_timeout_ms=0)

    def start(self) -> None:
        if self._started:
            return
        if self.member is not None:
            self.member.start()
        else:
            self._place(self._options.assign)
        self._started = True

    def prefetch(self, marks: Marks | None) -> None:
        """Has the next records fetched while the ones at hand are handled."""
        if not self._fetch.idle or self.closing or self._clock.monotonic() < self._not_before:
            return
        if self.positions.buffered_bytes < FETCH_BYTES_MAX // 2:
            wanted = self.positions.wanted(marks)
            if wanted:
                self._fetch.start([(state, state.asked) for state in wanted], dict(self._topic_ids))

    def wait(self, until: float) -> None:
        """Returns once something has come, or is due, or at `until` (monotonic seconds)."""
        now = self._clock.monotonic()
        if self.commit_due(until):
            until = self._commit_at
        if self._not_before > now:
            until = min(until, self._not_before)
        with self.news:
            if not (self._fetch.ready or self.woken or self.closing or self.has_news):
                self.news.wait(min(max(0.0, until - now), WAIT_S_MAX))

    @property
    def has_news(self) -> bool:
        return self.member is not None and self.member.has_news

    def commit_due(self, now: float) -> bool:
        return self._options.auto_commit_interval_ms is not None and now >= self._commit_at

    def _put_off_commit(self) -> None:
        self._commit_at = self._clock.monotonic() + (self._options.auto_commit_interval_ms or 0) / 1000

    def _trouble(self, found: FetchProblem) -> None:
        """A partition could not be read."""
        now, error = self._clock.monotonic(), found.error
        reset = self._options.auto_offset_reset
        if isinstance(error, OffsetOutOfRange) and reset != "error":
            end = found.table_offset if self._options.isolation == "table" else found.high_watermark
            to = found.log_start_offset if reset == "earliest" else end
            _log.warning("%s: %s; going on at %d (auto_offset_reset=%s)", found.state.at, error, to, reset)
            self.positions.seek(found.state.at, to)
            return
        if self.member is not None and error.error_code in GONE_CODES:
            # Deleted, and perhaps created again: joining anew brings what the group has of the topic as it is now.
            self.member.rejoin()
            self._not_before = now + BACKOFF_MS_MAX / 1000
            return
        self._troubled_since = self._troubled_since or now
        if error.retryable == "no" or now - self._troubled_since > self._options.retry_timeout_ms / 1000:
            self._troubled_since = None
            raise error
        self._not_before = now + (error.retry_after_ms or BACKOFF_MS_MAX) / 1000

    # --- partitions come and go ---------------------------------------------------------------------------
    def _take_news(self, member: GroupMember) -> None:
        if not member.has_news:
            waited = member.unjoined_s()
            if waited * 1000 > self._options.retry_timeout_ms:
                raise Unavailable(
                    f"the group could not be joined in {waited:.0f} s: {member.last_error}",
                    error_code="coordinator_unavailable",
                )
            return
        news = member.take()
        if news.lost:
            self.assigned = False
            gone = sorted(self.positions.states)
            self.positions.revoke(gone)
            _call(self._options.on_lost, gone)
        if news.error is not None:
            raise news.error
        if news.assignment is not None:
            self._reassign(member, news.assignment)

    def _reassign(self, member: GroupMember, assignment: Mapping[TopicPartition, int]) -> None:
        held = self.positions.states
        revoked = sorted(held.keys() - assignment.keys())
        assigned = sorted(assignment.keys() - held.keys())
        try:
            if revoked:
                done = self.positions.uncommitted() if self._options.auto_commit_interval_ms is not None else {}
                self.commit_done({at: done[at] for at in revoked if at in done}, LAST_COMMIT_MS)
                _call(self._options.on_revoked, revoked)
        finally:
            self.positions.revoke(revoked)
            for at in assigned:
                self.positions.assign(at, assignment[at])
            self._learn_topics({at.topic for at in assigned})
            member.holds(held.keys(), released=bool(revoked))
            self.assigned = True
        _call(self._options.on_assigned, assigned)

    def _place(self, partitions: Sequence[TopicPartition]) -> None:
        """Gives the partitions of a consumer without a group their first positions."""
        bounds = {topic: self.offsets(topic) for topic in sorted({at.topic for at in partitions})}
        for at in partitions:
            found = bounds[at.topic].get(at.partition)
            if found is None:
                raise problem("unknown_partition", f"{at.topic} has no partition {at.partition}")
            latest = self._options.auto_offset_reset == "latest"
            self.positions.assign(at, self.end_of(found) if latest else found["log_start_offset"])
            if self._options.auto_offset_reset == "error":
                self.positions.states[at].placed = False
        self.assigned = True

    def _learn_topics(self, topics: Collection[str]) -> None:
        """Which topic a name stands for now: a fetch must not go on in a successor of the same name."""
        for topic in topics:
            self._topic_ids.pop(topic, None)
            try:
                self.offsets(topic)
            except SiltlogError as error:
                _log.warning("the id of topic %s is not known: %s", topic, error)

    def offsets(self, topic: str, timestamp: str | None = None) -> dict[int, dict[str, Any]]:
        """The bounds of every partition, and with `timestamp` the lowest `offset` at or after it."""
        path = f"/v1/topics/{path_part(topic)}/offsets"
        reply = self._caller.call(json_request("GET", path, query={"timestamp": timestamp})).json()
        if "topic_id" in reply:
            self._topic_ids.setdefault(topic, reply["topic_id"])
        return {entry["partition"]: entry for entry in reply["partitions"]}

    def end_of(self, bounds: Mapping[str, Any]) -> int:
        """Where reading ends at present."""
        return int(bounds["table_offset" if self._options.isolation == "table" else "high_watermark"])

    # --- committing ---------------------------------------------------------------------------------------
    def commit(self, offsets: Mapping[TopicPartition, int], retry_timeout_ms: int | None = None) -> None:
        """Raises Fenced when a partition is no longer this consumer's."""
        if self.member is None:
            raise problem("invalid_request", "only a consumer of a group commits: give group= and topics=")
        for at in offsets:
            if at not in self.positions.states:
                raise problem("fenced_member", f"{at.topic}/{at.partition} is not assigned to this consumer (any more)")
        if offsets:
            self.member.commit(offsets, retry_timeout_ms)
            self.positions.committed(offsets)

    def commit_done(self, offsets: Mapping[TopicPartition, int], retry_timeout_ms: int) -> None:
        """What fails is tried again at the next occasion; at worst records are delivered again."""
        try:
            self.commit(offsets, retry_timeout_ms)
        except SiltlogError as error:
            if error.retryable == "no" and not isinstance(error, Fenced):
                raise
            _log.warning("what is done could not be committed now: %s", error)

    def interrupt(self) -> None:
        """Calls that go on trying end with their last error, until `resume`. From another thread."""
        self._caller.interrupted.set()

    def resume(self) -> None:
        self._caller.interrupted.clear()

    def close(self) -> None:
        self._background.interrupted.set()
        self._fetch.stop()
        if self.member is not None:
            self.member.leave()


def _call(callback: OnPartitions | None, partitions: list[TopicPartition]) -> None:
    if callback is not None and partitions:
        callback(partitions)
