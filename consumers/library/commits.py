"""The commits of a consumer: what of its positions the group is told, and when. No IO."""

import logging
import math
from collections.abc import Callable, Iterable, Mapping

from siltlog.consumers.library.member import GroupMember
from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import Positions, readable
from siltlog.consumers.library.program import Program
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.infra.client import calls
from siltlog.infra.client.record import TopicPartition, checked_partition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, Fenced, SiltlogError, problem

LAST_COMMIT_MS = 10_000
"""How long a commit is tried before partitions are let go."""
TOPIC_GONE_CODES = frozenset(("unknown_topic", "unknown_partition"))
_log = logging.getLogger("siltlog.consumer")


class Commits:
    def __init__(
        self,
        options: ConsumerOptions,
        positions: Positions,
        member: GroupMember | None,
        clock: Clock,
        drop: Callable[[Iterable[TopicPartition]], Program[None]],
    ) -> None:
        """`drop` lets go of partitions that are another's, as a refused commit tells."""
        self._options = options
        self._positions = positions
        self._member = member
        self._clock = clock
        self._drop = drop
        self.due_at = math.inf
        """When what is done is to be committed (monotonic seconds)."""
        self._put_off()

    def commit_due(self) -> Program[None]:
        """Commits what is done if it is time to."""
        if self._clock.monotonic() >= self.due_at:
            self._put_off()
            yield from self.try_to_commit(self._positions.uncommitted(), 0)

    def commit_asked(
        self, what: ConsumerRecord | Mapping[TopicPartition, int] | None, *, handed_out: bool = True
    ) -> Program[None]:
        """Commits up to and including a record, or the offsets to read next; or what was `handed_out`, else is done."""
        states = self._positions.states
        if what is None:
            offsets = self._positions.uncommitted(handed_out=handed_out)
            yield from self.commit_what_is_there(offsets)
            self._are_done(offsets)
            return
        if isinstance(what, ConsumerRecord):
            at = TopicPartition(what.topic, what.partition)
            offsets = {at: readable(states[at], what.offset + 1) if at in states else what.offset + 1}
        else:
            if not isinstance(what, Mapping):
                raise ConfigError(f"commit takes a record, or {{TopicPartition('flights', 0): offset}}, not {what!r}")
            offsets = {checked_partition(at): offset for at, offset in what.items()}
        yield from self.commit(offsets)
        self._are_done(offsets)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        retry_timeout_ms: int | None = None,
        delivered: Mapping[TopicPartition, int] | None = None,
    ) -> Program[None]:
        """Raises Fenced when a partition is no longer this consumer's. `delivered`: up to where it was handed out."""
        member = self._member_that("commits")
        for at in offsets:
            if at not in self._positions.states:
                raise problem("fenced_member", f"{at.topic}/{at.partition} is not assigned to this consumer (any more)")
        if not offsets:
            return
        identity, request = member.commit(offsets, delivered or {}, retry_timeout_ms)
        self._positions.committing(offsets)
        try:
            yield request
        except Fenced as error:
            fenced = _partitions_of(error)
            if not fenced:
                member.lost(identity)
                raise
            # Of these alone; that the group has changed is told by the next heartbeat.
            yield from self._drop(fenced)
            member.holds(self._positions.states)
            raise
        self._positions.committed(offsets)

    def commit_what_is_there(
        self,
        offsets: Mapping[TopicPartition, int],
        retry_timeout_ms: int | None = None,
        delivered: Mapping[TopicPartition, int] | None = None,
    ) -> Program[None]:
        """Commits, as `commit` does, but leaves out partitions of topics that were deleted, also where others have
        their names by now, and what is another member's: the others must not wait for these. Then it raises Fenced."""
        left, fenced = dict(offsets), None
        while True:
            try:
                yield from self.commit(left, retry_timeout_ms, delivered)
            except SiltlogError as error:
                gone = [at for at in left if is_gone(at, error)]
                if not gone:
                    raise
                if isinstance(error, Fenced):
                    fenced = fenced or error
                else:
                    _log.warning("what is done in %s is not committed: %s", ", ".join({at.topic for at in gone}), error)
                left = {at: offset for at, offset in left.items() if at not in gone}
            else:
                break
        if fenced is not None:
            raise fenced

    def try_to_commit(
        self,
        offsets: Mapping[TopicPartition, int],
        retry_timeout_ms: int,
        delivered: Mapping[TopicPartition, int] | None = None,
    ) -> Program[None]:
        """Commits as `commit_what_is_there` does, and only logs a failure: the next commit says the same and more.

        At worst records are delivered again.
        """
        try:
            yield from self.commit_what_is_there(offsets, retry_timeout_ms, delivered)
        except SiltlogError as error:
            _log.warning("what is done could not be committed now: %s", error)

    def committed(self, at: TopicPartition) -> Program[int | None]:
        """The group's committed offset, None when it has none."""
        self._member_that("has committed offsets")
        assert self._options.group is not None
        offsets = yield from calls.group_offsets(self._options.group)
        return offsets.get(at)

    def _are_done(self, offsets: Mapping[TopicPartition, int]) -> None:
        states = self._positions.states
        for at, offset in offsets.items():
            # Workers may move `done` meanwhile: what it has passed already is not written.
            if at in states and (reached := min(offset, states[at].position)) > states[at].done:
                states[at].done = reached

    def _member_that(self, what: str) -> GroupMember:
        if self._member is None:
            raise problem("invalid_request", f"only a consumer of a group {what}: give group= and topics=")
        return self._member

    def _put_off(self) -> None:
        if self._options.commits_by_itself:
            self.due_at = self._clock.monotonic() + self._options.auto_commit_interval_ms / 1000


def is_gone(at: TopicPartition, error: SiltlogError) -> bool:
    """Whether the server refuses something because the partition is not what was read any more: another member's, or of
    a topic that was deleted. An offset beyond the end is of a topic whose name another has now, with fewer records."""
    if isinstance(error, Fenced):
        return at in _partitions_of(error)
    named = error.members
    if error.error_code in TOPIC_GONE_CODES:
        return named.get("topic") == at.topic
    is_named = named.get("topic") == at.topic and named.get("partition") == at.partition
    return is_named and error.error_code == "invalid_request" and "high_watermark" in named


def _partitions_of(error: Fenced) -> list[TopicPartition]:
    """Lists the partitions that the group says are not the member's; none where it is no member any more."""
    return [TopicPartition(one["topic"], one["partition"]) for one in error.members.get("partitions", ())]
