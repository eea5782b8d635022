"""What the Java client of Kafka says: of the tables of messages, their bytes, record batches, the partitioner."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_bodies import MESSAGES, SIDES, VERSIONS, body_of, fields_of
from kafka_oracle import CODECS, KafkaOracle
from kafka_records import columns_of, random_records, records_of

from siltlog.infra.arrow.murmur2 import key_hash
from siltlog.infra.arrow.partitioner import MURMUR2
from siltlog.infra.errors import ConfigError
from siltlog.infra.kafka.batch import HEAD, check
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.frames import encode_request, encode_response
from siltlog.infra.kafka.messages.schema import Field, Kind, Message
from siltlog.infra.kafka.records import GAP_MAX, control_marker, encode

INFLATED_BYTES_MAX = 10_000_000
_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT8: "INT8",
    Kind.INT16: "INT16",
    Kind.INT32: "INT32",
    Kind.INT64: "INT64",
    Kind.UUID: "UUID",
    Kind.TEXT: "STRING",
    Kind.BYTES: "BYTES",
    Kind.RECORDS: "RECORDS",
}
_ZEROS: dict[Kind, Any] = {Kind.UUID: "A" * 22, Kind.BYTES: "", Kind.RECORDS: None, Kind.ARRAY: []}


@pytest.fixture(scope="module")
def oracle() -> Iterator[KafkaOracle]:
    try:
        started = KafkaOracle()
    except ConfigError as error:
        pytest.skip(f"Kafka's client cannot be asked: {error}")
    with started:
        yield started


def schema_of(fields: tuple[Field, ...], version: int, flexible: bool) -> dict[str, Any]:
    """The description of a table, as the oracle gives its own."""
    own = [field for field in fields if field.within(version)]
    own.sort(key=lambda field: -1 if field.tag is None else field.tag)
    return {"struct": [[field.name, field.tag, type_of(field, version, flexible)] for field in own], "nullable": False}


def type_of(field: Field, version: int, flexible: bool) -> Any:
    nullable = version >= field.nullable_since
    if field.kind is Kind.STRUCT:
        return schema_of(field.fields, version, flexible) | {"nullable": nullable}
    if field.kind is Kind.ARRAY:
        element = type_of(Field("", field.of, fields=field.fields), version, flexible)
        return {"array": element, "nullable": nullable, "compact": flexible}
    compact = "COMPACT_" if flexible and field.kind in (Kind.TEXT, Kind.BYTES, Kind.RECORDS) else ""
    return compact + ("NULLABLE_" if nullable else "") + _TYPES[field.kind]


def test_the_tables_are_kafkas_field_by_field(oracle: KafkaOracle) -> None:
    for message, version in VERSIONS:
        flexible = version >= message.flexible_since
        for side in SIDES:
            header = flexible and not (message.name == "ApiVersions" and side == "response")
            ours = {"flexible_header": header, "body": schema_of(fields_of(message, side), version, flexible)}
            assert oracle.schema(message.key, side, version) == ours, (message.name, side, version)


def test_no_version_before_the_first_is_one_of_kafkas(oracle: KafkaOracle) -> None:
    for message in MESSAGES:
        if message.min_version:
            assert oracle.schema(message.key, "request", message.min_version - 1) is None, message.name


def test_the_defaults_are_kafkas(oracle: KafkaOracle) -> None:
    def defaults_of(fields: tuple[Field, ...], theirs: dict[str, Any]) -> dict[str, Any]:
        """Ours in the oracle's form; a field that has none of `fields` is of a version that is not in the tables."""
        found = {}
        for field in fields:
            default = {} if field.kind is Kind.STRUCT and field.default is not None else field.default
            if field.default is not None:
                default = _ZEROS.get(field.kind, default)
            inner = theirs[field.name][1]
            found[field.name] = [default, defaults_of(field.fields, inner) if inner is not None else None]
        return found | {name: value for name, value in theirs.items() if name not in found}

    for message in MESSAGES:
        for side in SIDES:
            theirs = oracle.defaults(message.key, side)
            assert defaults_of(fields_of(message, side), theirs) == theirs, (message.name, side)


def frame_of(message: Message, side: str, version: int, body: dict[str, Any]) -> bytes:
    """A message without its header."""
    flexible = version >= message.flexible_since
    if side == "request":
        return encode_request(message.key, version, 7, None, body)[10 + flexible :]
    return encode_response(message.key, version, 7, body)[4 + (flexible and message.name != "ApiVersions") :]


