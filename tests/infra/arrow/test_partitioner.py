"""The partition of a key: the numbers that Spark gives, and Kafka's clients, for one key as for a column of them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.arrow.partitioner import MURMUR2, PARTITIONERS, XXHASH64, key_hash, partition_of

SPARK = {
    b"": -7444071767201028348,
    b"a": -8582455328737087284,
    b"key-1": 3953485860046200431,
    b"12345678": 6863040065134489090,
    "Zürich".encode(): -2199928141300491114,
    b"\x00\xff\x80": 7869338589911211550,
    bytes(range(31)): -8988936099728967847,
    bytes(range(32)): -8644129751861931918,
    b"x" * 100: 365730103971579591,
}
"""`select xxhash64(X'...')` of Spark 4.2; keys of each length that the algorithm treats differently."""


@pytest.mark.parametrize(("key", "number"), SPARK.items())
def test_the_hash_is_sparks(key: bytes, number: int) -> None:
    assert key_hash(key) == number


@pytest.mark.parametrize("partitions", [1, 2, 7, 10_000])
def test_the_modulo_is_mathematical(partitions: int) -> None:
    for key, number in SPARK.items():
        partition = partition_of(key, partitions)
        assert 0 <= partition < partitions
        assert (number - partition) % partitions == 0


@pytest.mark.parametrize(
    ("key", "partition"), [(b"", 35), (b"a", 49), (b"foobar", 13), (b"a-little-bit-long-string", 56)]
)
def test_the_partition_is_that_of_javas_client(key: bytes, partition: int) -> None:
    """They are of 97, by `BuiltInPartitioner.partitionForKey` of kafka-clients 4.3."""
    assert MURMUR2.partition_of(key, 97) == partition


@pytest.mark.parametrize("name", PARTITIONERS)
@given(st.lists(st.none() | st.binary(max_size=40), min_size=1), st.integers(1, 10_000), st.booleans())
def test_a_column_of_keys(name: str, keys: list[bytes | None], partitions: int, encoded: bool) -> None:
    by = PARTITIONERS[name]
    column = pa.array(keys, pa.binary())
    found = by.partitions_of(column.dictionary_encode() if encoded else column, partitions, partitions - 1)
    assert found.tolist() == [partitions - 1 if key is None else by.partition_of(key, partitions) for key in keys]


def test_text_keys_are_their_utf8() -> None:
    keys = pa.array(["a", "Zürich", None])
    assert XXHASH64.partitions_of(keys, 97, 5).tolist() == [
        partition_of(b"a", 97),
        partition_of("Zürich".encode(), 97),
        5,
    ]


def test_slices_of_a_dictionary() -> None:
    keys = pa.array([b"a", b"b", None, b"a"]).dictionary_encode().slice(1)
    assert XXHASH64.partitions_of(keys, 97, 5).tolist() == [partition_of(b"b", 97), 5, partition_of(b"a", 97)]
