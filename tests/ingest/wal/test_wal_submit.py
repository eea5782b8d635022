"""The log while it runs: group commit, rolling, recycling, reading, failing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from simulated_disk import SimulatedDisk, io_error, no_space

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, CorruptData, Unavailable
from siltlog.ingest.wal import Frame, FrameKind, Location, SegmentGone, Wal

TOPIC = b"some-topic-in-id"
SEGMENT_BYTES = 32 * 1024
BYTES_MAX = 8 * SEGMENT_BYTES


class Log:
    """A started log on a simulated disk, and what its callbacks said."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        bytes_max: int = BYTES_MAX,
        marker_idle_ms: int = 60_000,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.disk = disk or SimulatedDisk(folder)
        self.fatal: list[BaseException] = []
        self.acked: list[list[Location]] = []
        self.state_threads: list[int] = []
        self.changed = threading.Condition()
        self.wal = Wal(
            folder,
            segment_bytes=segment_bytes,
            bytes_max=bytes_max,
            cluster_id="cluster",
            on_fatal=self._failed,
            state=self._state,
            clock=SystemClock(),
            marker_idle_ms=marker_idle_ms,
            disk=self.disk,
        )
        self.offset = 0

    def start(self) -> "Log":
        self.wal.recover()
        self.wal.start()
        self.until_next_is_ready()
        return self

    def until_next_is_ready(self) -> None:
        while self.wal._pool._ready is None:
            threading.Event().wait(0.001)

    def _state(self, bytes_max: int) -> bytes:
        self.state_threads.append(threading.get_ident())
        return b"state"

    def _failed(self, error: BaseException) -> None:
        with self.changed:
            self.fatal.append(error)
            self.changed.notify_all()

    def _done(self, locations: list[Location]) -> None:
        with self.changed:
            self.acked.append(locations)
            self.changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, 30)

    def submit(self, payload: bytes | pa.Buffer, partition: int = 0, kind: FrameKind = FrameKind.RECORDS) -> None:
        frame = Frame(kind, TOPIC, partition, 1, self.offset, 1, payload)
        self.offset += kind == FrameKind.RECORDS
        self.wal.submit([frame], self._done)

    def put(self, payload: bytes | pa.Buffer, partition: int = 0) -> Location:
        before = len(self.acked)
        self.submit(payload, partition)
        self.until(lambda: len(self.acked) > before)
        return self.acked[-1][0]

    def syncs(self) -> int:
        return sum(event[0] == "sync" for event in self.disk.journal)

    def files(self) -> list[str]:
        return sorted(path.suffix for path in self.disk.folder.iterdir())


