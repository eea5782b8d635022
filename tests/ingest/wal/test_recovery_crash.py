"""Crashes at any moment, again and again: every acknowledged frame is there once and in order, none is invented."""

import random
import threading
from pathlib import Path

import pytest
from chaos import seeds
from simulated_disk import SimulatedDisk, io_error

from siltlog.infra.clock import SystemClock
from siltlog.ingest.wal import Frame, FrameKind, Recovery, Wal

TOPIC = b"crash-test-topic"
SEGMENT_BYTES = 16 * 1024


def payload(offset: int) -> bytes:
    rng = random.Random(offset)
    return rng.randbytes(rng.choice((0, 3, 40, 200, 900, 2500, 7000, 20_000)))


class Run:
    """One process's life on a disk: it goes on where the log it found ends."""

    def __init__(self, disk: SimulatedDisk, rng: random.Random) -> None:
        self.disk = disk
        self.rng = rng
        self.next_offset = 0
        self.acked = 0
        self.quiet = threading.Condition()
        self.fatal: list[BaseException] = []
        self.wal = Wal(
            disk.folder,
            segment_bytes=SEGMENT_BYTES,
            bytes_max=1 << 30,
            cluster_id="cluster",
            on_fatal=self.failed,
            state=lambda _: str(self.next_offset).encode(),
            clock=SystemClock(),
            marker_idle_ms=1,
            disk=disk,
        )

    def recover(self) -> range:
        self.next_offset = self.acked = checked(self.wal.recover()).stop
        return range(self.next_offset)

    def start(self) -> None:
        self.wal.start()
        # What is given out after a start is as good as acknowledged.
        self.disk.note("acked", self.next_offset)

    def write(self, submits: int) -> None:
        for _ in range(submits):
            frames = []
            for _ in range(self.rng.choice((1, 1, 2, 5))):
                body = payload(self.next_offset + len(frames))
                if frames and sum(len(frame.payload) for frame in frames) + len(body) > 8000:
                    break
                frames.append(Frame(FrameKind.RECORDS, TOPIC, 3, 1, self.next_offset + len(frames), 1, body))
            self.next_offset += len(frames)
            end = self.next_offset
            self.wal.submit([*frames, control(end)], lambda locations, end=end: self.durable(end))
            match self.rng.randint(0, 9):
                case 0 | 1:
                    self.wait()
                case 2:
                    self.wait()
                    threading.Event().wait(0.003)
                case 3:
                    table_offset = self.rng.randint(0, self.acked)
                    self.disk.note("table", table_offset)
                    self.wal.trim(lambda topic_id, partition, below=table_offset: below)

    def write_one(self) -> None:
        offset = self.next_offset
        self.next_offset += 1
        frame = Frame(FrameKind.RECORDS, TOPIC, 3, 1, offset, 1, payload(offset))
        self.wal.submit([frame, control(offset + 1)], lambda locations: self.durable(offset + 1))

    def durable(self, end: int) -> None:
        self.disk.note("acked", end)
        with self.quiet:
            self.acked = end
            self.quiet.notify_all()

    def failed(self, error: BaseException) -> None:
        with self.quiet:
            self.fatal.append(error)
            self.quiet.notify_all()

    def wait(self) -> None:
        with self.quiet:
            assert self.quiet.wait_for(lambda: self.acked == self.next_offset or self.fatal, 30)


def control(end: int) -> Frame:
    return Frame(FrameKind.CONTROL, bytes(16), 0, 0, 0, 0, str(end).encode())


