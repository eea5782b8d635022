"""The native codec against closures: the same messages and bytes, and nothing is taken that they refuse."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_bodies import SIDES, VERSIONS, body_of, fields_of
from kafka_frames import mutated

from siltlog.infra.kafka import native
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.messages.codec import PIECE_BYTES_MIN, MessageCodec
from siltlog.infra.kafka.messages.compiling import struct_reader, struct_writer
from siltlog.infra.kafka.messages.producing import PRODUCE
from siltlog.infra.kafka.messages.schema import NEVER, Field, array, int16, int32, records, struct, text
from siltlog.infra.kafka.wire import ELEMENTS_MAX, Budget, Malformed, TooMany

pytestmark = [
    pytest.mark.rule("KF28"),
    pytest.mark.skipif(not native.IS_NATIVE, reason="siltlog-native is not installed: make native"),
]

HEAD = b"head"
SEEDS = st.integers(0, 2**32)
TAGGED = (
    int32("plain"),
    text("nothing", tag=3, nullable_since=0, default=None),
    struct("deep", tag=1, fields=(int16("a", default=-1), array("of", fields=(text("name"),)))),
    records("raw", tag=2, nullable_since=0),
    array("since", fields=(int32("n"),), since=1),
    int32("until", until=0, default=7),
)


class Both:
    """A message in one version, as each of the two reads and writes it."""

    def __init__(self, fields: tuple[Field, ...], version: int, flexible: bool) -> None:
        self._native = native.message(fields, version, flexible)
        self._reader = struct_reader(fields, version, flexible)
        self._writer = struct_writer(fields, version, flexible)

    def closure_writes(self, body: Any) -> bytes:
        pieces: list[Any] = [HEAD]
        self._writer(body, pieces.append)
        return b"".join(pieces)

    def written(self, body: Any) -> bytes | None:
        """The bytes of both; None where both refuse it."""
        found = self._native.write(HEAD, body, PIECE_BYTES_MIN)
        try:
            expected = self.closure_writes(body)
        except ValueError:
            assert found is None
            return None
        assert found is not None
        assert b"".join(found) == expected
        return expected

    def read(self, frame: bytes, elements_max: int = ELEMENTS_MAX) -> dict[str, Any] | None:
        """What both read; None where both refuse it."""
        view = memoryview(frame)
        found = self._native.read(view, len(HEAD), elements_max)
        try:
            expected = self._reader(view, len(HEAD), Budget(elements_max))
        except Malformed:
            assert found is None
            return None
        assert found is not None
        assert found == expected
        assert kinds(found[0]) == kinds(expected[0])
        return expected[0]


def kinds(value: Any) -> Any:
    """The types of all that a value has in it, in order."""
    if isinstance(value, dict):
        return [(name, kinds(each)) for name, each in value.items()]
    return [kinds(each) for each in value] if isinstance(value, list) else type(value)


@settings(max_examples=15)
@given(SEEDS)
def test_both_write_the_same_and_read_it_again(seed: int) -> None:
    chance = random.Random(seed)
    for message, version in VERSIONS:
        for side in SIDES:
            both = Both(fields_of(message, side), version, version >= message.flexible_since)
            frame = both.written(body_of(chance, fields_of(message, side), version))
            assert frame is not None
            assert both.read(frame) is not None
            both.read(mutated(chance, frame))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("flexible", [False, True])
@given(SEEDS)
def test_both_know_tagged_fields_and_those_of_other_versions(version: int, flexible: bool, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(TAGGED, version, flexible)
    body = body_of(chance, TAGGED, version)
    for name in chance.sample(sorted(body), chance.randrange(len(body))):
        del body[name]
    frame = both.written(body)
    assert frame is not None
    assert both.read(frame) is not None
    for _ in range(20):
        both.read(mutated(chance, frame))


def test_what_is_read_is_no_others() -> None:
    both = Both(TAGGED, 0, True)
    frame = both.written({})
    assert frame is not None
    first, second = (both.read(frame) for _ in range(2))
    assert first is not None and second is not None
    first["deep"]["of"].append(1)
    first["since"].append(1)
    assert second["deep"]["of"] == second["since"] == []


@pytest.mark.parametrize(
    "value",
    [
        {"plain": 2**31},
        {"plain": None},
        {"plain": "1"},
        {"plain": 1.0},
        {"nothing": b"bytes"},
        {"nothing": "\ud800"},
        {"deep": None},
        {"deep": {"a": 2**15}},
        {"deep": {"b": 1}},
        {"deep": {"of": [{"name": None}]}},
        {"deep": {"of": 1}},
        {"deep": {"of": [1]}},
        {"raw": "text"},
        {"raw": [None]},
        {"unknown": 1},
        {"since": None},
        [],
        None,
    ],
)
def test_both_refuse_the_same(value: Any) -> None:
    assert Both(TAGGED, 1, True).written(value) is None


@pytest.mark.parametrize(
    "value",
    [
        {"plain": KafkaError.OFFSET_OUT_OF_RANGE},
        {"plain": True},
        {"deep": {"of": ({"name": "in a tuple"},)}},
        {"raw": memoryview(b"aabb").cast("H")},
        {"raw": (b"a", bytearray(b"b"), memoryview(b"abcd")[::1])},
        {"raw": []},
        {"until": 8},
    ],
)
def test_both_take_the_same(value: dict[str, Any]) -> None:
    assert Both(TAGGED, 1, True).written(value) is not None


def test_closures_take_what_is_of_another_type_than_usual() -> None:
    body = MappingProxyType({"plain": 5})
    assert native.message(TAGGED, 1, True).write(HEAD, body, PIECE_BYTES_MIN) is None
    codec = MessageCodec(TAGGED, 1, True)
    assert codec.pieces(HEAD, body) == codec.pieces(HEAD, dict(body))
    frame = memoryview(bytearray(b"".join(codec.pieces(b"", body))))
    assert native.message(TAGGED, 1, True).read(frame, 0, 0) is None, "somebody may write to it"
    assert codec.read(frame, 0, 0) == codec.read(frame.toreadonly(), 0, 0)


def test_both_count_elements_over_all_arrays() -> None:
    fields = (array("outer", fields=(array("inner", fields=(int16("n"),)),)),)
    both = Both(fields, 0, False)
    frame = both.written({"outer": [{"inner": [{}] * 9}] * 10})
    assert frame is not None
    assert both.read(frame, 100) is not None
    assert both.read(frame, 99) is None
    with pytest.raises(TooMany):
        MessageCodec(fields, 0, False).read(memoryview(frame), len(HEAD), 99)


@pytest.mark.rule("KF20")
def test_others_have_the_interpreter_meanwhile() -> None:
    message = native.message((array("of", fields=(text("name"),)),), 0, False)
    body = {"of": [{"name": "some"}] * ELEMENTS_MAX}
    frame = memoryview(b"".join(message.write(b"", body, PIECE_BYTES_MIN)))
    turns = 0

    def both() -> int:
        """How many turns another thread had meanwhile."""
        before = turns
        message.read(frame, 0, ELEMENTS_MAX)
        message.write(b"", body, PIECE_BYTES_MIN)
        return turns - before

    with ThreadPoolExecutor(1) as thread:
        # A busy machine may give this thread no time: one of three it will.
        for _ in range(3):
            found = thread.submit(both)
            while not found.done():
                turns += 1
                time.sleep(0)
            if found.result() > 2:
                return
    pytest.fail("nobody else had a turn")


def test_large_buffers_are_not_copied() -> None:
    large, small = b"l" * PIECE_BYTES_MIN, b"s" * (PIECE_BYTES_MIN - 1)
    body = {"raw": [small, large, large]}
    [first, second, third] = native.message((records("raw"),), 0, False).write(HEAD, body, PIECE_BYTES_MIN)
    assert len(first) == len(HEAD) + 4 + len(small)
    assert second.obj is third.obj is large


def test_a_place_behind_the_end_is_refused() -> None:
    assert native.message(PRODUCE.request, 9, True).read(memoryview(b"ab"), 3, ELEMENTS_MAX) is None


def test_a_field_of_an_unknown_kind_is_refused() -> None:
    class Unknown:
        value = "complex"

    odd: Any = Unknown()
    with pytest.raises(ValueError, match='there is no kind of field "complex"'):
        native.message((Field("odd", odd),), NEVER, False)
