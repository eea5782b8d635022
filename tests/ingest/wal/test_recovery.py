"""Damage is refused and named; what a power cut tears above the last recorded synced position is cut, and told."""

import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_disk import SimulatedDisk

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, CorruptData
from siltlog.infra.store.checksum import crc32c
from siltlog.ingest.wal import Frame, FrameKind, Location, Wal
from siltlog.ingest.wal.codec import ENTRY_BYTES, FRAME_BYTES, HEADER_BYTES, flipped_bit
from siltlog.ingest.wal.last_entry import ONE_BIT_BYTES_MAX
from siltlog.ingest.wal.scan import scan

TOPIC = b"some-topic-in-id"
SEGMENT_BYTES = 16 * 1024
PAYLOAD_BYTES = 700


def frame(offset: int, payload_bytes: int = PAYLOAD_BYTES) -> Frame:
    return Frame(FrameKind.RECORDS, TOPIC, 4, 1, offset, 1, random.Random(offset).randbytes(payload_bytes))


def open_wal(folder: Path, disk: SimulatedDisk | None = None, cluster_id: str = "cluster") -> Wal:
    return Wal(
        folder,
        segment_bytes=SEGMENT_BYTES,
        bytes_max=64 * SEGMENT_BYTES,
        cluster_id=cluster_id,
        on_fatal=lambda error: None,
        state=lambda _: b"state",
        clock=SystemClock(),
        marker_idle_ms=60_000,
        disk=disk,
    )


def submit_and_wait(wal: Wal, offset: int) -> None:
    durable = threading.Event()
    wal.submit([frame(offset)], lambda locations: durable.set())
    assert durable.wait(30)


