"""Readers that keep up get small batches as they were sent, and records encoded anew wherever those would differ."""

from select import select
from typing import Any

import pytest
from http_rig import Http
from kafka_rig import FETCH, PRODUCE, Tape, batch, batches_in, fetch, numbered, publish, read, the_part, with_fields

from siltlog.consumers.reading.budget import SENT_BATCHES_MAX
from siltlog.infra.kafka.batch import HEAD, check

pytestmark = pytest.mark.rule("KF29")
Both = tuple[Http, str, Any]
BYTES_MAX = 1 << 20


def followed(tape: Tape, topic: str) -> None:
    """Has a reader at the end of a topic, by a first record: from then on batches are kept as they are sent."""
    sent(tape, topic, batch(b"first"))
    assert values_of(fetched(tape, topic, 0)) == [(0, b"first")]


def sent(tape: Tape, topic: str, records: bytes) -> int:
    """Publishes a batch, and gives the offset of its first record."""
    part = the_part(tape.ask(PRODUCE, 9, **publish(topic, records)))
    assert part["error_code"] == 0
    offset: int = part["base_offset"]
    return offset


def fetched(tape: Tape, topic: str, offset: int, version: int = 11, **more: Any) -> bytes:
    part = the_part(tape.ask(FETCH, version, **fetch(topic, offset, **more)))
    assert part["error_code"] == 0
    return bytes(part["records"])


def placed(records: bytes, offset: int) -> bytes:
    """A batch as a reader gets it that is to have it as it was sent."""
    return offset.to_bytes(8) + records[8:12] + b"\xff" * 4 + records[16:]


def values_of(data: bytes) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of some batches."""
    heads = (check(each, BYTES_MAX) for each in batches_in(data))
    return [pair for head in heads for pair in enumerate(head.content.lists().values, head.base_offset)]


def test_batches_come_as_they_were_sent(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("alone", 1)
    batches = [numbered(batch(b"a", b"b"), 5, 0, 0), batch(b"c"), numbered(batch(b"d"), 5, 0, 2)]
    with Tape(bootstrap) as tape:
        followed(tape, "alone")
        offsets = [sent(tape, "alone", each) for each in batches]
        assert offsets == [1, 3, 4]
        whole = [placed(each, offset) for each, offset in zip(batches, offsets, strict=True)]
        assert fetched(tape, "alone", 1) == b"".join(whole)
        assert fetched(tape, "alone", 3) == b"".join(whole[1:])
        # One that was sent twice is there once.
        assert sent(tape, "alone", batches[2]) == 4
        assert fetched(tape, "alone", 4) == whole[2]
    assert [message.value() for message in read(bootstrap, "alone", 4, offset=1)] == [b"a", b"b", b"c", b"d"]


def test_as_much_comes_as_was_asked_for(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("limits", 1)
    batches = [batch(b"a" * 500), batch(b"b" * 500), batch(b"c" * 500)]
    with Tape(bootstrap) as tape:
        followed(tape, "limits")
        for each in batches:
            sent(tape, "limits", each)
        two = 2 * len(batches[0]) + 10
        assert fetched(tape, "limits", 1, max_bytes=two) == placed(batches[0], 1) + placed(batches[1], 2)
        assert fetched(tape, "limits", 1, partition_max_bytes=two) == placed(batches[0], 1) + placed(batches[1], 2)
        # The first is given, whatever it takes.
        assert values_of(fetched(tape, "limits", 2, max_bytes=1)) == [(2, b"b" * 500)]


def test_many_batches_come_as_one(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("many", 1)
    with Tape(bootstrap) as tape:
        followed(tape, "many")
        for number in range(SENT_BATCHES_MAX + 1):
            sent(tape, "many", batch(b"%d" % number))
        assert HEAD.unpack_from(fetched(tape, "many", 1))[-1] == SENT_BATCHES_MAX + 1
        assert len(values_of(fetched(tape, "many", 2))) == SENT_BATCHES_MAX
        assert HEAD.unpack_from(fetched(tape, "many", 2))[-1] == 1


def test_an_answer_that_waited_joins_what_came_one_by_one(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("waited", 1)
    with Tape(bootstrap) as tape, Tape(bootstrap) as reader:
        followed(tape, "waited")
        reader.send(FETCH, 11, **fetch("waited", 1, min_bytes=8_000, max_wait_ms=60_000))
        published = 0
        while not select([reader.socket], [], [], 0)[0]:
            sent(tape, "waited", batch(b"a" * 100))
            published += 1
        came = bytes(the_part(reader.answer(FETCH, 11))["records"])
    assert 5 * SENT_BATCHES_MAX < len(values_of(came)) <= published
    assert len(list(batches_in(came))) <= SENT_BATCHES_MAX + 1


def test_from_the_middle_of_a_batch_and_between_others_records_are_the_same(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("mixed", 1)
    with Tape(bootstrap) as tape:
        followed(tape, "mixed")
        sent(tape, "mixed", batch(b"a", b"b", b"c"))
        http.publish("mixed", {"value": "d", "partition": 0})
        last = batch(b"e")
        sent(tape, "mixed", last)
        every = [(0, b"first"), (1, b"a"), (2, b"b"), (3, b"c"), (4, b"d"), (5, b"e")]
        for offset in range(6):
            assert values_of(fetched(tape, "mixed", offset)) == every[offset:]
        assert fetched(tape, "mixed", 5) == placed(last, 5)


def test_what_nobody_asks_for_is_not_kept_as_it_was_sent(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("unread", 1)
    records = numbered(batch(b"a" * 3_000), 9, 0, 0)
    with Tape(bootstrap) as tape:
        sent(tape, "unread", records)
        assert HEAD.unpack_from(fetched(tape, "unread", 0))[9] == -1, "nobody had asked before"
        for number in range(1, 20):
            sent(tape, "unread", numbered(batch(b"a" * 3_000), 9, 0, number))
        assert HEAD.unpack_from(fetched(tape, "unread", 19))[9] == -1, "nobody has asked for long"
        sent(tape, "unread", numbered(batch(b"a" * 3_000), 9, 0, 20))
        assert HEAD.unpack_from(fetched(tape, "unread", 20))[9] == 9


@pytest.mark.parametrize(
    ("topic", "config", "records"),
    [
        ("times-of-the-append", {"timestamp.type": "append"}, batch(b"a")),
        ("compressed", {"fetch.compression": "zstd"}, batch(b"a" * 4_000)),
        ("without-a-time", {}, with_fields(batch(b"a"), {7: -1, 8: -1})),
        ("another-latest-time", {}, with_fields(batch(b"a"), {8: 1_700_000_000_001})),
        ("large", {}, batch(b"a" * 5_000)),
    ],
)
def test_what_would_differ_is_encoded_anew(both: Both, topic: str, config: dict[str, str], records: bytes) -> None:
    http, bootstrap, _ = both
    http.create(topic, 1, **config)
    with Tape(bootstrap) as tape:
        followed(tape, topic)
        sent(tape, topic, numbered(records, 7, 0, 0))
        came = fetched(tape, topic, 1)
    fields = HEAD.unpack_from(came)
    assert fields[9:12] == (-1, -1, -1), "it has the numbers of its producer"
    assert (fields[5] != 0) == ("fetch.compression" in config)
    assert fields[7] == fields[8] > 0
    assert values_of(came) == [(1, check(records, BYTES_MAX).content.lists().values[0])]
