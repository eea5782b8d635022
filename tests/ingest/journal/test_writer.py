"""What a journal's writer does next."""

import pytest

from siltlog.infra.store.store import Put
from siltlog.ingest.journal.codec import encode_groups, encode_seal
from siltlog.ingest.journal.pins import OBJECTS_MAX, Pins
from siltlog.ingest.journal.writer import IN_FLIGHT_LOCAL_MAX, IN_FLIGHT_MAX, OBJECT_BYTES_MAX, Landing, Writer, landing
from siltlog.ingest.wal import Frame, FrameKind


@pytest.mark.rule("CJ1")
def test_one_object_for_each_interval_and_the_first_after_a_rest_at_once() -> None:
    writer: Writer[str] = Writer(0.2, IN_FLIGHT_MAX)
    assert writer.due_at() is None and writer.take(10.0) is None
    writer.add("a", 1)
    first = writer.take(10.0)
    assert first is not None and first.number == 1 and first.groups == ("a",)
    writer.add("b", 1)
    writer.add("c", 1)
    assert writer.take(10.1) is None and writer.due_at() == 10.2
    second = writer.take(10.2)
    assert second is not None and second.groups == ("b", "c")
    assert writer.take(10.5) is None, "none goes while there is nothing to go"
    writer.add("d", 1)
    assert writer.take(11.0) is not None


@pytest.mark.rule("CJ1")
def test_an_object_that_is_large_does_not_wait_and_takes_whole_groups() -> None:
    writer: Writer[str] = Writer(0.2, IN_FLIGHT_MAX)
    writer.add("a", 1)
    writer.take(10.0)
    writer.add("b", OBJECT_BYTES_MAX - 1)
    assert writer.take(10.01) is None
    writer.add("c", 2)
    shipment = writer.take(10.01)
    assert shipment is not None and shipment.groups == ("b",)
    writer.add("huge", 3 * OBJECT_BYTES_MAX)
    assert writer.take(10.02) == (3, 0, ("c",)), "what came first goes first"
    assert writer.take(10.03) == (4, 0, ("huge",)), "a group goes whole"


@pytest.mark.rule("CJ3")
def test_eight_are_under_way_beyond_the_last_that_landed() -> None:
    writer: Writer[int] = Writer(0.0, IN_FLIGHT_MAX)
    for number in range(20):
        writer.add(number, 1)
        writer.take(10.0 + number)
    assert writer.next_number == 1 + IN_FLIGHT_MAX
    assert writer.due_at() is None
    writer.landed_one(3)
    assert writer.due_at() is None, "what landed behind a hole makes no room"
    assert [shipment.number for shipment in writer.landed_one(1)] == [1]
    assert writer.take(100.0) is not None and writer.take(100.0) is None
    assert [shipment.number for shipment in writer.landed_one(2)] == [2, 3]
    assert writer.landed == 4


@pytest.mark.rule("CJ3")
def test_on_a_disk_one_is_under_way_and_what_comes_meanwhile_goes_together() -> None:
    writer: Writer[str] = Writer(0.0, IN_FLIGHT_LOCAL_MAX)
    writer.add("a", 1)
    assert writer.take(10.0) == (1, 0, ("a",))
    for group in ("b", "c"):
        writer.add(group, 1)
        assert writer.take(11.0) is None and writer.foretold() is None
    writer.landed_one(1)
    assert writer.take(12.0) == (2, 0, ("b", "c"))


@pytest.mark.rule("CJ4")
def test_first_stays_below_what_has_not_landed_and_only_a_landed_first_deletes() -> None:
    writer: Writer[int] = Writer(0.0, IN_FLIGHT_MAX)
    for number in range(3):
        writer.add(number, 1)
        writer.take(10.0 + number)
    writer.landed_one(1)
    writer.flushed_below(4)
    writer.add(3, 1)
    shipment = writer.take(20.0)
    assert shipment is not None and shipment.first == 1
    assert list(writer.deletable()) == []
    writer.landed_one(4)
    assert list(writer.deletable()) == []
    writer.landed_one(2)
    writer.landed_one(3)
    assert list(writer.deletable()) == [0]
    writer.deleted(0)
    assert list(writer.deletable()) == []


@pytest.mark.rule("CJ2")
def test_an_answer_is_judged_by_what_stands_under_the_number() -> None:
    own = encode_groups([], cluster_id="c", journal="n/j", number=5, first=3, nonce=bytes(16)).header
    seal = encode_seal(cluster_id="c", journal="n/j", number=5, first=3, nonce=b"s" * 16).header
    other = own._replace(nonce=b"o" * 16)
    assert landing(own, Put.WRITTEN, None) is Landing.LANDED
    for put in (Put.EXISTS, Put.UNKNOWN):
        assert landing(own, put, None) is Landing.AGAIN
        assert landing(own, put, own) is Landing.LANDED
        assert landing(own, put, seal) is Landing.SEALED
        assert landing(own, put, other) is Landing.FOREIGN
        assert landing(own, put, own._replace(digest=b"d" * 32)) is Landing.FOREIGN


@pytest.mark.rule("CJ4")
def test_records_and_claims_pin_until_they_are_in_or_beside_their_table() -> None:
    pins = Pins()
    topic, stored = b"t" * 16, False
    pins.add(1, [Frame(FrameKind.RECORDS, topic, 0, 1, 0, 10, b""), Frame(FrameKind.RECORDS, topic, 1, 1, 0, 5, b"")])
    pins.add(2, [Frame(FrameKind.CONTROL, topic, 0, 1, 0, 0, b"")])
    offsets = {0: 10, 1: 4}

    def lowest() -> int:
        return pins.flushed_below(3, lambda _, partition: offsets[partition], lambda _: stored)

    assert lowest() == 1
    offsets[1] = 5
    assert lowest() == 2
    stored = True
    assert lowest() == 3


def test_what_pins_too_many_objects_is_named() -> None:
    pins = Pins()
    slow, quick = b"s" * 16, b"q" * 16
    pins.add(1, [Frame(FrameKind.RECORDS, slow, 3, 1, 0, 1, b"")])
    for number in range(2, OBJECTS_MAX + 1):
        pins.add(number, [Frame(FrameKind.RECORDS, quick, 0, 1, number, 1, b"")])
    assert pins.pressing(lambda *_: 0) == set()
    pins.add(OBJECTS_MAX + 1, [])
    assert pins.pressing(lambda *_: 0) == {(slow, 3)}
