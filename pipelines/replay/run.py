"""One process at a run of a replay: a few partitions of the source at a time, each in order and by its own producer.

Whoever sat down last has the run. A process that was overtaken may claim a partition once more before it sees that, so
who has the run and is fenced claims again and goes on.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue

from siltlog.infra import names, producer_names
from siltlog.infra.client.core import json_request
from siltlog.infra.client.increasing import IncreasingProducer
from siltlog.infra.clock import Clock
from siltlog.infra.errors import Fenced, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.replay.plan import ReplayPlan, read_progress, resume_from, write_progress
from siltlog.pipelines.replay.publish import PartitionReplay, Sending, Stopped
from siltlog.pipelines.replay.query import matching, remove_matches
from siltlog.pipelines.replay.range import Slice, records_of, version_named

PARTITIONS_AT_ONCE = 4
"""While one waits for its answer, others are read and made ready."""
BEGUN_AT_ONCE = 32
"""How many partitions are noted as begun with one write."""
PROGRESS_S = 1.0
_MS = 1_000


class ReplayRun:
    def __init__(
        self,
        store: ObjectStore,
        run: str,
        plan: ReplayPlan,
        snapshot: TableSnapshot,
        sending: Sending,
        clock: Clock,
        arrived: Callable[[int], None],
    ) -> None:
        """`arrived` is called with how many more records have; never twice at once."""
        self._store = store
        self._run = run
        self._plan = plan
        self._snapshot = snapshot
        self._sending = sending
        self._clock = clock
        self._arrived = arrived
        self._seat = IncreasingProducer(
            sending.caller, plan.into.topic, producer_names.replay_run_seat(run), compression=sending.compression
        )
        self._lock = threading.Lock()
        """Guards the progress and `arrived`."""
        self._progress = read_progress(store, run)
        self._written = clock.monotonic()
        self._known = dict(self._progress.next_offsets)
        """The partitions that an earlier process had begun, and how far each was."""
        self._stale_ms = self._silent_ms()

    def go(self, slices: Sequence[Slice]) -> None:
        """Runs to the end. Raises Fenced when another process took the run over, and what reading and publishing
        raise."""
        if self._progress.finished:
            return
        ends = {part.partition: part.end for part in slices}
        self._seat.claim()
        anew = f"look where run {self._run} ends in {self._plan.into.topic}, and begin a new run from there"
        with version_named(self._store, self._plan.topic, self._plan.version, self._clock, anew):
            if self._plan.selection.where is not None:
                slices = matching(self._store, self._plan.topic, self._snapshot, self._plan.selection, self._run)
            self._replay_all([part for part in slices if not self._is_done(part, ends)], ends)
        self._progress.finished = True
        self._write()
        if self._plan.selection.where is not None:
            remove_matches(self._store, self._plan.topic, self._run)

    def _is_done(self, part: Slice, ends: Mapping[int, int]) -> bool:
        return self._progress.next_offsets.get(part.partition, -1) >= ends.get(part.partition, part.end)

    def _replay_all(self, slices: Sequence[Slice], ends: Mapping[int, int]) -> None:
        """Replays the partitions on threads of their own, which an interrupt does not wait for."""
        waiting = self._noted(slices)
        taking = threading.Lock()
        ended: SimpleQueue[BaseException | None] = SimpleQueue()

        def work() -> None:
            try:
                while not self._sending.caller.interrupted.is_set():
                    with taking:
                        part = next(waiting, None)
                    if part is None:
                        break
                    self._replay(part, ends.get(part.partition, part.end))
            except Stopped:
                ended.put(None)
            except BaseException as error:
                ended.put(error)
            else:
                ended.put(None)

        count = min(PARTITIONS_AT_ONCE, len(slices))
        failed: BaseException | None = None
        try:
            for number in range(count):
                threading.Thread(target=work, name=f"replay-{number}", daemon=True).start()
            for _ in range(count):
                error = ended.get()
                if error is not None:
                    failed = failed or error
                    self._sending.caller.interrupted.set()
        except BaseException:
            self._sending.caller.interrupted.set()
            raise
        if failed is not None:
            raise failed

    def _noted(self, slices: Sequence[Slice]) -> Iterator[Slice]:
        """Each of `slices`, once it is written down that it may have been begun."""
        for first in range(0, len(slices), BEGUN_AT_ONCE):
            some = slices[first : first + BEGUN_AT_ONCE]
            with self._lock:
                starts = {part.partition: part.start for part in some}
                self._progress.next_offsets = {**starts, **self._progress.next_offsets}
                self._write()
            yield from some

    def _replay(self, part: Slice, end: int) -> None:
        while True:
            self._check_seat()
            try:
                self._publish(part)
                break
            except Fenced as error:
                # By who has the run now, or by who had it before and has not seen yet that it is lost.
                if error.error_code != "fenced_producer":
                    raise
        with self._lock:
            self._progress.next_offsets[part.partition] = end
            self._write_if_due()

    def _publish(self, part: Slice) -> None:
        replayed = PartitionReplay(self._sending, self._run, self._plan, part.partition)
        last = replayed.claim()
        known = self._known.get(part.partition)
        if known is not None and not last and (known > part.start or self._forgotten()):
            raise problem(
                "unknown_producer",
                f"run {self._run} stopped longer ago than producer.expiration.ms of topic {self._plan.into.topic}, "
                "which no longer knows what of it has arrived; look where it ends, and begin a new run from there",
            )
        start = resume_from(part.start, self._progress.next_offsets.get(part.partition), list(last.values()))
        replayed.publish(
            records_of(self._store, self._plan.topic, part, self._plan.selection, start=start),
            lambda records, upto: self._take(part, records, upto),
        )

    def _take(self, part: Slice, records: int, upto: int) -> None:
        with self._lock:
            self._progress.next_offsets[part.partition] = upto
            self._write_if_due()
            self._arrived(records)

    def _check_seat(self) -> None:
        if self._seat.overtaken():
            raise problem(
                "fenced_producer", f"another process has taken over this run, {self._run}, and goes on with it"
            )

    def _write_if_due(self) -> None:
        if self._clock.monotonic() - self._written > PROGRESS_S:
            self._write()

    def _write(self) -> None:
        write_progress(self._store, self._run, self._progress)
        self._written = self._clock.monotonic()

    def _silent_ms(self) -> int:
        """How long ago the run was last heard of."""
        info = self._store.info(names.replay_progress_object(self._run))
        return 0 if info is None else self._clock.now_us() // _MS - info.modified_ms

    def _forgotten(self) -> bool:
        """Whether what a partition had published may be unknown by now."""
        path = f"/v1/topics/{self._plan.into.topic}"
        config = self._sending.caller.call(json_request("GET", path)).json()["config"]
        return bool(self._stale_ms > int(config["producer.expiration.ms"]["value"]))
