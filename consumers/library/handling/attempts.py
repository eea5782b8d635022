"""What a group is told of the records that a handler has: how far they are handed out, and how often one failed. No IO.

How often a record failed is counted by the group, not here, so that it is known to whoever has the partition next. A
record that ends its consumer fails without a word: before records are handed out the group is told up to where
(`delivered`), and whoever finds that a former holder was told beyond what it committed counts each of those before it
is handled, and commits it before the next. Where a record has one attempt only, nobody may find out by trying: then the
group is told of each alone, and one that was told of and not committed has had it.
"""

import logging
import traceback
from collections.abc import Callable, Iterable, Mapping

from siltlog.consumers.library.commits import is_gone
from siltlog.consumers.library.handling.partition_lane import PartitionLane
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import GroupMember
from siltlog.consumers.library.options import HandlingOptions
from siltlog.consumers.library.positions import readable
from siltlog.consumers.library.program import Program
from siltlog.infra.client import calls
from siltlog.infra.client.core import BACKOFF_MS_MAX
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, SiltlogError

AHEAD_OFFSETS = 1_500
"""The group is told so far ahead, so that records that come one by one do not cost a call each."""
ERROR_CHARS_MAX = 1_000
GONE_CODES = frozenset(("not_found", "offset_out_of_range"))
_log = logging.getLogger("siltlog.consumer")


