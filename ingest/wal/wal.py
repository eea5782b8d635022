"""The write-ahead log of a node: what every acknowledgement stands on.

submit()                      any thread; puts frames in line and decides when a segment is full
  -> writer thread            joins what waits into one entry, writes, calls every `written`, syncs, calls every `done`
SegmentPool                   its own thread; has the next segment ready
trim()                        gives segments back whose records are all in tables
"""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.settings.fit import SEGMENTS_MIN
from siltlog.ingest.wal.budget import Budget
from siltlog.ingest.wal.codec import (
    ENTRY_BYTES,
    HEADER_BYTES,
    MARKER_BYTES,
    Frame,
    Location,
    Position,
    aligned,
    encode_entry,
    frame_bytes,
    marker_frame,
    state_frame,
)
from siltlog.ingest.wal.disk import BLOCK_BYTES, MIB, Disk, out_of_space
from siltlog.ingest.wal.live_segments import LiveSegments, TableOffsets
from siltlog.ingest.wal.pool import SegmentPool
from siltlog.ingest.wal.recovery import Recovery, Scan
from siltlog.ingest.wal.scan import scan
from siltlog.ingest.wal.segment import Partition, Segment, SegmentFiles, file_bytes_for, segment_room

MARKER_IDLE_MS = 20
SEGMENT_BYTES_MIN = 16 * 1024
STATE_SHARE_OF_SUBMIT = 4


@dataclass(slots=True)
class _Submit:
    frames: Sequence[Frame]
    done: Callable[[list[Location]], None]
    size: int
    state: bytes | None
    """Set on the first of a segment."""
    file_bytes: int
    """The size of that segment; 0 without a state."""
    written: Callable[[], None] | None


