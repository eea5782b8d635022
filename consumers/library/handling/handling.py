"""Records through a handler: which lane a worker is to have next, and what its end means. No IO.

Each partition has one lane at a time, so its order is kept; a lane whose record failed rests, and others go on. What
the group is told of all this is in `attempts.py`.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from siltlog.consumers.library.commits import LAST_COMMIT_MS
from siltlog.consumers.library.handling.attempts import Attempts
from siltlog.consumers.library.handling.partition_lane import PartitionLane
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.options import HandlingOptions
from siltlog.consumers.library.positions import readable
from siltlog.consumers.library.program import Program
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import problem

CHUNK_RECORDS = 500
"""How many records of a partition are taken at a time."""
LANES_PER_WORKER = 4


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
        self.options = options
        self._clock = clock
        self._lanes: dict[TopicPartition, PartitionLane] = {}
        """Lanes in the order of their turns."""
        self._strays: list[PartitionLane] = []
        """Still busy, of partitions that are another's or came anew meanwhile."""
        self._outcomes: deque[tuple[PartitionLane, BaseException | None]] = deque()
        self._fatal: BaseException | None = None
        """What a handler raised that is no Exception, until it is raised here."""
        self._busy = 0
        """How many lanes a worker has."""
        jitter = jitter or random.Random().random  # noqa: S311
        self._attempts = Attempts(inbox, inbox.member, options, clock, jitter, self._lanes)
        self._commit_at = math.inf
        self._put_off_commit()

    def startable(self) -> PartitionLane | None:
        """The next lane, if a worker is free for it; from now on it is busy."""
        if self._busy == self.options.workers or self._fatal is not None:
            return None
        now = self._clock.monotonic()
        away = {lane.at for lane in self._strays}
        # A suspect first: whatever else ends the consumer meanwhile is held against it.
        first = [] if self._attempts.suspect is None else [self._attempts.suspect]
        for lane in (*first, *self._lanes.values()):
            if lane.step == "ready" and lane.may_begin(now) and lane.at not in away:
                lane.busy, lane.begun = True, False
                self._busy += 1
                lane.single = self._attempts.is_single(lane)
                lane.started = now
                return lane
        return None

    def halts(self, lane: PartitionLane) -> bool:
        """Whether a worker that has the lane is to begin no further record of it."""
        return lane.stopping or lane.is_left or lane.state.paused or self._inbox.closing

    def finished(self, lane: PartitionLane, error: BaseException | None) -> None:
        """A worker has let go of the lane. From any thread; the next `attend` takes it in."""
        self._outcomes.append((lane, error))

    def has_outcomes(self) -> bool:
        return bool(self._outcomes) or self._fatal is not None

    def within_run(self) -> AbstractContextManager[None]:
        """What a worker's thread does in here is a part of the run."""
        return self._inbox.within_run()

    def has_news(self) -> bool:
        """Whether a worker that reads as well is to look at the inbox."""
        return self._inbox.has_news

    def at_work(self, lanes: Iterable[PartitionLane]) -> bool:
        """Whether a worker has begun with one of these, which are stopped: with others it begins no more."""
        back = [lane for lane, _ in self._outcomes]
        return any(lane.busy and lane.begun and lane not in back for lane in lanes)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to handle."""
        return not self._strays and all(lane.waits_for_resume for lane in self._lanes.values())

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
        self.raise_fatal()
        yield from self._inbox.attend()
        now = self._clock.monotonic()
        if now >= self._commit_at:
            self._put_off_commit()
            yield from self._inbox.commits.try_to_commit(self._inbox.positions.uncommitted(), 0)
        self._fill()
        yield from self._attempts.tell_ahead([lane for lane in self._lanes.values() if lane.may_begin(now)])
        while due := [lane for lane in self._lanes.values() if self._attempts.is_due(lane)]:
            for lane in due:
                yield from self._attempts.advance(lane)
                if lane.step == "over":
                    self._leave(lane)
        paused = [lane.at for lane in self._lanes.values() if lane.waits_for_resume and not lane.counted]
        if paused:
            yield from self.release(paused)

    def raise_fatal(self) -> None:
        """Raises what a handler raised that ends the run."""
        error, self._fatal = self._fatal, None
        if error is not None:
            raise error

    def stop(self, partitions: Iterable[TopicPartition] | None = None) -> list[PartitionLane]:
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
            told = self._attempts.take_told(at)
            if lane is not None and lane.step == "bury":
                # It may be a dead letter already, and passed.
                continue
            if lane is not None and lane.busy:
                offsets[at] = done
            elif done != state.committed or told > done:
                # What a former holder left uncommitted stays suspect.
                offsets[at], delivered[at] = done, max(done, state.delivered or 0)
        yield from self._inbox.commits.try_to_commit(offsets, LAST_COMMIT_MS, delivered)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """They are another's; nothing of them is done any more."""
        self._take_outcomes()
        for at in partitions:
            self._give_up(at)
            self._attempts.take_told(at)

    def _give_up(self, at: TopicPartition) -> None:
        """The lane goes; what it has not handled is to be handed out again."""
        lane = self._lanes.pop(at, None)
        if lane is None:
            return
        has_rest = not (lane.finished or lane.is_left)
        lane.stopping = True
        self._leave_behind(lane)
        if lane.busy:
            self._strays.append(lane)
        if has_rest and self._inbox.positions.states.get(at) is lane.state:
            self._inbox.positions.give_back(lane.rest())
            lane.state.position = lane.done

    def _take_outcomes(self) -> None:
        while self._outcomes:
            lane, error = self._outcomes[0]
            # First: interrupted behind the other, nobody would hear any more that its worker is back.
            lane.busy = False
            self._outcomes.popleft()
            self._busy -= 1
            if lane in self._strays:
                self._strays.remove(lane)
                continue
            self._lanes[lane.at] = self._lanes.pop(lane.at)
            if isinstance(error, Exception):
                self._attempts.failed(lane, error)
                if not lane.is_left:
                    self._shorten(lane)
            elif error is not None:
                self._fatal = self._fatal or error
            elif lane.finished and lane is not self._attempts.suspect and not self._attempts.one_by_one:
                self._leave(lane)
            else:
                lane.step = "begin"

    def _shorten(self, lane: PartitionLane) -> None:
        """A lane that rests keeps one record: as many as there are partitions may rest at once."""
        behind, positions = lane.keep_one(), self._inbox.positions
        if behind is not None and positions.states.get(lane.at) is lane.state:
            positions.give_back(behind)
            lane.state.position = lane.after

    def _leave(self, lane: PartitionLane) -> None:
        self._leave_behind(lane)
        del self._lanes[lane.at]

    def _leave_behind(self, lane: PartitionLane) -> None:
        lane.state.held = False
        if not lane.is_left:
            lane.state.lane = None
        self._attempts.forget(lane)

    def _fill(self) -> None:
        """Gives partitions that have records and no lane one."""
        for lane in [lane for lane in self._lanes.values() if lane.is_left and not lane.busy]:
            self._leave(lane)
        now, resting_bytes = self._clock.monotonic(), 0
        for lane in self._lanes.values():
            rests = lane.rests_until > now
            resting_bytes += lane.run.nbytes if rests else 0
            # What rests is not read on: where room is needed, what was read of it goes, and would come again at once.
            lane.state.held = rests or lane.state.runs > 0
        active = sum(lane.rests_until <= now and not lane.waits_for_resume for lane in self._lanes.values())
        # What the group is told of alone is begun at once.
        per_worker = 1 if self._attempts.one_by_one else LANES_PER_WORKER
        while active < per_worker * self.options.workers and resting_bytes <= self._inbox.options.buffer_bytes:
            run = self._inbox.next_run(CHUNK_RECORDS)
            if run is None:
                return
            self._inbox.positions.handed_out(run)
            lane = self._lanes[run.state.at] = run.state.lane = PartitionLane(run, run.state.position)
            lane.state.held = run.state.runs > 0
            active += 1

    def _put_off_commit(self) -> None:
        options = self._inbox.options
        if not options.commits_by_itself:
            self._commit_at = self._clock.monotonic() + options.auto_commit_interval_ms / 1000