def offsets(folder: Path) -> list[int]:
    found = open_wal(folder).recover()
    for kept, _ in found.frames:
        assert bytes(kept.payload) == frame(kept.first_offset).payload
    return [kept.first_offset for kept, _ in found.frames]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Two logs of 40 groups of one frame: stopped cleanly, and killed after the last acknowledgement (no marker)."""
    folder = tmp_path_factory.mktemp("written")
    disk = SimulatedDisk(folder / "clean")
    wal = open_wal(disk.folder, disk)
    wal.recover()
    wal.start()
    for offset in range(40):
        submit_and_wait(wal, offset)
    # The next segment is made ahead; the tests want it there.
    while wal._pool._ready is None:
        threading.Event().wait(0.001)
    events = len(disk.journal)
    wal.close()
    disk.crash(events, folder / "killed", random.Random(0), power_cut=False)
    return lambda clean: folder / ("clean" if clean else "killed")


@pytest.fixture
def copied(written: Callable[[bool], Path], tmp_path: Path) -> Callable[[bool], Path]:
    def copy(clean: bool) -> Path:
        shutil.copytree(written(clean), tmp_path / "wal")
        return tmp_path / "wal"

    return copy


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_is_named_also_in_the_last_group_before_a_kill(
    copied: Callable[[bool], Path], clean: bool, seed: int
) -> None:
    folder = copied(clean)
    rng = random.Random(seed)
    found = scan(folder, "cluster")
    for _ in range(40):
        segment = rng.choice(found.segments)
        bit = rng.randrange(segment.end * 8)
        flip(segment.path, bit)
        try:
            left = offsets(folder)
        except CorruptData as error:
            assert segment.path.name in str(error) or f"{segment.number + 1:020d}" in str(error)
        else:
            assert left == list(range(40)), "only padding means nothing"
        flip(segment.path, bit)


@pytest.mark.rule("W2")
def test_damage_is_named_with_topic_partition_offsets_and_a_way_out(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    recovery = open_wal(folder).recover()
    location = next(location for frame, location in recovery.frames if frame.first_offset == 17)
    path = folder / names.segment_file(location.segment)
    flip(path, location.position * 8 + 5)
    with pytest.raises(CorruptData) as refused:
        open_wal(folder).recover()
    error = refused.value
    assert error.members["file"] == str(path) and error.members["position"] < location.position
    assert (error.members["topic_id"], error.members["partition"]) == (TOPIC.hex(), 4)
    assert (error.members["first_offset"], error.members["last_offset"]) == (17, 17)
    for part in (str(path), TOPIC.hex(), "partition 4", "offsets 17 to 17", "copy", "--take-over"):
        assert part in error.detail
    # A damaged header tells nothing of what it headed, but what comes before it is known.
    flip(path, location.position * 8 + 5)
    flip(path, (error.members["position"] + 20) * 8)
    with pytest.raises(CorruptData, match=r"after topic id .* partition 4, offsets 16 to 16"):
        open_wal(folder).recover()


@pytest.mark.rule("W2")
def test_the_last_group_of_a_segment_is_known_synced_before_the_next_one_begins(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "running")
    wal = open_wal(disk.folder, disk)
    wal.recover()
    wal.start()
    offset = 0
    while not any(event[0] == "acked" and event[1].segment == 2 for event in disk.journal):
        durable = threading.Event()

        def done(locations: list[Location], durable: threading.Event = durable) -> None:
            disk.note("acked", locations[0])
            durable.set()

        wal.submit([frame(offset)], done)
        assert durable.wait(30)
        offset += 1
    wal.close()
    locations = [event[1] for event in disk.journal if event[0] == "acked"]
    first_write = max(
        index
        for index, event in enumerate(disk.journal)
        if event[0] == "write" and event[2] == HEADER_BYTES and len(event[3]) > PAYLOAD_BYTES
    )
    disk.crash(first_write, tmp_path / "killed", random.Random(0), power_cut=True)
    last = [location for location in locations if location.segment == 1][-1]
    flip(tmp_path / "killed" / names.segment_file(1), last.position * 8)
    with pytest.raises(CorruptData, match=f"offsets {offset - 2} to {offset - 2}"):
        open_wal(tmp_path / "killed").recover()


@pytest.mark.rule("W3")
def test_a_torn_last_group_is_cut_and_the_log_goes_on(copied: Callable[[bool], Path]) -> None:
    folder = copied(False)
    last = scan(folder, "cluster").segments[-1]
    with last.path.open("r+b") as file:
        file.seek(last.end - 300)
        file.write(bytes(300))
    assert offsets(folder) == list(range(39))
    wal = open_wal(folder)
    (cut,) = wal.recover().cuts
    assert (cut.readable, cut.one_bit, [frame.first_offset for frame in cut.frames]) == (True, False, [39])
    wal.start()
    submit_and_wait(wal, 39)
    wal.close()
    assert offsets(folder) == list(range(40))


@pytest.mark.rule("W3")
def test_a_last_group_with_a_flipped_bit_is_lost_only_when_that_is_accepted(copied: Callable[[bool], Path]) -> None:
    folder = copied(False)
    last = scan(folder, "cluster").segments[-1]
    (*_, (_, location)) = last.contents()
    flip(last.path, location.position * 8 + 77)
    with pytest.raises(CorruptData, match=r"partition 4, offsets 39 to 39; it was written whole.*--accept-loss"):
        offsets(folder)
    wal = open_wal(folder)
    recovery = wal.recover(accept_loss=True)
    assert [frame.first_offset for frame, _ in recovery.frames] == list(range(39))
    (cut,) = recovery.cuts
    assert (cut.one_bit, [(frame.partition, frame.first_offset) for frame in cut.frames]) == (True, [(4, 39)])


def test_a_last_group_whose_header_is_gone_is_told_of(copied: Callable[[bool], Path]) -> None:
    folder = copied(False)
    last = scan(folder, "cluster").segments[-1]
    *_, (_, location) = last.contents()
    header = location.position - ENTRY_BYTES - FRAME_BYTES
    for bit in (header + 30, header + 60):
        flip(last.path, bit * 8)
    (cut,) = open_wal(folder).recover().cuts
    assert (cut.path, cut.position, cut.readable, cut.frames) == (last.path, header, False, ())
    assert offsets(folder) == list(range(39))


@pytest.mark.parametrize("nbytes", [1, 4, 700, ONE_BIT_BYTES_MAX])
def test_the_bit_that_a_sum_is_wrong_by_is_found(nbytes: int) -> None:
    rng = random.Random(nbytes)
    for _ in range(5):
        whole = bytearray(rng.randbytes(nbytes))
        sound = crc32c(bytes(whole))
        bit = rng.randrange(nbytes * 8)
        whole[bit // 8] ^= 1 << bit % 8
        assert flipped_bit(nbytes, crc32c(bytes(whole)) ^ sound) == bit
    assert flipped_bit(nbytes, 0) is None


def test_segments_missing_in_the_middle_are_named(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    (folder / names.segment_file(2)).unlink()
    with pytest.raises(CorruptData, match=r"lacks .*0002.wal"):
        open_wal(folder).recover()


@pytest.mark.parametrize("what", ["empty", "zeros", "short", "junk"])
def test_a_half_made_newest_segment_is_used_anew(copied: Callable[[bool], Path], what: str) -> None:
    folder = copied(True)
    newest = max(folder.glob("*.wal"))
    content = {
        "empty": b"",
        "zeros": bytes(SEGMENT_BYTES),
        "short": newest.read_bytes()[:100],
        "junk": random.Random(3).randbytes(SEGMENT_BYTES),
    }[what]
    newest.write_bytes(content)
    wal = open_wal(folder)
    assert any(str(newest) in note for note in wal.recover().notes)
    wal.start()
    submit_and_wait(wal, 40)
    wal.close()
    assert offsets(folder) == list(range(41))


def test_a_damaged_header_of_a_segment_that_held_something_is_refused(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    for segment in scan(folder, "cluster").segments:
        flip(segment.path, 200)
        with pytest.raises(CorruptData, match="header block is damaged"):
            open_wal(folder).recover()
        flip(segment.path, 200)


def test_a_damaged_newest_segment_is_not_taken_for_half_made(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    last = scan(folder, "cluster").segments[-1]
    for path in folder.glob("*.wal"):
        if int(path.stem) > last.number:
            path.unlink()
    flip(last.path, 200)
    with pytest.raises(CorruptData, match="header block is damaged"):
        open_wal(folder).recover()


def test_a_truncated_segment_is_refused(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    first = folder / names.segment_file(1)
    with first.open("r+b") as file:
        file.truncate(HEADER_BYTES + 100)
    with pytest.raises(CorruptData, match="bytes are left"):
        open_wal(folder).recover()


def test_a_file_that_cannot_be_read_back_is_named(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    path = folder / names.segment_file(2)
    path.unlink()
    path.mkdir()
    with pytest.raises(CorruptData, match=rf"{path} .*cannot be read"):
        open_wal(folder).recover()


def test_a_segment_under_another_number_is_refused(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    shutil.copy(folder / names.segment_file(1), folder / names.segment_file(2))
    with pytest.raises(CorruptData, match="it is segment 1"):
        open_wal(folder).recover()


def test_a_log_of_another_root_is_refused(copied: Callable[[bool], Path]) -> None:
    with pytest.raises(ConfigError, match=r"belongs to another root .*cluster id cluster"):
        open_wal(copied(True), cluster_id="other").recover()


def test_what_a_publisher_writes_never_passes_for_an_entry(tmp_path: Path) -> None:
    """Payloads that are copies of the log itself, before a torn group: only the copies' lack of the right CRC tells."""
    wal = open_wal(tmp_path)
    wal.recover()
    wal.start()
    submit_and_wait(wal, 0)
    image = (tmp_path / names.segment_file(1)).read_bytes()[HEADER_BYTES : HEADER_BYTES + 4096]
    durable = threading.Event()
    wal.submit([Frame(FrameKind.RECORDS, TOPIC, 4, 1, 1, 1, image)], lambda locations: durable.set())
    assert durable.wait(30)
    wal.close()
    found = scan(tmp_path, "cluster").segments[-1]
    assert found.entries == 4


def test_other_files_in_the_folder_are_left_alone(copied: Callable[[bool], Path]) -> None:
    folder = copied(True)
    (folder / "notes.wal").write_text("mine")
    (folder / "x.txt").write_text("mine")
    wal = open_wal(folder)
    wal.recover()
    wal.start()
    wal.close()
    assert (folder / "notes.wal").read_text() == (folder / "x.txt").read_text() == "mine"