class Wal:
    """One log in one folder, which no other process may use at the same time (the data dir's lock sees to that).

    `state(bytes_max)` gives everything the log's user must find again and cannot read in the records, in at most so
    many bytes where it can: it goes into the first entry of every segment, behind the frames of the submit that opened
    it, so that older segments can be given up. It is called inside that submit, on its thread, and must describe
    exactly the frames submitted so far, those of this submit included: so what was sequenced is submitted before more
    is sequenced, by one thread or under one lock. It must not call the log.

    `on_fatal(error)` is called once, from any thread, when a write or sync failed. From then on nothing is acknowledged
    and every submit raises; the process has to end, and a new one finds out what is on the disk.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int,
        bytes_max: int,
        cluster_id: str,
        on_fatal: Callable[[BaseException], None],
        state: Callable[[int], bytes],
        clock: Clock,
        marker_idle_ms: int = MARKER_IDLE_MS,
        disk: Disk | None = None,
    ) -> None:
        segment_bytes -= segment_bytes % BLOCK_BYTES
        assert segment_bytes >= SEGMENT_BYTES_MIN
        self.submit_bytes_max = segment_room(segment_bytes) * 3 // 4
        """The most that `log_bytes` of one submit should be; the rest of a segment is for the state."""
        self.state_room = segment_room(segment_bytes) - self.submit_bytes_max
        """The bytes that a state may take so that any submit has room beside it."""
        self.state_bytes_max = self.submit_bytes_max // STATE_SHARE_OF_SUBMIT
        """The most that a state should take, so that a segment has room for records behind it."""
        self._directory = directory
        self._cluster_id = cluster_id
        self._on_fatal = on_fatal
        self._state = state
        self._marker_idle_seconds = marker_idle_ms / 1000
        self._disk = disk or Disk()
        self._files = SegmentFiles(
            directory, self._disk, segment_bytes=segment_bytes, cluster_id=cluster_id, clock=clock
        )
        self._pool = SegmentPool(self._files, self._disk, on_error=self.fail)
        self._lock = threading.Lock()
        self._budget = Budget(segment_bytes=segment_bytes, bytes_max=bytes_max, submit_bytes_max=self.submit_bytes_max)
        self.bytes_max = bytes_max
        """What it may take of the disk."""
        self._error: BaseException | None = None
        self._closed = False
        self._scan: Scan | None = None
        self._segments = LiveSegments(self._disk)
        self._planned_segment = 0
        # The writer's own, after start().
        self._active: Segment
        self._end = 0
        self._synced = Position(0, 0)
        self._queue: queue.SimpleQueue[_Submit | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._run, name="wal-writer", daemon=True)

    def recover(self, *, accept_loss: bool = False) -> Recovery:
        """Reads and checks the log; changes nothing. Raises CorruptData, ConfigError (see `scan`)."""
        found = scan(self._directory, self._cluster_id, accept_loss=accept_loss)
        # Segments were read whole, and Arrow would keep the memory of two of them for as long as the process lives.
        pa.default_memory_pool().release_unused()
        self._scan = found
        state, before = found.state()
        return Recovery(state, before, found.notes, found.cuts, found)

    def start(self) -> None:
        """Begins a new segment with `state` and all that may be in the page cache only, synced on return.

        Called once, after `recover`, when `state` describes all that it gave back. Killed at any point, it leaves a
        log that gives the same at the next recovery. Raises Unavailable (`disk_full`), OSError, and ConfigError where
        the state of a run with larger segments leaves too little of these.
        """
        found = self._scan
        assert found is not None and not self._segments, "recover() first, and start() once"
        self._scan = None
        start = found.start
        state = self._state(self.state_bytes_max)
        self._check_room(len(state))
        self._directory.mkdir(exist_ok=True)
        self._disk.sync_folder(self._directory.parent)
        self._files.adopt(found.empty)
        first = [*found.frames_to_copy(), state_frame(state)]
        needed = ENTRY_BYTES + sum(frame_bytes(frame.payload_bytes) for frame in first)
        # Larger than usual when the last run had larger segments.
        size = file_bytes_for(needed, self._files.segment_bytes)
        number = start.segment + 1
        synced = start if start.segment else None
        try:
            self._active, self._end, _ = self._files.make(number, first, synced=synced, size_bytes=size)
        except OSError as error:
            if out_of_space(error):
                raise problem(
                    "disk_full",
                    f"the disk that holds {self._directory} is full, and the write-ahead log needs {size} bytes "
                    "to start: free some space",
                ) from error
            raise
        for kept in found.kept():
            fd = self._disk.open(kept.path)
            segment = Segment(kept.path, kept.number, fd, kept.size_bytes, kept.seed, mapped=True)
            segment.ends = kept.ends
            self._segments.add(segment)
        self._segments.add(self._active)
        self._synced = Position(number, self._end)
        self._planned_segment = number
        self._budget.file_bytes = sum(kept.size_bytes for kept in found.kept())
        self._budget.begin(size, frame_bytes(len(state)))
        self._budget.room = segment_room(size) + HEADER_BYTES - self._end
        self._pool.start(number + 1)
        self._writer.start()

    def _check_room(self, state_bytes: int) -> None:
        """Raises ConfigError where not even half of a segment is left for what is submitted."""
        size = self._files.segment_bytes
        if frame_bytes(state_bytes) > segment_room(size) // 2:
            wanted = MIB * -(-STATE_SHARE_OF_SUBMIT * state_bytes // MIB)
            raise ConfigError(
                f"what the write-ahead log in {self._directory} knows of topics, producers and idempotency keys takes "
                f"{state_bytes} bytes, more than half of a segment of {size}: set SILT_WAL_SEGMENT_BYTES to {wanted} "
                f"or more, and SILT_WAL_BYTES_MAX, which is {self.bytes_max}, to {SEGMENTS_MIN} times that at least, "
                f"{SEGMENTS_MIN * wanted}"
            )

    def close(self) -> None:
        """Writes what waits, then a marker; stops the threads. Nothing may be submitted any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._pool.closing()
        if self._writer.ident is not None:
            self._queue.put(None)
            self._writer.join()
        self._pool.stop()
        self._segments.close()

    @staticmethod
    def log_bytes(payload_bytes: int, frames: int = 1) -> int:
        """The most that a submit of `frames` frames with `payload_bytes` together takes: so much is reserved."""
        return ENTRY_BYTES + MARKER_BYTES + frames * frame_bytes(0) + aligned(payload_bytes) + frames * 8

    def submit(
        self,
        frames: Sequence[Frame],
        done: Callable[[list[Location]], None],
        written: Callable[[], None] | None = None,
    ) -> None:
        """Puts `frames` in line: one entry takes all of them. `done(locations)` is called on the writer thread once
        they are durable, in the order of submits; it must not block or raise. Nor may `written()`, which is called
        before, once the operating system has them: they survive the end of the process, not of the machine.

        Never fails for lack of budget, nor for its size: what a usual segment has no room for, beside the state, begins
        a larger one, and all that comes after it waits until its file is made. Raises Unavailable after a failure or
        close; then nothing was submitted.
        """
        size = ENTRY_BYTES + MARKER_BYTES
        for frame in frames:
            size += frame_bytes(frame.payload_bytes)
        with self._lock:
            self._check_open()
            state, file_bytes = self._begin_segment(size) if size > self._budget.room else (None, 0)
            self._budget.room -= size
            self._queue.put(_Submit(frames, done, size, state, file_bytes, written))

    def check_disk(self, payload_bytes: int) -> None:
        """Raises Unavailable `disk_full` where so much in one frame asks for a segment larger than usual, and the disk
        has no space for it. Blocks.

        What need not be submitted asks this first: a file that cannot be made keeps all that comes after it waiting.
        """
        usual = self._files.segment_bytes
        file_bytes = file_bytes_for(self.log_bytes(payload_bytes) + self._budget.state_bytes, usual)
        # Beside it the next usual one still has its place.
        if file_bytes > usual and self._disk.free_bytes(self._directory) < file_bytes + usual:
            raise problem(
                "disk_full",
                f"the disk that holds {self._directory} has no space for a segment of {file_bytes} bytes: free some",
            )

    def roll(self) -> int:
        """Begins a segment, so that nothing that is submitted from now on lies in one that is there; its number.

        It may be one above the budget. Raises Unavailable after a failure or close.
        """
        size = ENTRY_BYTES + MARKER_BYTES
        with self._lock:
            self._check_open()
            state, file_bytes = self._begin_segment(size)
            self._budget.room -= size
            self._queue.put(_Submit((), _nothing, size, state, file_bytes, None))
            return self._planned_segment

    def discard_used(self) -> None:
        """Deletes the files of segments that were given up, and has none used again until `reuse` (blocking)."""
        self._pool.discard()

    def reuse(self) -> None:
        """Has the files of segments that are given up become others again."""
        self._pool.reuse()

    def has_below(self, number: int) -> bool:
        """Whether the files of segments below `number` are still there; those given up without `reuse` go soon."""
        return self._segments.has_below(number) or self._pool.has_returned

    def _begin_segment(self, size: int) -> tuple[bytes, int]:
        """Plans a segment that has room for a submit of `size`: its state, and the bytes of its file."""
        state = self._state(self.state_bytes_max)
        state_bytes = frame_bytes(len(state))
        file_bytes = file_bytes_for(state_bytes + size, self._files.segment_bytes)
        self._planned_segment += 1
        self._budget.begin(file_bytes, state_bytes)
        return state, file_bytes

    def _check_open(self) -> None:
        if self._error is not None:
            raise problem(
                "shutting_down", f"the write-ahead log failed and the server stops: {self._error}"
            ) from self._error
        if self._closed or not self._segments:
            raise problem("shutting_down", "the write-ahead log is closed")

    def fail(self, error: BaseException) -> None:
        """Ends the log as a failed write does; for its user, when what it sequenced can no longer be submitted."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        self._on_fatal(error)

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except BaseException as error:
            self.fail(error)

    def _write_until_closed(self) -> None:
        marked = False
        first: _Submit | None = None
        held = False
        while True:
            if not held:
                try:
                    first = self._queue.get(timeout=None if marked else self._marker_idle_seconds)
                except queue.Empty:
                    self._write_marker()
                    marked = True
                    continue
            if first is None:
                break
            group, first, held = self._gather(first)
            if group[0].state is not None and not self._go_on_to_next(group[0].file_bytes):
                return
            self._commit(group)
            marked = False
        if not marked:
            self._write_marker()

    def _gather(self, first: _Submit) -> tuple[list[_Submit], _Submit | None, bool]:
        """Gathers what can go into one entry, and gives what was taken out already but has to come after it."""
        group = [first]
        size = first.size
        while True:
            try:
                after = self._queue.get_nowait()
            except queue.Empty:
                return group, None, False
            if after is None or after.state is not None or size + after.size > self.submit_bytes_max:
                return group, after, True
            group.append(after)
            size += after.size

    def _commit(self, group: list[_Submit]) -> None:
        frames: Sequence[Frame] = group[0].frames
        state = group[0].state
        if state is not None:
            frames = [*frames, state_frame(state)]
        if len(group) > 1:
            frames = list(frames)
            for submit in group[1:]:
                frames.extend(submit.frames)
        length, locations = self._append(frames, [submit.written for submit in group if submit.written is not None])
        self._segments.note(self._active, frames)
        planned = sum(submit.size for submit in group)
        if state is not None:
            planned += frame_bytes(len(state))
        with self._lock:
            if self._error is not None:
                return
            if self._planned_segment == self._active.number:
                self._budget.room += planned - length
        at = 0
        for submit in group:
            end = at + len(submit.frames)
            submit.done(locations[at:end])
            at = end if submit.state is None else end + 1

    def _append(
        self, frames: Sequence[Frame], written: Sequence[Callable[[], None]] = ()
    ) -> tuple[int, list[Location]]:
        """Writes one entry, tells `written`, and syncs it: its length, and where each payload lies."""
        segment = self._active
        start = Position(segment.number, self._end)
        buffers, length, locations = encode_entry(frames, start=start, seed=segment.seed, synced=self._synced)
        assert self._end + length <= segment.size_bytes
        self._disk.write(segment.fd, buffers, self._end)
        for tell in written:
            tell()
        self._disk.sync(segment.fd)
        self._end += length
        self._synced = Position(segment.number, self._end)
        return length, locations

    def _write_marker(self) -> None:
        length, _ = self._append([marker_frame()])
        with self._lock:
            if self._planned_segment == self._active.number:
                self._budget.room -= length

    def _go_on_to_next(self, file_bytes: int) -> bool:
        """Seals the active segment and makes the next one active; False when the log is stopping."""
        self._append([marker_frame()])
        segment = self._pool.take(file_bytes)
        if segment is None:
            return False
        self._segments.add(segment)
        with self._lock:
            self._active = segment
        self._end = HEADER_BYTES
        return True

    def reserve(self, size: int) -> bool:
        """Keeps `size` bytes (`log_bytes`) of the budget, or says that there are too few left.

        Give them back with `unreserve` right after the submit they were for, or when nothing comes of it.
        """
        with self._lock:
            return self._budget.reserve(size, self._segments_ready())

    def unreserve(self, size: int) -> None:
        with self._lock:
            self._budget.unreserve(size)

    def reconfigure(self, bytes_max: int) -> None:
        """It may take so much of the disk from now on; its segments stay as large as they are."""
        with self._lock:
            self._budget.reconfigure(bytes_max)
            self.bytes_max = bytes_max

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return self._budget.used_bytes()

    @property
    def free_bytes(self) -> int:
        with self._lock:
            return self._budget.free_bytes(self._segments_ready())

    @property
    def segment_bytes(self) -> int:
        return self._files.segment_bytes

    @property
    def disk_full(self) -> bool:
        """Whether the next segment cannot be made: only what is there already counts as free."""
        return self._pool.disk_full

    def _segments_ready(self) -> int | None:
        return self._pool.segments_ready if self._pool.disk_full else None

    def hold(self, number: int) -> bool:
        """Keeps segment `number` from being recycled until `release`; False when it is gone already."""
        return self._segments.hold(number)

    def release(self, number: int) -> None:
        self._segments.release(number)

    def read(self, location: Location) -> pa.Buffer:
        """The payload at `location`. Raises SegmentGone, CorruptData."""
        return self._segments.read(location)

    def can_trim(self, table_offsets: TableOffsets) -> bool:
        """Whether `trim` would give up anything."""
        return self._segments.can_give_up(self._synced.segment, table_offsets)

    def trim(self, table_offsets: TableOffsets) -> int:
        """Gives up the oldest segments of which every record lies below its partition's table offset: how many.

        Stops at the first that is held, or that has one which is not (`oldest_pinning`). CONTROL frames keep none: the
        state in a later segment has what they said.
        """
        # Only below a synced entry of a later segment is there a later state that is synced.
        freed = self._segments.give_up(self._synced.segment, table_offsets)
        if freed:
            with self._lock:
                self._budget.give_back(sum(segment.size_bytes for segment in freed))
            self._pool.give_back(freed)
        return len(freed)

    def unpin(self, topic_id: bytes, partition: int, before_segment: int) -> None:
        """Says that every record of a partition that is still needed was written again, from `before_segment` on."""
        self._segments.unpin((topic_id, partition), before_segment)

    def oldest_pinning(self, table_offsets: TableOffsets | None = None) -> list[Partition]:
        """Lists the (topic id, partition) that keep the oldest segment; none when it is the active one.

        Without table offsets: all that have records in it.
        """
        return self._segments.pinning(self._synced.segment, table_offsets)


def _nothing(_: list[Location]) -> None:
    """Hears of what nobody waits for."""