def test_what_was_acknowledged_can_be_read(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    payloads = [b"", b"x", b"abcdefgh" * 500, pa.py_buffer(b"buffer"), b"y" * 20_000]
    locations = [log.put(payload) for payload in payloads]
    for payload, location in zip(payloads, locations, strict=True):
        assert log.wal.read(location).to_pybytes() == bytes(payload)
    log.wal.close()


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[tuple[Log, threading.Event]]:
    """A log whose writer is in a sync, with one submit, until the event is set."""
    log = Log(tmp_path).start()
    held, go_on = threading.Event(), threading.Event()

    def block(operation: str) -> None:
        if operation == "sync" and threading.current_thread().name == "wal-writer":
            held.set()
            assert go_on.wait(30)

    log.disk.fails = block
    log.submit(b"first")
    assert held.wait(30)
    yield log, go_on
    log.wal.close()


def test_what_waits_during_a_sync_is_one_group_commit(stuck: tuple[Log, threading.Event]) -> None:
    log, go_on = stuck
    syncs = log.syncs()
    for number in range(50):
        log.submit(b"%d" % number)
    assert not log.acked
    go_on.set()
    log.until(lambda: len(log.acked) == 51)
    assert log.syncs() == syncs + 2
    assert [log.wal.read(locations[0]).to_pybytes() for locations in log.acked[1:]] == [b"%d" % n for n in range(50)]


def test_what_is_written_is_told_before_the_sync_and_only_to_who_asks(stuck: tuple[Log, threading.Event]) -> None:
    log, go_on = stuck
    told: list[str] = []

    def written() -> None:
        with log.changed:
            told.append("written")
            log.changed.notify_all()

    def synced(_: list[Location]) -> None:
        with log.changed:
            told.append("synced")
            log.changed.notify_all()

    frame = Frame(FrameKind.RECORDS, TOPIC, 0, 1, 1, 1, b"second")
    log.wal.submit([frame], synced, written)
    assert not told, "the first is being synced, and nothing is written meanwhile"
    held, sync_again = threading.Event(), threading.Event()

    def block(operation: str) -> None:
        if operation in ("write", "sync") and threading.current_thread().name == "wal-writer":
            told.append(operation)
            if operation == "sync":
                held.set()
                assert sync_again.wait(30)

    log.disk.fails = block
    go_on.set()
    assert held.wait(30)
    assert (told, len(log.acked)) == (["write", "written", "sync"], 1)
    sync_again.set()
    log.until(lambda: len(told) == 4)
    assert told == ["write", "written", "sync", "synced"]


def test_what_waits_may_take_several_segments(stuck: tuple[Log, threading.Event]) -> None:
    log, go_on = stuck
    payloads = [bytes([number]) * size for number, size in enumerate((6500, 40, 6500, 3000, 9) * 8)]
    for payload in payloads:
        log.submit(payload)
    go_on.set()
    log.until(lambda: len(log.acked) == 1 + len(payloads))
    locations = [locations[0] for locations in log.acked[1:]]
    assert [log.wal.read(location).to_pybytes() for location in locations] == payloads
    assert locations == sorted(locations) and locations[-1].segment >= 5


@pytest.mark.rule("W12")
def test_what_no_usual_segment_has_room_for_begins_a_larger_one(tmp_path: Path) -> None:
    log = Log(tmp_path, bytes_max=16 * SEGMENT_BYTES).start()
    payloads = [b"a" * 100, b"b" * 3 * SEGMENT_BYTES, b"c" * 20_000, b"d" * 2 * SEGMENT_BYTES, b"e" * 20_000]
    locations = [log.put(payload) for payload in payloads]
    assert [location.segment for location in locations] == [1, 2, 3, 4, 5]
    log.until_next_is_ready()
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("*.wal"))]
    assert [size // SEGMENT_BYTES for size in sizes] == [1, 3, 1, 2, 1, 1]
    assert 0 <= sum(sizes[:5]) - log.wal.used_bytes < SEGMENT_BYTES
    found = [bytes(frame.payload) for frame, _ in Log(tmp_path, disk=log.disk).wal.recover().frames]
    assert found == payloads == [log.wal.read(location).to_pybytes() for location in locations]
    assert log.wal.trim(lambda topic_id, partition: log.offset) == 4
    assert 0 <= sizes[4] - log.wal.used_bytes < SEGMENT_BYTES
    for _ in range(3):
        log.put(bytes(20_000))
    log.wal.close()
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {SEGMENT_BYTES}, "larger ones are not used again"


@pytest.mark.rule("W12")
def test_a_larger_segment_waits_for_a_full_disk_and_leaves_no_file_that_it_could_not_make(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    tried = threading.Event()

    def full(operation: str) -> OSError | None:
        if operation != "write" or threading.current_thread().name != "wal-pool":
            return None
        tried.set()
        return no_space()

    log.disk.fails = full
    log.submit(bytes(2 * SEGMENT_BYTES))
    log.submit(b"behind it")
    assert tried.wait(30)
    while not log.wal.disk_full:
        threading.Event().wait(0.001)
    assert not log.acked and not log.fatal
    log.disk.fails = lambda operation: None
    log.until(lambda: len(log.acked) == 2)
    sizes = sorted(path.stat().st_size // SEGMENT_BYTES for path in tmp_path.iterdir())
    assert sizes.count(2) == 1 and set(sizes) == {1, 2}, "it was tried more than once"
    log.wal.close()


@pytest.mark.rule("W12")
def test_what_need_not_be_submitted_asks_whether_the_disk_has_space_for_it(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    free = 5 * SEGMENT_BYTES
    log.disk.free_bytes = lambda folder: free  # type: ignore[method-assign]
    log.wal.check_disk(3 * SEGMENT_BYTES)
    with pytest.raises(Unavailable, match="no space for a segment of") as refused:
        log.wal.check_disk(4 * SEGMENT_BYTES)
    assert refused.value.error_code == "disk_full"
    free = 0
    log.wal.check_disk(20_000)
    log.wal.close()


@pytest.mark.parametrize("sizes", [[0], [1, 7, 8, 9], [1000] * 20])
def test_log_bytes_is_no_less_than_what_a_submit_takes(tmp_path: Path, sizes: list[int]) -> None:
    log = Log(tmp_path).start()
    log.put(b"")
    before = log.wal.used_bytes
    log.wal.submit([Frame(FrameKind.RECORDS, TOPIC, 0, 1, 1, 1, bytes(size)) for size in sizes], log._done)
    log.wal.close()
    assert len(log.acked) == 2
    assert log.wal.used_bytes - before <= log.wal.log_bytes(sum(sizes), len(sizes))


@pytest.mark.rule("W7")
def test_every_segment_begins_with_a_state_taken_on_the_submitting_thread(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    for _ in range(30):
        log.put(bytes(6500))
    log.wal.close()
    assert len(log.state_threads) >= 7
    assert set(log.state_threads) == {threading.get_ident()}
    recovery = Log(tmp_path).wal.recover()
    assert recovery.state == b"state"
    assert sum(1 for _ in recovery.frames) == 30


@pytest.mark.rule("W12")
def test_a_state_that_grew_has_its_place_in_a_larger_segment(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    log.put(bytes(20_000))
    grown = bytes([7]) * SEGMENT_BYTES
    log._state = lambda _: grown  # type: ignore[method-assign]
    log.wal._state = log._state
    locations = [log.put(bytes([number]) * 20_000) for number in range(3)]
    log.wal.close()
    recovery = Log(tmp_path, disk=log.disk).wal.recover()
    assert recovery.state == grown
    assert [location.segment for location in locations] == [2, 3, 4]
    assert sum(1 for _ in recovery.frames) == 4


@pytest.mark.parametrize("sizes", [(32, 128), (128, 32)])
def test_a_log_goes_on_with_segments_of_another_size(tmp_path: Path, sizes: tuple[int, int]) -> None:
    before, after = (size * 1024 for size in sizes)
    first = Log(tmp_path, segment_bytes=before).start()
    for number in range(30):
        first.put(bytes([number]) * 6500)
    first.wal.close()
    log = Log(tmp_path, segment_bytes=after, bytes_max=1024 * 1024, disk=first.disk)
    found = log.wal.recover()
    assert [bytes(frame.payload) for frame, _ in found.frames] == [bytes([number]) * 6500 for number in range(30)]
    log.wal.start()
    log.offset = 30
    locations = [log.put(bytes([number]) * 6500) for number in range(30, 60)]
    assert [log.wal.read(location).to_pybytes()[:1] for location in locations] == [bytes([n]) for n in range(30, 60)]
    log.wal.trim(lambda topic_id, partition: 60)
    for number in range(60, 90):
        log.put(bytes([number]) * 6500)
        log.wal.trim(lambda topic_id, partition: log.offset)
    log.wal.close()
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {after}


def test_a_state_that_smaller_segments_have_no_room_for_is_refused_at_the_start(tmp_path: Path) -> None:
    large = Log(tmp_path, segment_bytes=128 * 1024)
    large._state = lambda _: bytes(20_000)  # type: ignore[method-assign]
    large.wal._state = large._state
    large.start().wal.close()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    small = Log(tmp_path, disk=large.disk)
    small.wal._state = large._state
    small.wal.recover()
    with pytest.raises(
        ConfigError,
        match=r"20000 bytes, more than half of a segment of 32768: set SILT_WAL_SEGMENT_BYTES to 1048576 or more, and "
        r"SILT_WAL_BYTES_MAX, which is 262144, to 4 times that at least, 4194304",
    ):
        small.wal.start()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files, "it has changed nothing"


@pytest.mark.rule("W4")
def test_segments_are_given_up_oldest_first_and_recycled(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    locations = [log.put(bytes([number]) * 6500, partition=number % 2) for number in range(24)]
    segments = sorted({location.segment for location in locations})
    assert len(segments) == 6
    ends = {(TOPIC, 0): 4, (TOPIC, 1): 0}
    assert log.wal.trim(ends) == 0
    assert log.wal.oldest_pinning(ends) == [(TOPIC, 1)]
    assert sorted(log.wal.oldest_pinning()) == [(TOPIC, 0), (TOPIC, 1)]
    used = log.wal.used_bytes
    assert log.wal.trim(lambda topic_id, partition: 8) == 2
    assert log.wal.used_bytes == used - 2 * SEGMENT_BYTES
    with pytest.raises(SegmentGone):
        log.wal.read(locations[0])
    assert not log.wal.hold(locations[0].segment)
    assert log.wal.read(locations[8]).to_pybytes() == bytes([8]) * 6500
    # The active one stays whatever the table has.
    assert log.wal.trim(lambda topic_id, partition: 1000) == 3
    assert log.wal.oldest_pinning() == []
    created = sum(event[0] == "create" for event in log.disk.journal)
    for _ in range(15):
        log.put(bytes(6500))
    assert sum(event[0] == "create" for event in log.disk.journal) == created
    log.wal.close()
    found = [frame.first_offset for frame, _ in Log(tmp_path).wal.recover().frames]
    assert found == list(range(20, 39))


def test_records_that_were_written_again_no_longer_keep_their_segment(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    for number in range(8):
        log.put(bytes(6500), partition=number % 2)
    log.offset = 0
    again = [log.put(bytes(6500)) for _ in range(4)]
    ends = {(TOPIC, 0): 0, (TOPIC, 1): 8}
    assert log.wal.trim(ends) == 0
    log.wal.unpin(TOPIC, 0, again[0].segment)
    assert log.wal.oldest_pinning(ends) == []
    assert log.wal.trim(ends) == 2
    assert log.wal.read(again[0]).size == 6500
    log.wal.close()


def test_a_held_segment_is_not_recycled(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    locations = [log.put(bytes([number]) * 6500) for number in range(12)]
    assert log.wal.hold(locations[4].segment)
    assert log.wal.trim(lambda topic_id, partition: 1000) == 1
    for _ in range(8):
        log.put(bytes(6500))
    assert log.wal.read(locations[4]).to_pybytes() == bytes([4]) * 6500
    log.wal.release(locations[4].segment)
    assert log.wal.trim(lambda topic_id, partition: 1000) == 3
    log.wal.close()


def test_views_that_recovery_gave_outlive_their_segment(tmp_path: Path) -> None:
    first = Log(tmp_path).start()
    for number in range(12):
        first.put(bytes([number]) * 6500)
    first.wal.close()
    log = Log(tmp_path, disk=first.disk)
    frames = [frame for frame, _ in log.wal.recover().frames]
    log.wal.start()
    log.offset = 12
    assert log.wal.trim(lambda topic_id, partition: 12) > 0
    for _ in range(24):
        log.put(b"z" * 6500)
    assert [bytes(frame.payload) for frame in frames] == [bytes([number]) * 6500 for number in range(12)]
    log.wal.close()


def test_locations_that_recovery_gave_can_be_read_after_the_start(tmp_path: Path) -> None:
    first = Log(tmp_path).start()
    for number in range(9):
        first.put(bytes([number]) * 2900)
    first.wal.close()
    wal = Wal(
        tmp_path,
        segment_bytes=SEGMENT_BYTES,
        bytes_max=BYTES_MAX,
        cluster_id="cluster",
        on_fatal=lambda error: None,
        state=lambda _: b"",
        clock=SystemClock(),
    )
    found = list(wal.recover().frames)
    wal.start()
    for frame, location in found:
        assert wal.read(location) == frame.payload
    wal.close()


def test_a_changed_bit_under_a_reader_is_named(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    location = log.put(b"payload" * 100)
    path = max(tmp_path.glob("*1.wal"))
    data = bytearray(path.read_bytes())
    data[location.position + 9] ^= 16
    path.write_bytes(data)
    with pytest.raises(CorruptData, match="fail their checksum"):
        log.wal.read(location)
    log.wal.close()


@pytest.mark.rule("W9")
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_fatal_and_acknowledges_nothing(tmp_path: Path, operation: str) -> None:
    log = Log(tmp_path).start()
    log.put(b"good")

    def fail(attempted: str) -> OSError | None:
        return io_error() if attempted == operation and threading.current_thread().name == "wal-writer" else None

    log.disk.fails = fail
    log.submit(b"bad")
    log.until(lambda: log.fatal)
    log.disk.fails = lambda attempted: None
    for _ in range(3):
        with pytest.raises(Unavailable, match="failed and the server stops"):
            log.submit(b"later")
    log.wal.close()
    assert len(log.acked) == 1 and len(log.fatal) == 1


def test_a_failure_while_a_segment_is_prepared_is_fatal_unless_it_is_space(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.wal.recover()
    log.disk.fails = lambda operation: (
        io_error() if operation == "create" and threading.current_thread().name == "wal-pool" else None
    )
    log.wal.start()
    log.until(lambda: log.fatal)
    with pytest.raises(Unavailable):
        log.submit(b"x")
    log.wal.close()


def test_a_full_disk_counts_as_a_used_budget_until_there_is_space(tmp_path: Path) -> None:
    log = Log(tmp_path, bytes_max=100 * SEGMENT_BYTES)
    log.wal.recover()
    full = threading.Event()

    def fail(operation: str) -> OSError | None:
        if operation == "create" and threading.current_thread().name == "wal-pool" and full.is_set():
            return no_space()
        return None

    log.disk.fails = fail
    log.wal.start()
    size = log.wal.log_bytes(6500)
    log.until_next_is_ready()
    full.set()
    acked = 0
    while log.wal.reserve(size):
        log.submit(bytes(6500))
        log.wal.unreserve(size)
        acked += 1
        log.until(lambda: len(log.acked) == log.offset)
        if log.acked[-1][0].segment == 2:
            while not log.wal.disk_full:
                threading.Event().wait(0.001)
    # What was granted found room in the two segments there are.
    assert {locations[0].segment for locations in log.acked} == {1, 2} and acked == 8
    assert log.wal.disk_full and log.wal.free_bytes < size and not log.fatal
    assert log.wal.trim(lambda topic_id, partition: acked) == 1
    assert log.wal.reserve(size)
    log.put(bytes(6500))
    assert not log.fatal
    log.wal.close()


def test_closing_on_a_full_disk_ends_without_an_acknowledgement(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    log.disk.fails = lambda operation: no_space() if operation == "create" else None
    for _ in range(30):
        log.submit(bytes(6500))
    log.wal.close()
    assert len(log.acked) == 8
    assert sum(1 for _ in Log(tmp_path).wal.recover().frames) == 8


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    log = Log(tmp_path).start()
    for number in range(40):
        log.submit(b"%d" % number * 300)
    log.wal.close()
    assert len(log.acked) == 40
    with pytest.raises(Unavailable, match="closed"):
        log.submit(b"late")
    log.wal.close()
    assert not log.wal.hold(1)


def test_starting_on_a_full_disk_says_so(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.disk.fails = lambda operation: no_space() if operation == "create" else None
    log.wal.recover()
    with pytest.raises(Unavailable, match="free some space") as refused:
        log.wal.start()
    assert refused.value.error_code == "disk_full"
    assert log.files() == []


@pytest.mark.rule("W2")
def test_an_idle_log_marks_its_last_group_as_synced(tmp_path: Path) -> None:
    log = Log(tmp_path, marker_idle_ms=1).start()
    end = log.put(b"x" * 64)

    def since_the_marker() -> list[str]:
        events = [event for event in log.disk.journal if event[0] in ("write", "sync") and event[1] == 0]
        marker = next((at for at, event in enumerate(events) if event[0] == "write" and event[2] > end.position), None)
        return [] if marker is None else [event[0] for event in events[marker:]]

    while len(since_the_marker()) < 2:
        threading.Event().wait(0.001)
    threading.Event().wait(0.02)
    assert since_the_marker() == ["write", "sync"], "it is marked once"
    log.wal.close()
