"""Readers that keep up get small batches as they were sent, and records encoded anew wherever those would differ."""

from typing import Any

import pytest
from http_rig import Http
from kafka_rig import FETCH, PRODUCE, Tape, batch, fetch, numbered, publish, read, the_part

from siltlog.consumers.reading.reader import SENT_BATCHES_MAX
from siltlog.infra.kafka.batch import CRC_START, HEAD, check
from siltlog.infra.store.checksum import crc32c

pytestmark = pytest.mark.rule("KF29")
Both = tuple[Http, str, Any]
BYTES_MAX = 1 << 20


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


def changed(records: bytes, field: int, value: int) -> bytes:
    """A batch with another value of a field of its head."""
    fields = list(HEAD.unpack_from(records))
    fields[field] = value
    body = HEAD.pack(*fields)[CRC_START:] + records[HEAD.size :]
    fields[4] = crc32c(body)
    return HEAD.pack(*fields)[:CRC_START] + body


def values_of(data: bytes) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record of some batches."""
    found = []
    while data:
        size = HEAD.unpack_from(data)[1] + 12
        head = check(data[:size], BYTES_MAX)
        values = enumerate(head.content.lists().values, head.base_offset)
        found += list(values)
        data = data[size:]
    return found


def test_batches_come_as_they_were_sent(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("alone", 1)
    batches = [numbered(batch(b"a", b"b"), 5, 0, 0), batch(b"c"), numbered(batch(b"d"), 5, 0, 2)]
    with Tape(bootstrap) as tape:
        offsets = [sent(tape, "alone", each) for each in batches]
        assert offsets == [0, 2, 3]
        whole = [placed(each, offset) for each, offset in zip(batches, offsets, strict=True)]
        assert fetched(tape, "alone", 0) == b"".join(whole)
        assert fetched(tape, "alone", 2) == b"".join(whole[1:])
        # One that was sent twice is there once.
        assert sent(tape, "alone", batches[2]) == 3
        assert fetched(tape, "alone", 3) == whole[2]
    assert [message.value() for message in read(bootstrap, "alone", 4)] == [b"a", b"b", b"c", b"d"]


def test_as_much_comes_as_was_asked_for(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("limits", 1)
    batches = [batch(b"a" * 500), batch(b"b" * 500), batch(b"c" * 500)]
    with Tape(bootstrap) as tape:
        for each in batches:
            sent(tape, "limits", each)
        two = 2 * len(batches[0]) + 10
        assert values_of(fetched(tape, "limits", 0, max_bytes=two)) == [(0, b"a" * 500), (1, b"b" * 500)]
        assert values_of(fetched(tape, "limits", 0, partition_max_bytes=two)) == [(0, b"a" * 500), (1, b"b" * 500)]
        # The first is given, whatever it takes.
        assert values_of(fetched(tape, "limits", 1, max_bytes=1)) == [(1, b"b" * 500)]


def test_many_batches_come_as_one(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("many", 1)
    with Tape(bootstrap) as tape:
        for number in range(SENT_BATCHES_MAX + 1):
            sent(tape, "many", batch(b"%d" % number))
        assert HEAD.unpack_from(fetched(tape, "many", 0))[-1] == SENT_BATCHES_MAX + 1
        assert len(values_of(fetched(tape, "many", 1))) == SENT_BATCHES_MAX
        assert HEAD.unpack_from(fetched(tape, "many", 1))[-1] == 1


def test_from_the_middle_of_a_batch_and_between_others_records_are_the_same(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("mixed", 1)
    with Tape(bootstrap) as tape:
        sent(tape, "mixed", batch(b"a", b"b", b"c"))
        http.publish("mixed", {"value": "d", "partition": 0})
        last = batch(b"e")
        sent(tape, "mixed", last)
        every = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]
        for offset in range(5):
            assert values_of(fetched(tape, "mixed", offset)) == every[offset:]
        assert fetched(tape, "mixed", 4) == placed(last, 4)


@pytest.mark.parametrize(
    ("topic", "config", "records"),
    [
        ("times-of-the-append", {"timestamp.type": "append"}, batch(b"a")),
        ("compressed", {"fetch.compression": "zstd"}, batch(b"a" * 4_000)),
        ("without-a-time", {}, changed(changed(batch(b"a"), 7, -1), 8, -1)),
        ("another-latest-time", {}, changed(batch(b"a"), 8, 1_700_000_000_001)),
        ("large", {}, batch(b"a" * 5_000)),
    ],
)
def test_what_would_differ_is_encoded_anew(both: Both, topic: str, config: dict[str, str], records: bytes) -> None:
    http, bootstrap, _ = both
    http.create(topic, 1, **config)
    with Tape(bootstrap) as tape:
        sent(tape, topic, numbered(records, 7, 0, 0))
        came = fetched(tape, topic, 0)
    fields = HEAD.unpack_from(came)
    assert fields[9:12] == (-1, -1, -1), "it has the numbers of its producer"
    assert (fields[5] != 0) == ("fetch.compression" in config)
    assert fields[7] == fields[8] > 0
    assert values_of(came) == [(0, check(records, BYTES_MAX).content.lists().values[0])]
