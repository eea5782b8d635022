"""MurmurHash2: the numbers that Kafka's Java client gives."""

import random

import pyarrow as pa
import pytest

from siltlog.infra.arrow.murmur2 import FEW, hashes_of, key_hash

JAVA = {
    b"": 275646681,
    b"a": -1563381124,
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}
"""Numbers of `Utils.murmur2` in kafka-clients 4.3."""


@pytest.mark.parametrize(("key", "number"), JAVA.items())
def test_the_hash_is_javas(key: bytes, number: int) -> None:
    assert key_hash(key) == number & 0xFFFFFFFF


def test_many_keys_are_hashed_at_once_and_the_longest_one_by_one() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(size % 50) for size in range(500)] + [chance.randbytes(3_000) for _ in range(FEW)]
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert hashes_of(column).tolist() == [key_hash(key) for key in keys]