class Attempts:
    def __init__(
        self,
        inbox: Inbox,
        member: GroupMember,
        options: HandlingOptions,
        clock: Clock,
        jitter: Callable[[], float],
        lanes: Mapping[TopicPartition, PartitionLane],
    ) -> None:
        """`lanes` are those that there are at the time."""
        self._inbox = inbox
        self._member = member
        self._options = options
        self._clock = clock
        self._jitter = jitter
        self._lanes = lanes
        self.suspect: PartitionLane | None = None
        """The lane whose record was counted, as it may end the consumer; no other is until that is committed."""
        self._told: dict[TopicPartition, int] = {}
        """Up to where the group was told that records are handed out."""

    @property
    def one_by_one(self) -> bool:
        return self._options.max_attempts == 1

    def is_single(self, lane: PartitionLane) -> bool:
        """Whether the group is told of the lane's next record alone, before and after it is handled."""
        return self.one_by_one or self._is_suspect(lane)

    def forget(self, lane: PartitionLane) -> None:
        """The lane is no more this consumer's to tell of."""
        if self.suspect is lane:
            self.suspect = None

    def take_told(self, at: TopicPartition) -> int:
        """Up to where the group was told that records are handed out; from now on it is told anew."""
        return self._told.pop(at, 0)

    def failed(self, lane: PartitionLane, error: Exception) -> None:
        """The handler raised at the lane's record."""
        lane.error = _said_of(error)
        lane.step = "failed"
        # As text that every log can take: a traceback that cannot be encoded is not logged at all.
        trace = "".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode()
        _log.warning("%s offset %d: %s\n%s", _place(lane), lane.record.offset, lane.error, trace.rstrip())

    def tell_ahead(self, lanes: Iterable[PartitionLane]) -> Program[None]:
        """One commit says of all of them what is handed out; where it fails each lane does so for itself."""
        beginning = [lane for lane in lanes if lane.step == "begin" and self._is_beyond(lane)]
        if len(beginning) > 1:
            offsets = {lane.at: readable(lane.state, lane.done) for lane in beginning}
            told = {lane.at: max(offsets[lane.at], self._ahead(lane)) for lane in beginning}
            try:
                yield from self._inbox.commits.commit(offsets, 0, told)
            except SiltlogError as error:
                _log.debug("what is handed out could not be told at once: %s", error)
            else:
                self._told |= told

    def is_due(self, lane: PartitionLane) -> bool:
        """Whether there is something to tell the group before a worker may have it."""
        if lane.busy or lane.step in ("ready", "over") or lane.rests_until > self._clock.monotonic():
            return False
        waits = lane.step == "begin" and self.suspect is not lane and self._is_to_wait(lane)
        return self._lanes.get(lane.at) is lane and not waits

    def _is_to_wait(self, lane: PartitionLane) -> bool:
        paused = lane.state.paused and not lane.finished
        return paused or (self.suspect is not None and self._is_suspect(lane))

    def advance(self, lane: PartitionLane) -> Program[None]:
        """Goes on until a worker may have the lane, or it has to wait."""
        while self.is_due(lane):
            try:
                yield from self._tell(lane)
            except Fenced as error:
                # A commit is refused too, and by that the membership ends; the next look at the news drops the lanes.
                _log.warning("%s: %s", _place(lane), error)
                yield from self._inbox.commits.try_to_commit({lane.at: readable(lane.state, lane.done)}, 0)
                lane.rests_until = self._clock.monotonic() + BACKOFF_MS_MAX / 1000
                return
            except SiltlogError as error:
                if self._has_lost_records(lane, error):
                    continue
                self._put_off(lane, error)
                return
            lane.troubled_since = None

    def _tell(self, lane: PartitionLane) -> Program[None]:
        if lane.step == "begin":
            if self.suspect is lane:
                yield from self._commit(lane, max(self._begun(lane), lane.state.delivered or 0))
                self.suspect = None
            elif lane.finished:
                if self.one_by_one and lane.done != lane.state.committed:
                    # It would pass for one that ended its consumer.
                    yield from self._commit(lane, lane.done)
                lane.step = "over"
            elif self._is_suspect(lane):
                yield from self._count_before(lane)
            else:
                if self._is_beyond(lane):
                    yield from self._commit(lane, self._ahead(lane))
                if lane.attempts and not lane.counted:
                    if self._inbox.is_ending:
                        # It would be counted, and not be handled any more.
                        lane.rests_until = self._clock.monotonic() + BACKOFF_MS_MAX / 1000
                        return
                    # Should it end the consumer now, its next one knows of this attempt too.
                    lane.attempts, lane.counted = (yield from self._count(lane)), True
                lane.step = "ready"
        elif lane.step == "failed":
            if not lane.counted:
                lane.attempts = yield from self._count(lane)
            lane.counted = False
            if self.suspect is lane:
                self.suspect = None
            if lane.attempts >= self._options.max_attempts:
                lane.step = "bury"
            else:
                lane.step = "begin"
                pause = self._options.backoff_s(max(lane.attempts, 1), self._jitter())
                lane.rests_until = self._clock.monotonic() + pause
        else:
            yield from self._bury(lane)

    def _count_before(self, lane: PartitionLane) -> Program[None]:
        """The record may have ended a consumer: it is counted, with nothing uncommitted before it."""
        if lane.done != lane.state.committed:
            yield from self._commit(lane, max(self._begun(lane), lane.state.delivered or 0))
        reply = yield from calls.count_attempt(self._named(lane), self._options.max_attempts)
        lane.attempts, lane.counted = reply["attempts"], True
        # Told of alone, it was begun: its only attempt is what was counted now.
        had_one = self.one_by_one and lane.record.offset + 1 == lane.state.delivered
        if not (reply["spent"] or had_one):
            self.suspect, lane.step = lane, "ready"
        else:
            lane.error = lane.error or "its consumer ended, or lost the partition, while it was handled"
            lane.step = "bury"

    def _is_beyond(self, lane: PartitionLane) -> bool:
        """Whether the group does not know yet that the lane's records are handed out."""
        needed = self._ahead(lane) if self.one_by_one else lane.after
        return not self._is_suspect(lane) and needed > self._told.get(lane.at, 0)

    def _is_suspect(self, lane: PartitionLane) -> bool:
        return lane.state.delivered is not None and not lane.finished and lane.record.offset < lane.state.delivered

    def _begun(self, lane: PartitionLane) -> int:
        """Up to where records of the lane may be begun before the group hears of it again."""
        return lane.done if self.one_by_one else lane.after

    def _ahead(self, lane: PartitionLane) -> int:
        """Up to where the group is told that records are handed out."""
        if self.one_by_one and not lane.finished:
            return lane.record.offset + 1
        return lane.after + AHEAD_OFFSETS

    def _count(self, lane: PartitionLane) -> Program[int]:
        reply = yield from calls.count_attempt(self._named(lane))
        attempts: int = reply["attempts"]
        return attempts

    def _bury(self, lane: PartitionLane) -> Program[None]:
        record = lane.record
        if lane.done != lane.state.committed:
            # What was begun before it must not be open any more.
            yield from self._commit(lane, max(self._begun(lane), self._told.get(lane.at, 0)))
        yield from calls.bury(self._named(lane), lane.error)
        _log.error("%s offset %d is a dead letter: %s", _place(lane), record.offset, lane.error)
        self._inbox.positions.committed({lane.at: record.offset + 1})
        self._pass(lane)

    def _has_lost_records(self, lane: PartitionLane, error: SiltlogError) -> bool:
        """Whether the group refused because retention, or somebody, deleted records meanwhile; the lane goes on."""
        start, bounds = error.members.get("log_start_offset"), lane.state.bounds
        if start is not None and bounds is not None and start > bounds.log_start_offset:
            lane.state.bounds = bounds._replace(log_start_offset=start)
            return True
        if error.error_code in GONE_CODES and not lane.finished:
            _log.error("%s offset %d is passed, for it is gone: %s", _place(lane), lane.record.offset, error)
            self._pass(lane)
            return True
        return False

    def _pass(self, lane: PartitionLane) -> None:
        lane.error = ""
        lane.passed()
        lane.step = "begin"

    def _named(self, lane: PartitionLane) -> calls.GroupRecord:
        member = self._member
        assert self._inbox.options.group is not None
        return calls.GroupRecord(
            self._inbox.options.group, member.member_id, member.generation, lane.at, lane.record.offset
        )

    def _commit(self, lane: PartitionLane, told: int) -> Program[None]:
        offset = readable(lane.state, lane.done)
        told = max(told, offset)
        yield from self._inbox.commits.commit({lane.at: offset}, 0, {lane.at: told})
        self._told[lane.at] = told

    def _put_off(self, lane: PartitionLane, error: SiltlogError) -> None:
        """The group could not be told: again in a moment, until `retry_timeout_ms` are over."""
        now = self._clock.monotonic()
        if is_gone(lane.at, error):
            # The group is about to take the partition away.
            lane.rests_until = now + BACKOFF_MS_MAX / 1000
            return
        lane.troubled_since = lane.troubled_since or now
        waited = now - lane.troubled_since
        if error.retryable == "no" or waited * 1000 > self._inbox.options.retry_timeout_ms:
            lane.troubled_since = None
            raise error
        lane.rests_until = now + (error.retry_after_ms or BACKOFF_MS_MAX) / 1000


def _place(lane: PartitionLane) -> str:
    return f"{lane.at.topic}/{lane.at.partition}"


def _said_of(error: Exception) -> str:
    """Gives an error's name and message, whatever they are: what a handler raises must not end the run."""
    text = traceback.format_exception_only(error)[-1].strip()
    return text.encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]