def checked(recovery: Recovery) -> range:
    """The offsets in a log: in order, as written, and each before the state exactly if the state knows of it."""
    offsets = []
    known = int(recovery.state or b"0")
    controls = known
    for index, (frame, _) in enumerate(recovery.frames):
        before_state = index < recovery.frames_before_state
        if frame.kind == FrameKind.CONTROL:
            assert (int(bytes(frame.payload)) <= known) == before_state
            controls = max(controls, int(bytes(frame.payload)))
            continue
        assert (frame.topic_id, frame.partition, frame.epoch, frame.count) == (TOPIC, 3, 1, 1)
        assert bytes(frame.payload) == payload(frame.first_offset)
        assert (frame.first_offset < known) == before_state
        offsets.append(frame.first_offset)
    assert offsets == list(range(offsets[0], offsets[-1] + 1)) if offsets else True
    end = offsets[-1] + 1 if offsets else known
    # What a submit's control frame says is there with its records, or in the state.
    assert controls == max(end, known)
    return range(offsets[0] if offsets else end, end)


def promised(disk: SimulatedDisk, events: int) -> range:
    """Gives the offsets from the highest table offset to the last acknowledged one."""
    acked = [event[1] for event in disk.journal[:events] if event[0] == "acked"]
    tables = [event[1] for event in disk.journal[:events] if event[0] == "table"]
    return range(max(tables, default=0), max(acked, default=0))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(16))
def test_acknowledged_frames_survive_any_crash(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk(tmp_path / "0")
    run = Run(disk, rng)
    lives = 0
    for generation in range(1, 7):
        began = len(disk.journal)
        run.recover()
        if generation > 1 and rng.random() < 0.2:
            run.disk.fails = lambda operation: io_error() if operation == "sync" and rng.random() < 0.1 else None
        try:
            run.start()
            run.write(rng.choice((0, 3, 30, 120)))
            if rng.random() < 0.5:
                run.wal.close()
        except Exception as error:
            assert run.fatal or "Input/output" in str(error), error
        run.wal.close()
        for trial in range(12):
            events = rng.randint(began, len(disk.journal))
            power_cut = rng.random() < 0.6
            after = disk.crash(events, tmp_path / f"{generation}-{trial}", rng, power_cut=power_cut)
            must = promised(disk, events)
            found = checked(Run(after, rng).wal.recover())
            assert found.start <= must.start and found.stop >= must.stop, (found, must, events, power_cut)
            assert found.stop <= run.next_offset
            after.journal += [("acked", must.stop), ("table", must.start)]
            lives += 1
        disk = after
        run = Run(disk, rng)
    assert lives == 72


@pytest.mark.rule("W6")
def test_a_crash_while_starting_loses_nothing_that_was_found(tmp_path: Path) -> None:
    """The last group is in the page cache only: wherever the power goes during the start or after, it is not lost."""
    rng = random.Random(5)
    disk = SimulatedDisk(tmp_path / "first")
    run = Run(disk, rng)
    run.recover()
    run.start()
    run.write(40)
    run.wait()
    # Killed right after the last ack, so no marker says that it was synced.
    events = max(index for index, event in enumerate(disk.journal) if event[0] == "acked") + 1
    run.wal.close()
    killed = disk.crash(events, tmp_path / "killed", rng, power_cut=False)
    second = Run(killed, rng)
    second.recover()
    second.start()
    second.wal.close()
    assert second.next_offset == run.next_offset
    for at in range(events, len(killed.journal) + 1):
        after = killed.crash(at, tmp_path / f"at-{at}", rng, power_cut=True)
        assert checked(Run(after, rng).wal.recover()).stop == run.next_offset


def test_starting_again_and_again_takes_no_more_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "payload", lambda offset: b"%d" % offset)
    rng = random.Random(1)
    disk = SimulatedDisk(tmp_path / "0")
    for life in range(1, 20):
        run = Run(disk, rng)
        run.recover()
        run.start()
        if life % 2:
            run.write_one()
            run.wait()
        run.wal.close()
        disk = disk.crash(len(disk.journal), tmp_path / str(life), rng, power_cut=True)
        # The one in use, the one made ahead, a spare.
        assert len([*disk.folder.glob("*.wal"), *disk.folder.glob("*.spare")]) <= 3
    assert checked(Run(disk, rng).wal.recover()) == range(10)
