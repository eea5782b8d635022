"""Records of one partition on their way through a handler, one after the other."""

from collections.abc import Callable
from typing import Literal

from siltlog.consumers.library.positions import Run
from siltlog.consumers.library.record import ConsumerRecord, records_of
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock

SLICE_S = 0.1
"""How long a worker stays with one partition while others wait."""
LOOK_S = 0.002
"""How often it is asked, between two records, whether there is something else to do."""

Step = Literal["begin", "ready", "failed", "bury", "over"]
"""A lane's next step: tell the group of it; run the handler; count the failure; give up the record; nothing."""
Handle = Callable[[ConsumerRecord], object]
"""A handler of one record; an AsyncConsumer awaits what it returns, where it can be awaited."""


class PartitionLane:
    """A run of records of one partition, handled in order.

    A worker changes `begun`, `index`, `attempts`, `counted` and `started`, and what is `done` of the partition; all
    else changes only while the lane is not `busy`.
    """

    __slots__ = (
        *(
            "after",
            "at",
            "attempts",
            "begun",
            "busy",
            "counted",
            "error",
            "index",
            "records",
            "rests_until",
            "run",
        ),
        *("single", "started", "state", "step", "stopping", "troubled_since"),
    )

    def __init__(self, run: Run, after: int) -> None:
        """`after` is where the partition goes on behind the run."""
        self.run = run
        self.state = run.state
        self.at: TopicPartition = run.state.at
        self.records = records_of(self.at.topic, self.at.partition, run.rows)
        self.after = after
        self.index = 0
        """Index of the record that is next, or being handled."""
        self.step: Step = "begin"
        self.busy = False
        self.begun = False
        """A worker has come to it: what is only on its way to one may never arrive, if the run is interrupted."""
        self.single = False
        """One record only, then the group is told."""
        self.stopping = False
        """No further record is begun."""
        self.started = 0.0
        """When the record that is being handled was begun (monotonic seconds)."""
        self.attempts = 0
        """At the record that is next, as far as they were counted."""
        self.counted = False
        """The attempt that is next, or under way, is among them already."""
        self.error = ""
        self.rests_until = 0.0
        self.troubled_since: float | None = None

    @property
    def finished(self) -> bool:
        return self.index == len(self.records)

    @property
    def is_left(self) -> bool:
        """Whether its partition goes on elsewhere: it was sought, or let go."""
        return self.state.lane is not self

    @property
    def done(self) -> int:
        """The offset below which everything was handled."""
        index = self.index
        return self.after if index == len(self.records) else self.records[index].offset

    @property
    def handed_out(self) -> int:
        """Up to where the handler was given records, with the one that it has."""
        index = self.index
        return self.records[index].offset + 1 if self.busy and index < len(self.records) else self.done

    @property
    def upcoming(self) -> ConsumerRecord | None:
        index = self.index + self.busy
        return self.records[index] if index < len(self.records) else None

    @property
    def waits_for_resume(self) -> bool:
        """Whether only the pause of its partition keeps it from a worker."""
        return self.state.paused and not self.busy and self.step in ("begin", "ready")

    def may_begin(self, now: float) -> bool:
        """Whether its record may be handed to a worker, once the group is told."""
        return not (self.busy or self.state.paused) and self.rests_until <= now

    @property
    def record(self) -> ConsumerRecord:
        """The one that is next; not of a finished lane."""
        return self.records[self.index]

    def passed(self) -> None:
        """The record that was next is handled, or given up."""
        self.attempts = 0
        self.counted = False
        self.index = index = self.index + 1
        if not self.is_left:
            self.state.done = self.after if index == len(self.records) else self.records[index].offset

    def keep_one(self) -> Run | None:
        """Lets go of all but the record that is next, and returns what comes behind it; None where nothing does."""
        run, index, others = self.run, self.index, len(self.records) - self.index - 1
        behind = None
        if others:
            nbytes = run.nbytes * others // len(self.records)
            behind = run._replace(rows=run.rows.slice(index + 1), nbytes=nbytes)
            self.after = self.records[index + 1].offset
        # Copied: a slice would hold all that was fetched with it.
        rows = run.rows.take([index])
        self.run = run._replace(rows=rows, after=self.after, nbytes=rows.nbytes)
        self.records = self.records[index : index + 1]
        self.index = 0
        return behind

    def rest(self) -> Run:
        """Returns the records that were not handled, in the form in which they were taken."""
        nbytes = self.run.nbytes * (len(self.records) - self.index) // len(self.records)
        return self.run._replace(rows=self.run.rows.slice(self.index), nbytes=nbytes)


def work(
    lane: PartitionLane,
    handle: Handle,
    clock: Clock,
    halts: Callable[[PartitionLane], bool],
    interrupted: Callable[[], bool],
) -> BaseException | None:
    """Handles records of a lane until one fails, its time is over, or it is to stop; what the handler raised."""
    lane.begun = True
    now = clock.monotonic()
    ends, looks_at = now + SLICE_S, now + LOOK_S
    try:
        for record in lane.records[lane.index :]:
            if halts(lane):
                break
            lane.started = now
            handle(record)
            lane.passed()
            now = clock.monotonic()
            if lane.single or now >= ends:
                break
            if now >= looks_at:
                if interrupted():
                    break
                looks_at = now + LOOK_S
    except BaseException as error:
        return error
    return None
