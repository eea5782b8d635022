"""Prepares the next segment before it is needed, and takes back the files of segments that are done."""

import threading
from collections import deque
from collections.abc import Callable

from siltlog.ingest.wal.disk import Disk, out_of_space
from siltlog.ingest.wal.segment import Segment, SegmentFiles

SPARES_MAX = 8
RETRY_SECONDS = 0.5


class SegmentPool:
    """One thread that keeps one segment ready, empty and under its number, so that going on to it costs no wait.

    One that has to be larger than usual is made when it is taken.

    A full disk is not an error here: it is tried again whenever a segment was given back, and now and then. Any other
    failure goes to `on_error` and ends the thread.
    """

    def __init__(self, files: SegmentFiles, disk: Disk, *, on_error: Callable[[BaseException], None]) -> None:
        self.disk_full = False
        self._files = files
        self._disk = disk
        self._on_error = on_error
        self._changed = threading.Condition()
        self._next_number = 0
        self._ready: Segment | None = None
        self._wanted_bytes = files.segment_bytes
        """The size of the segment that is taken next."""
        self._returned: deque[Segment] = deque()
        self._closing = False
        self._stopping = False
        self._discarding = False
        self._reuses = True
        self._thread = threading.Thread(target=self._run, name="wal-pool", daemon=True)

    def start(self, next_number: int) -> None:
        self._next_number = next_number
        self._thread.start()

    def closing(self) -> None:
        """Makes a full disk a reason for `take` to give up, from now on."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._ready is not None:
            self._disk.close(self._ready.fd)
            self._ready = None
        while self._returned:
            self._disk.close(self._returned.popleft().fd)

    @property
    def segments_ready(self) -> int:
        """The number of further segments that the log can have without a new file."""
        returned = sum(map(self._is_reusable, list(self._returned)))
        return (self._ready is not None) + len(self._files.spares) + returned

    def take(self, size_bytes: int) -> Segment | None:
        """The next segment, of `size_bytes`; waits until there is one. None when the log stops before that."""
        with self._changed:
            self._wanted_bytes = size_bytes
            self._changed.notify_all()
            while not self._is_ready() and not self._stopping and not (self._closing and self.disk_full):
                self._changed.wait()
            segment: Segment | None = None
            if self._is_ready():
                segment, self._ready = self._ready, None
            self._wanted_bytes = self._files.segment_bytes
            self._changed.notify_all()
            return segment

    def _is_ready(self) -> bool:
        return self._ready is not None and self._ready.size_bytes == self._wanted_bytes

    def _is_reusable(self, segment: Segment) -> bool:
        return not segment.mapped and segment.size_bytes == self._files.segment_bytes

    def give_back(self, segments: list[Segment]) -> None:
        """The log's oldest segments, oldest first; nobody reads them any more."""
        with self._changed:
            self._returned.extend(segments)
            self._changed.notify_all()

    def discard(self) -> None:
        """Deletes every file that was used and is no segment of the log; from now on none becomes another segment,
        until `reuse`. Returns once that is done, or the log stops."""
        with self._changed:
            self._reuses = False
            self._discarding = True
            self._changed.notify_all()
            while self._discarding and not self._stopping:
                self._changed.wait()

    def reuse(self) -> None:
        """Has files of segments that are done become others again."""
        with self._changed:
            self._reuses = True

    @property
    def has_returned(self) -> bool:
        """Whether segments that were given back are still there."""
        return bool(self._returned)

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._stopping or self._returned or not self._is_ready() or self._discarding):
                        self._changed.wait()
                    if self._stopping:
                        return
                if self._discarding:
                    self._discard()
                self._take_back()
                if not self._is_ready():
                    self._prepare()
        except BaseException as error:
            self._stopping = True
            self._on_error(error)
            with self._changed:
                self._changed.notify_all()

    def _discard(self) -> None:
        ready = self._withdraw()
        if ready is not None:
            self._disk.remove(ready.path)
        self._files.discard_spares()
        with self._changed:
            self._discarding = False
            self._changed.notify_all()

    def _withdraw(self) -> Segment | None:
        """Takes back the number of the segment that is ready: nobody has it yet, and its number is the highest."""
        with self._changed:
            ready, self._ready = self._ready, None
        if ready is not None:
            self._disk.close(ready.fd)
            self._next_number = ready.number
        return ready

    def _take_back(self) -> None:
        while self._returned:
            segment = self._returned[0]
            self._disk.close(segment.fd)
            # One by one, each durable before the next: a power cut must not leave a gap among the numbers.
            self._keep_file(segment, self._reuses and self._is_reusable(segment))
            self._returned.popleft()

    def _keep_file(self, segment: Segment, reusable: bool) -> None:
        if reusable and len(self._files.spares) < SPARES_MAX:
            self._files.put_aside(segment.path)
        else:
            self._disk.remove(segment.path)

    def _prepare(self) -> None:
        unfit = self._withdraw()
        if unfit is not None:
            # Another size is wanted. Its file was never written, or may be again: it was ready.
            self._keep_file(unfit, self._is_reusable(unfit))
        try:
            segment, _, _ = self._files.make(self._next_number, size_bytes=self._wanted_bytes)
        except OSError as error:
            if not out_of_space(error):
                raise
            with self._changed:
                self.disk_full = True
                self._changed.notify_all()
                if not (self._stopping or self._returned):
                    self._changed.wait(RETRY_SECONDS)
            return
        with self._changed:
            self.disk_full = False
            self._next_number += 1
            self._ready = segment
            self._changed.notify_all()
