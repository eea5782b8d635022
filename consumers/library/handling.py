"""Records through a handler, with retries and dead letters: what to do next, and what it means. No IO.

Each partition has one lane at a time, so its order is kept; a lane whose record failed rests, and others go on. How
often a record failed is counted by the group, not here, so that it is known to whoever has the partition next. A record
that ends its consumer fails without a word: before records are handed out the group is told up to where (`delivered`),
and whoever finds that a former holder was told beyond what it committed counts each of those before it is handled, and
commits it before the next. Where a record has one attempt only, nobody may find out by trying: then the group is told
of each alone, and one that was told of and not committed has had it.
"""

import logging
import math
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from siltlog.consumers.library.inbox import LAST_COMMIT_MS, TOPIC_GONE_CODES, Inbox
from siltlog.consumers.library.lane import Lane
from siltlog.consumers.library.positions import readable
from siltlog.consumers.library.program import Program
from siltlog.infra.client import calls
from siltlog.infra.client.core import BACKOFF_MS_MAX
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, Fenced, SiltlogError, problem

CHUNK_RECORDS = 500
"""How many records of a partition are taken at a time."""
AHEAD_OFFSETS = 1_500
"""The group is told so far ahead, so that records that come one by one do not cost a call each."""
LANES_PER_WORKER = 4
ERROR_CHARS_MAX = 1_000
GONE_CODES = frozenset(("not_found", "offset_out_of_range"))
_log = logging.getLogger("siltlog.consumer")


@dataclass(frozen=True, slots=True)
class HandlingOptions:
    max_attempts: int
    backoff_ms: int
    backoff_ms_max: int
    workers: int

    def __post_init__(self) -> None:
        """Raises ConfigError that names the argument."""
        for name, least in (("max_attempts", 1), ("backoff_ms", 0), ("backoff_ms_max", 0), ("workers", 1)):
            given = getattr(self, name)
            if given < least:
                raise ConfigError(f"{name} must be at least {least}, not {given!r}")

    def backoff_s(self, attempts: int, jitter: float) -> float:
        """How long a record rests after `attempts`, at least one; doubles each time, half of it jittered."""
        ceiling = min(self.backoff_ms_max, self.backoff_ms << min(attempts - 1, 30))
        return ceiling * (1 + jitter) / 2 / 1000