def test_kafka_reads_each_message_and_writes_the_same_bytes(oracle: KafkaOracle) -> None:
    for message, version in VERSIONS:
        for side in SIDES:
            for seed in range(3):
                chance = random.Random(f"{message.name} {side} {version} {seed}")
                body = distinct(body_of(chance, fields_of(message, side), version))
                data = frame_of(message, side, version, body)
                assert oracle.message(message.key, side, version, data) == data.hex(), (message.name, side, version)


def distinct(value: Any) -> Any:
    """The same without twins in an array: some of Java's collections are sets of their elements' first fields."""
    if isinstance(value, dict):
        return {name: distinct(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [distinct(value[0])]
    return value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 7, 200])
def test_batches_of_java_become_the_same_records(oracle: KafkaOracle, codec: str, count: int) -> None:
    records = random_records(random.Random(f"{codec} {count}"), count)
    head = check(oracle.write(codec, records), INFLATED_BYTES_MAX)
    assert (head.codec, head.rows, head.producer_id) == (CODECS.index(codec), count, -1)
    assert (head.base_timestamp_ms, head.max_timestamp_ms) == (records[0][0], max(each[0] for each in records))
    assert records_of(head.content.columns()) == records


@pytest.mark.parametrize("codec", CODECS)
def test_large_batches_of_java_are_read_to_their_end(oracle: KafkaOracle, codec: str) -> None:
    """Java frames snappy and lz4 in blocks: this one has several."""
    records = random_records(random.Random(codec), 3_000, headers=False)
    assert records_of(check(oracle.write(codec, records), INFLATED_BYTES_MAX).content.columns()) == records


@pytest.mark.parametrize("count", [1, 30, 500])
@pytest.mark.parametrize("headers", [False, True])
def test_java_reads_what_is_encoded(oracle: KafkaOracle, count: int, headers: bool) -> None:
    chance = random.Random(f"{count} {headers}")
    records = random_records(chance, count, headers)
    offsets = [5]
    for _ in records[1:]:
        offsets.append(offsets[-1] + chance.choice((1, 1, 1, 2, 900, GAP_MAX, GAP_MAX + 1, 2**40)))
    found = oracle.read(b"".join(encode(columns_of(records, offsets), 6, 20_000)))
    assert [record for _, batch in found for record in batch] == list(zip(offsets, records, strict=True))
    for (control, epoch, last, latest), batch in found:
        assert (control, epoch, last) == (False, 6, batch[-1][0])
        assert latest == max(millis for _, (millis, *_) in batch)


@pytest.mark.rule("KF22")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [7, 200, 5_000])
def test_java_reads_what_is_compressed(oracle: KafkaOracle, codec: str, count: int) -> None:
    """Each codec in one block and in several: bytes that repeat, and bytes that do not."""
    records = (random_records(random.Random(f"{codec} {count}"), 100, headers=count < 1_000) * (1 + count // 100))[
        :count
    ]
    pieces = encode(columns_of(records, list(range(count))), 6, codec=CODECS.index(codec))
    assert HEAD.unpack(pieces[0])[5] == CODECS.index(codec)
    assert [record for _, batch in oracle.read(b"".join(pieces)) for _, record in batch] == records


@pytest.mark.rule("KF22")
@pytest.mark.parametrize("codec", CODECS)
def test_java_reads_a_record_of_many_blocks(oracle: KafkaOracle, codec: str) -> None:
    chance = random.Random(codec)
    value = b"".join(bytes((chance.randrange(256),)) * chance.randrange(1, 2_000) for _ in range(5_000))
    records = [(1_700_000_000_000, b"k", value + chance.randbytes(100_000), ())]
    pieces = encode(columns_of(records, [0]), 6, codec=CODECS.index(codec))
    [(_, batch)] = oracle.read(b"".join(pieces))
    assert batch == [(0, records[0])]


def test_java_takes_a_marker_as_a_commit(oracle: KafkaOracle) -> None:
    ((control, epoch, last, _), [(offset, (_, key, _, _))]) = oracle.read(control_marker(2**40, 6))[0]
    assert (control, epoch, last, offset, key) == (True, 6, 2**40, 2**40, b"\0\0\0\1")


def test_keys_are_hashed_as_by_java(oracle: KafkaOracle) -> None:
    chance = random.Random(1)
    for size in range(70):
        key = chance.randbytes(size)
        assert oracle.hash(key) & 0xFFFFFFFF == key_hash(key)
        for partitions in (1, 3, 97, 10_000):
            assert oracle.partition(key, partitions) == MURMUR2.partition_of(key, partitions)


def test_codes_have_their_names(oracle: KafkaOracle) -> None:
    for error in KafkaError:
        assert oracle.error_name(error.value) == error.name
