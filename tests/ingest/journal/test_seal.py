"""The end of a journal, and what is read of it."""

import random
import uuid

import pyarrow as pa
import pytest

from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.journal.codec import encode_groups, encode_seal, path_of
from siltlog.ingest.journal.reader import Kept, frames_of, kept, read
from siltlog.ingest.journal.seal import Sealed, seal
from siltlog.ingest.wal import Frame, FrameKind
from tests.rigs.failing_store import FailingStore, VirtualClock

TOPIC = uuid.UUID(int=3).bytes
JOURNAL = "n/j"
SEAL = b"s" * 16


@pytest.fixture
def store() -> ObjectStore:
    return FailingStore(random.Random(1), VirtualClock()).of("n1")


def _put(store: ObjectStore, number: int, first: int = 0, frames: tuple[Frame, ...] = ()) -> None:
    made = encode_groups(
        [frames] if frames else [], cluster_id="c", journal=JOURNAL, number=number, first=first, nonce=bytes(16)
    )
    assert store.put_if_absent(path_of(JOURNAL, number), made.data) is Put.WRITTEN


def _frame(first: int, count: int, epoch: int = 1) -> Frame:
    return Frame(FrameKind.RECORDS, TOPIC, 0, epoch, first, count, pa.py_buffer(b"x" * count))


@pytest.mark.rule("CJ5")
def test_the_first_free_number_is_the_end_whoever_asks(store: ObjectStore) -> None:
    for number in (0, 1, 2, 4):
        _put(store, number)
    ended = seal(store, "c", JOURNAL, SEAL)
    assert ended == Sealed(JOURNAL, 0, 3)
    assert seal(store, "c", JOURNAL, b"2" * 16) == ended
    _put(store, 5)
    assert seal(store, "c", JOURNAL, b"3" * 16) == ended


@pytest.mark.rule("CJ5")
def test_a_journal_of_which_nothing_is_found_is_refused_and_not_sealed(store: ObjectStore) -> None:
    with pytest.raises(CorruptData, match="nothing is found of the journal wal/n/j below memory://root"):
        seal(store, "c", JOURNAL, SEAL)
    assert store.list("") == []


@pytest.mark.rule("CJ5")
def test_the_end_lies_above_the_highest_first(store: ObjectStore) -> None:
    """What was trimmed is no hole, and a copy of it that comes again is nothing."""
    for number in (2, 7, 8, 9):
        _put(store, number, first=min(number, 7))
    assert seal(store, "c", JOURNAL, SEAL) == Sealed(JOURNAL, 7, 10)


@pytest.mark.rule("CJ5")
def test_a_seal_at_a_number_that_was_trimmed_does_not_count(store: ObjectStore) -> None:
    """A node that slept since its list puts it there."""
    for number in (7, 8, 9):
        _put(store, number, first=7)
    late = encode_seal(cluster_id="c", journal=JOURNAL, number=3, first=0, nonce=SEAL)
    store.put_if_absent(path_of(JOURNAL, 3), late.data)
    assert seal(store, "c", JOURNAL, SEAL) == Sealed(JOURNAL, 7, 10)


@pytest.mark.rule("CJ5")
def test_a_journal_that_was_cleaned_up_is_refused(store: ObjectStore) -> None:
    for number in (0, 1, 2):
        _put(store, number)
    seal(store, "c", JOURNAL, SEAL)
    for number in (0, 1, 2):
        store.delete(path_of(JOURNAL, number))
    with pytest.raises(CorruptData, match="is not whole"):
        seal(store, "c", JOURNAL, SEAL)


def test_an_object_that_is_gone_is_named_unless_it_was_trimmed(store: ObjectStore) -> None:
    for number in range(4):
        _put(store, number, frames=(_frame(number, 1),))
    ended = seal(store, "c", JOURNAL, SEAL)
    store.delete(path_of(JOURNAL, 1))
    with pytest.raises(CorruptData, match="wal/n/j/00000000000000000001 is gone"):
        read(store, "c", ended)
    _put(store, 5, first=2)
    assert [found.header.number for found in read(store, "c", ended)] == [0, 2, 3]


def test_records_are_taken_once_from_the_table_offset_on() -> None:
    frames = [_frame(0, 4), _frame(4, 2), _frame(2, 6, epoch=2), _frame(8, 1, epoch=2), _frame(8, 9, epoch=3)]
    found = kept(frames, "t", TOPIC, 0, [1, 2], 1)
    assert [each[:3] for each in found] == [(1, 4, 1), (4, 8, 2), (8, 9, 2)]
    assert kept(frames, "t", TOPIC, 0, [1, 2], 9) == []
    assert kept(frames, "t", TOPIC, 1, [1, 2], 0) == []
    assert kept(frames, "t", bytes(16), 0, [1, 2], 0) == []


def test_a_hole_is_refused_and_named() -> None:
    """It is no end."""
    frames = [_frame(0, 4), _frame(6, 2)]
    with pytest.raises(CorruptData, match="offsets 4 to 5 of topic t, partition 0, were acknowledged"):
        kept(frames, "t", TOPIC, 0, [1], 0)
    with pytest.raises(CorruptData, match="offsets 0 to 5"):
        kept(frames[1:], "t", TOPIC, 0, [1], 0)
    assert kept(frames, "t", TOPIC, 0, [1], 6) == [Kept(6, 8, 1, 6, frames[1].payload_whole)]


def test_what_is_read_is_what_was_written(store: ObjectStore) -> None:
    _put(store, 0)
    _put(store, 1, frames=(_frame(0, 2), _frame(2, 1)))
    _put(store, 2, frames=(_frame(3, 4),))
    found = kept(frames_of(read(store, "c", seal(store, "c", JOURNAL, SEAL))), "t", TOPIC, 0, [1], 0)
    assert [each[:2] for each in found] == [(0, 2), (2, 3), (3, 7)]