class Handling:
    def __init__(
        self, inbox: Inbox, options: HandlingOptions, clock: Clock, jitter: Callable[[], float] | None = None
    ) -> None:
        """Raises Refused `invalid_request` for a consumer without a group."""
        if inbox.member is None:
            raise problem("invalid_request", "only a consumer of a group has retries: give group= and topics=")
        if inbox.done_is_said:
            raise problem("invalid_request", "this consumer is running already; a handler cannot run it once more")
        self._inbox = inbox
        self._member = inbox.member
        self._options = options
        self._clock = clock
        self._jitter = jitter or random.Random().random  # noqa: S311
        self._lanes: dict[TopicPartition, Lane] = {}
        """In the order in which they are next."""
        self._strays: list[Lane] = []
        """Still busy, of partitions that are another's or came anew meanwhile."""
        self._outcomes: deque[tuple[Lane, BaseException | None]] = deque()
        self._suspect: Lane | None = None
        """Whose record was counted because it may end the consumer; no other is until that is settled and committed."""
        self._told: dict[TopicPartition, int] = {}
        """Up to where the group was told that records are handed out."""
        self._commit_at = math.inf
        self._put_off_commit()

    def startable(self) -> Lane | None:
        """The next lane for a worker that is free; from now on it is busy."""
        now = self._clock.monotonic()
        away = {lane.at for lane in self._strays}
        # A suspect first: whatever else ends the consumer meanwhile is held against it.
        first = [] if self._suspect is None else [self._suspect]
        for lane in (*first, *self._lanes.values()):
            if lane.step == "ready" and not lane.busy and lane.rests_until <= now and lane.at not in away:
                lane.busy = True
                lane.single = self._one_by_one or self._is_suspect(lane)
                lane.started = now
                return lane
        return None

    def finished(self, lane: Lane, error: BaseException | None) -> None:
        """A worker has let go of the lane. From any thread; the next `attend` takes it in."""
        self._outcomes.append((lane, error))

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    def at_work(self, lanes: Iterable[Lane]) -> bool:
        """Whether a worker has one of them."""
        back = [lane for lane, _ in self._outcomes]
        return any(lane.busy and lane not in back for lane in lanes)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to handle."""
        return not self._lanes and not self._strays

    def alive_at(self) -> float | None:
        """When the consumer last showed that it goes on: now, or when the handler was called that is at work for
        longest; None where that is so long ago that others are to have its partition."""
        now = self._clock.monotonic()
        since = min((lane.started for lane in (*self._strays, *self._lanes.values()) if lane.busy), default=now)
        return since if (now - since) * 1000 <= self._inbox.options.max_poll_interval_ms else None

    def wait_until(self, deadline: float) -> float:
        """When to look again (monotonic seconds), unless something comes before."""
        now = self._clock.monotonic()
        rests = [lane.rests_until for lane in self._lanes.values() if lane.rests_until > now]
        return min([deadline, self._commit_at, *rests])

    def attend(self) -> Program[None]:
        """Takes what has come, tells the group what is to be told. Raises what cannot be helped by trying again."""
        self._take_outcomes()
        yield from self._inbox.attend()
        now = self._clock.monotonic()
        if now >= self._commit_at:
            self._put_off_commit()
            yield from self._try_to_commit(self._inbox.positions.uncommitted(), 0)
        self._fill()
        yield from self._tell_ahead(
            [lane for lane in self._lanes.values() if not (lane.busy or lane.rests_until > now)]
        )
        while due := [lane for lane in self._lanes.values() if self._is_due(lane)]:
            for lane in due:
                yield from self._advance(lane)

    def stop(self, partitions: Iterable[TopicPartition] | None = None) -> list[Lane]:
        """No further record of them (None: of any) is begun; those lanes that are busy."""
        wanted = self._lanes.keys() if partitions is None else partitions
        stopped = [self._lanes[at] for at in wanted if at in self._lanes]
        for lane in stopped:
            lane.stopping = True
        return [lane for lane in stopped if lane.busy]

    def release(self, partitions: Iterable[TopicPartition]) -> Program[None]:
        """Commits what is done of them, and that no more was handed out: whoever gets them next need not suspect it.

        What is still busy is given up: it will be handled again there.
        """
        self._take_outcomes()
        positions = self._inbox.positions
        offsets, delivered = {}, {}
        for at in partitions:
            lane = self._lanes.get(at)
            self._give_up(at)
            state = positions.states.get(at)
            if state is None:
                continue
            done = readable(state, state.done)
            told = self._told.pop(at, 0)
            if lane is not None and lane.step == "bury":
                # It may be a dead letter already, and passed.
                continue
            if lane is not None and lane.busy:
                offsets[at] = done
            elif done != state.committed or told > done:
                # What a former holder left uncommitted stays suspect.
                offsets[at], delivered[at] = done, max(done, state.delivered or 0)
        yield from self._try_to_commit(offsets, LAST_COMMIT_MS, delivered)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """They are another's; nothing of them is done any more."""
        self._take_outcomes()
        for at in partitions:
            self._give_up(at)
            self._told.pop(at, None)

    def _give_up(self, at: TopicPartition) -> None:
        """The lane goes; what it has not handled is to be handed out again."""
        lane = self._lanes.pop(at, None)
        if lane is None:
            return
        lane.stopping = True
        self._hold_back(lane, False)
        if self._suspect is lane:
            self._suspect = None
        if lane.busy:
            self._strays.append(lane)
        if not lane.finished and self._inbox.positions.states.get(at) is lane.state:
            self._inbox.positions.give_back(lane.rest())
            lane.state.position = lane.done

    def _take_outcomes(self) -> None:
        while self._outcomes:
            lane, error = self._outcomes.popleft()
            lane.busy = False
            if lane in self._strays:
                self._strays.remove(lane)
                continue
            self._inbox.finish(lane.at, lane.done)
            self._lanes[lane.at] = self._lanes.pop(lane.at)
            if error is not None and not isinstance(error, Exception):
                raise error
            if error is not None:
                self._failed(lane, error)
            elif lane.finished and lane is not self._suspect and not self._one_by_one:
                self._leave(lane)
            else:
                lane.step = "begin"

    def _failed(self, lane: Lane, error: Exception) -> None:
        lane.error = _said_of(error)
        lane.step = "failed"
        # As text that every log can take: a traceback that cannot be encoded is not logged at all.
        trace = "".join(traceback.format_exception(error)).encode(errors="backslashreplace").decode()
        _log.warning("%s offset %d: %s\n%s", _place(lane), lane.record.offset, lane.error, trace.rstrip())

    def _leave(self, lane: Lane) -> None:
        self._hold_back(lane, False)
        del self._lanes[lane.at]

    def _fill(self) -> None:
        """Gives partitions that have records and no lane one."""
        for lane in self._lanes.values():
            self._hold_back(lane, lane.state.runs > 0)
        now = self._clock.monotonic()
        active = sum(lane.rests_until <= now for lane in self._lanes.values())
        # What the group is told of alone is begun at once.
        per_worker = 1 if self._one_by_one else LANES_PER_WORKER
        while active < per_worker * self._options.workers:
            run = self._inbox.next_run(CHUNK_RECORDS)
            if run is None:
                return
            self._inbox.positions.handed_out(run)
            lane = self._lanes[run.state.at] = Lane(run, run.state.position)
            self._hold_back(lane, run.state.runs > 0)
            active += 1

    def _hold_back(self, lane: Lane, held: bool) -> None:
        """A partition that was paused by somebody else stays so."""
        if held and not lane.state.paused:
            lane.state.paused = lane.holds_back = True
        elif not held and lane.holds_back:
            lane.state.paused = lane.holds_back = False

    def _tell_ahead(self, lanes: Iterable[Lane]) -> Program[None]:
        """One commit says of all of them what is handed out; where it fails each lane does so for itself."""
        beginning = [lane for lane in lanes if lane.step == "begin" and self._is_beyond(lane)]
        if len(beginning) > 1:
            offsets = {lane.at: readable(lane.state, lane.done) for lane in beginning}
            told = {lane.at: max(offsets[lane.at], self._ahead(lane)) for lane in beginning}
            try:
                yield from self._inbox.commit(offsets, 0, told)
            except SiltlogError as error:
                _log.debug("what is handed out could not be told at once: %s", error)
            else:
                self._told |= told

    def _is_beyond(self, lane: Lane) -> bool:
        """Whether the group does not know yet that the lane's records are handed out."""
        needed = self._ahead(lane) if self._one_by_one else lane.after
        return not self._is_suspect(lane) and needed > self._told.get(lane.at, 0)

    @property
    def _one_by_one(self) -> bool:
        return self._options.max_attempts == 1

    def _begun(self, lane: Lane) -> int:
        """Up to where records of the lane may be begun before the group hears of it again."""
        return lane.done if self._one_by_one else lane.after

    def _ahead(self, lane: Lane) -> int:
        """Up to where the group is told that records are handed out."""
        if self._one_by_one and not lane.finished:
            return lane.record.offset + 1
        return lane.after + AHEAD_OFFSETS

    def _is_due(self, lane: Lane) -> bool:
        """Whether there is something to tell the group before a worker may have it."""
        if lane.busy or lane.step == "ready" or lane.rests_until > self._clock.monotonic():
            return False
        waits = lane.step == "begin" and self._suspect not in (None, lane) and self._is_suspect(lane)
        return self._lanes.get(lane.at) is lane and not waits

    def _advance(self, lane: Lane) -> Program[None]:
        """Goes on until a worker may have the lane, or it has to wait."""
        while self._is_due(lane):
            try:
                yield from self._tell(lane)
            except Fenced as error:
                # A commit is refused too, and by that the membership ends; the next look at the news drops the lanes.
                _log.warning("%s: %s", _place(lane), error)
                yield from self._try_to_commit({lane.at: readable(lane.state, lane.done)}, 0)
                lane.rests_until = self._clock.monotonic() + BACKOFF_MS_MAX / 1000
                return
            except SiltlogError as error:
                if self._has_lost_records(lane, error):
                    continue
                self._put_off(lane, error)
                return
            lane.troubled_since = None

    def _tell(self, lane: Lane) -> Program[None]:
        if lane.step == "begin":
            if self._suspect is lane:
                yield from self._commit(lane, max(self._begun(lane), lane.state.delivered or 0))
                self._suspect = None
            elif lane.finished:
                if self._one_by_one and lane.done != lane.state.committed:
                    # It would pass for one that ended its consumer.
                    yield from self._commit(lane, lane.done)
                self._leave(lane)
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
            if self._suspect is lane:
                self._suspect = None
            if lane.attempts >= self._options.max_attempts:
                lane.step = "bury"
            else:
                lane.step = "begin"
                pause = self._options.backoff_s(max(lane.attempts, 1), self._jitter())
                lane.rests_until = self._clock.monotonic() + pause
        else:
            yield from self._bury(lane)

    def _count_before(self, lane: Lane) -> Program[None]:
        """The record may have ended a consumer: it is counted, with nothing uncommitted before it."""
        if lane.done != lane.state.committed:
            yield from self._commit(lane, max(self._begun(lane), lane.state.delivered or 0))
        reply = yield from calls.count_attempt(self._named(lane), self._options.max_attempts)
        lane.attempts, lane.counted = reply["attempts"], True
        # Told of alone, it was begun: its only attempt is what was counted now.
        had_one = self._one_by_one and lane.record.offset + 1 == lane.state.delivered
        if not (reply["spent"] or had_one):
            self._suspect, lane.step = lane, "ready"
        else:
            lane.error = lane.error or "its consumer ended, or lost the partition, while it was handled"
            lane.step = "bury"

    def _is_suspect(self, lane: Lane) -> bool:
        return lane.state.delivered is not None and not lane.finished and lane.record.offset < lane.state.delivered

    def _count(self, lane: Lane) -> Program[int]:
        reply = yield from calls.count_attempt(self._named(lane))
        attempts: int = reply["attempts"]
        return attempts

    def _bury(self, lane: Lane) -> Program[None]:
        record = lane.record
        if lane.done != lane.state.committed:
            # What was begun before it must not be open any more.
            yield from self._commit(lane, max(self._begun(lane), self._told.get(lane.at, 0)))
        yield from calls.bury(self._named(lane), lane.error)
        _log.error("%s offset %d is a dead letter: %s", _place(lane), record.offset, lane.error)
        self._inbox.positions.committed({lane.at: record.offset + 1})
        self._pass(lane)

    def _has_lost_records(self, lane: Lane, error: SiltlogError) -> bool:
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

    def _pass(self, lane: Lane) -> None:
        lane.error = ""
        lane.passed()
        self._inbox.finish(lane.at, lane.done)
        lane.step = "begin"

    def _named(self, lane: Lane) -> calls.GroupRecord:
        member = self._member
        assert self._inbox.options.group is not None
        return calls.GroupRecord(
            self._inbox.options.group, member.member_id, member.generation, lane.at, lane.record.offset
        )

    def _commit(self, lane: Lane, told: int) -> Program[None]:
        offset = readable(lane.state, lane.done)
        told = max(told, offset)
        yield from self._inbox.commit({lane.at: offset}, 0, {lane.at: told})
        self._told[lane.at] = told

    def _try_to_commit(
        self,
        offsets: dict[TopicPartition, int],
        retry_timeout_ms: int,
        delivered: dict[TopicPartition, int] | None = None,
    ) -> Program[None]:
        try:
            yield from self._inbox.commit_what_is_there(offsets, retry_timeout_ms, delivered)
        except SiltlogError as error:
            _log.warning("what is done could not be committed now: %s", error)

    def _put_off(self, lane: Lane, error: SiltlogError) -> None:
        """The group could not be told: again in a moment, until `retry_timeout_ms` are over."""
        now = self._clock.monotonic()
        if error.error_code in TOPIC_GONE_CODES:
            # The group is about to take the partition away.
            lane.rests_until = now + BACKOFF_MS_MAX / 1000
            return
        lane.troubled_since = lane.troubled_since or now
        waited = now - lane.troubled_since
        if error.retryable == "no" or waited * 1000 > self._inbox.options.retry_timeout_ms:
            lane.troubled_since = None
            raise error
        lane.rests_until = now + (error.retry_after_ms or BACKOFF_MS_MAX) / 1000

    def _put_off_commit(self) -> None:
        options = self._inbox.options
        if not options.commits_by_itself:
            self._commit_at = self._clock.monotonic() + options.auto_commit_interval_ms / 1000


def _place(lane: Lane) -> str:
    return f"{lane.at.topic}/{lane.at.partition}"


def _said_of(error: Exception) -> str:
    """Its name and message, whatever they are: what a handler raises must not end the run."""
    text = traceback.format_exception_only(error)[-1].strip()
    return text.encode("utf-8", "replace").decode()[:ERROR_CHARS_MAX]
