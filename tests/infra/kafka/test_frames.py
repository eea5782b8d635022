"""Frames of Kafka: what is written is read again in every version, and what is wrong is one error that says where."""

import random
import tracemalloc
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_bodies import MESSAGES, SIDES, VERSIONS, body_of, fields_of
from kafka_frames import mutated

from siltlog.infra.kafka.frames import (
    APIS,
    UnsupportedVersion,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    response_pieces,
)
from siltlog.infra.kafka.messages.codec import PIECE_BYTES_MIN
from siltlog.infra.kafka.messages.schema import Message
from siltlog.infra.kafka.wire import ELEMENTS_MAX, Malformed

PRODUCE = {
    "acks": -1,
    "timeout_ms": 30_000,
    "topic_data": [{"name": "orders", "partition_data": [{"index": 3, "records": b"r" * 100}]}],
}
SEEDS = st.integers(0, 2**32)


def encoded(message: Message, version: int, side: str, body: dict[str, Any]) -> bytes:
    if side == "request":
        return encode_request(message.key, version, 7, "client", body)
    return encode_response(message.key, version, 7, body)


def decoded(message: Message, version: int, side: str, frame: bytes | memoryview) -> Any:
    return decode_request(frame) if side == "request" else decode_response(message.key, version, frame)


@settings(max_examples=20)
@given(SEEDS)
def test_what_is_written_is_read_in_every_version(seed: int) -> None:
    chance = random.Random(seed)
    for message, version in VERSIONS:
        for side in SIDES:
            body = body_of(chance, fields_of(message, side), version)
            if message.name == "ApiVersions" and side == "response":
                body["error_code"] = 0
            found = decoded(message, version, side, encoded(message, version, side, body))
            assert (found.correlation_id, found.body) == (7, body), (message.name, version, side)


@settings(max_examples=20)
@given(SEEDS)
def test_mutated_frames_are_malformed_or_read(seed: int) -> None:
    chance = random.Random(seed)
    for message, version in VERSIONS:
        for side in SIDES:
            body = body_of(chance, fields_of(message, side), version)
            frame = mutated(chance, encoded(message, version, side, body))
            try:
                decoded(message, version, side, frame)
            except (Malformed, UnsupportedVersion) as error:
                assert str(error)


def test_every_prefix_of_a_frame_is_malformed() -> None:
    for version in (3, 9):
        frame = encode_request(0, version, 7, "client", PRODUCE)
        for size in range(len(frame)):
            with pytest.raises(Malformed):
                decode_request(frame[:size])


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
@pytest.mark.parametrize("filler", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"])
def test_no_memory_is_taken_for_a_count(message: Message, filler: bytes) -> None:
    for version in range(message.min_version, message.max_version + 1):
        frame = pack(">hhih", message.key, version, 7, -1) + filler * 200
        tracemalloc.start()
        try:
            decode_request(frame)
        except Malformed:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 1_000_000


@pytest.mark.parametrize("topics", [ELEMENTS_MAX + 1, 1_000])
def test_a_frame_has_so_many_elements_in_all(topics: int) -> None:
    """Two bytes that become a dict of hundreds are worth a stranger's while."""
    partitions = 0 if topics > ELEMENTS_MAX else ELEMENTS_MAX // topics
    body = {"topic_data": [{"name": "", "partition_data": [{}] * partitions}] * topics}
    with pytest.raises(Malformed, match=f"have more than {ELEMENTS_MAX} elements in all"):
        decode_request(encode_request(0, 9, 7, None, body))
    few = {"topic_data": body["topic_data"][: topics // 2]}
    assert len(decode_request(encode_request(0, 9, 7, None, few)).body["topic_data"]) == topics // 2


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"", "a frame of 0 bytes has no header"),
        (pack(">hhih", 0, 3, 7, 5) + b"ab", "client_id: it has 5 bytes, and 2 are left"),
        (pack(">hhih", 0, 3, 7, -2), "client_id: its length is -2"),
        (pack(">hhih", 0, 9, 7, -1), "tagged fields: the bytes end within them"),
        (pack(">hhihih", 3, 1, 7, -1, 1, -1), "topics[0].name: it is null"),
        (pack(">hhihih", 3, 1, 7, -1, 1, 1) + b"\xff", "topics[0].name: it is not UTF-8 at byte 0"),
        (pack(">hhihi", 3, 1, 7, -1, -7), "topics: its count is -7"),
        (pack(">hhihi", 3, 1, 7, -1, 9), "topics: 9 elements do not fit into the 0 bytes that are left"),
        (pack(">hhih", 18, 3, 7, -1) + b"\0\x01\x01\x01\x05\x09", "tagged fields: the field of tag 5 has 9 bytes"),
        (pack(">hhih", 18, 3, 7, -1) + b"\x01\xff\xff\xff\xff\x7f\0", "a number of variable length is above 32 bits"),
        (pack(">hhih", 18, 3, 7, -1) + b"\0\xff\xff\xff\xff\xff\x01", "client_software_name: a number of variable"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(frame: bytes, text: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode_request(frame)
    assert text in str(caught.value)


def test_what_follows_a_message_is_passed_over_in_requests_alone() -> None:
    frame = encode_request(3, 1, 7, None, {"topics": [{"name": "orders"}]})
    assert decode_request(frame + b"more") == decode_request(frame)
    with pytest.raises(Malformed, match="4 bytes follow the message"):
        decode_response(3, 1, encode_response(3, 1, 7, {}) + b"more")


def test_unknown_tagged_fields_are_passed_over() -> None:
    frame = pack(">hhih", 18, 3, 7, -1) + b"\x01\x63\x02ab" + b"\x04lib\x031." + b"\x02\x05\x01x\x06\x00"
    request = decode_request(frame)
    assert request.body == {"client_software_name": "lib", "client_software_version": "1."}


def test_a_known_tagged_field_has_just_its_bytes() -> None:
    body = {"error_code": 0, "finalized_features_epoch": 5}
    frame = encode_response(18, 3, 7, body)
    assert decode_response(18, 3, frame).body["finalized_features_epoch"] == 5
    at = frame.index(b"\x01\x01\x08")
    longer = frame[: at + 2] + b"\x09" + frame[at + 3 :] + b"\0"
    with pytest.raises(Malformed, match="finalized_features_epoch: it has 1 bytes too many"):
        decode_response(18, 3, longer)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (4, 0), (18, 5), (-1, 0), (18, -1)])
def test_what_is_not_in_the_tables_says_which_request_it_was(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(pack(">hhih", key, version, 77, -1))
    error = caught.value
    assert (error.api_key, error.api_version, error.correlation_id) == (key, version, 77)


def test_the_answer_to_too_new_a_version_is_read_in_the_oldest_form() -> None:
    body = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    assert decode_response(18, 4, encode_response(18, 0, 7, body)).body["api_keys"] == body["api_keys"]


def test_the_response_header_of_api_versions_has_no_tagged_fields() -> None:
    assert encode_response(18, 4, 7, {"error_code": 35})[:6] == pack(">ih", 7, 35)
    assert encode_response(3, 9, 7, {})[:5] == pack(">ib", 7, 0)


def test_produce_is_announced_from_the_first_version_and_read_from_the_third() -> None:
    assert APIS[0][2:] == (0, 13, 3)
    assert all(api.min_version == api.decoded_from for key, api in APIS.items() if key != 0)


def test_what_is_not_given_has_its_default() -> None:
    request = decode_request(encode_request(1, 12, 7, None, {"max_wait_ms": 5, "topics": [{"topic": "orders"}]}))
    assert request.client_id is None
    assert (request.body["max_wait_ms"], request.body["max_bytes"], request.body["session_epoch"]) == (5, 2**31 - 1, -1)
    assert request.body["topics"][0]["partitions"] == []


def test_defaults_are_not_shared() -> None:
    frame = encode_request(3, 1, 7, None, {"topics": []})
    response = encode_response(0, 3, 7, {"responses": [{"name": "a", "partition_responses": [{}, {}]}]})
    first, second = decode_response(0, 3, response).body["responses"][0]["partition_responses"]
    first["record_errors"].append(1)
    first["current_leader"]["leader_id"] = 5
    assert second["record_errors"] == []
    assert second["current_leader"]["leader_id"] == -1
    assert decode_request(frame).body == decode_request(frame).body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"acks": 2**15}, "acks, timeout_ms"),
        ({"topic": []}, "it has no topic"),
        ({"topic_data": [{"name": None}]}, "topic_data: name: it cannot be null in this version"),
        ({"topic_data": [{"name": "x" * 2**15}]}, "topic_data: name: 32768 bytes of text do not fit"),
        ({"topic_data": [{"name": 5}]}, "topic_data: name"),
        ({"topic_data": None}, "topic_data: it cannot be null in this version"),
    ],
)
def test_a_body_that_does_not_fit_is_told_with_its_place(body: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode_request(0, 3, 7, None, body)


def test_an_id_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="topic_id: it has 3 bytes, not 16"):
        encode_request(0, 13, 7, None, {"topic_data": [{"topic_id": b"abc"}]})


def test_records_are_neither_read_nor_written_by_copies() -> None:
    frame = bytearray(encode_request(0, 9, 7, None, PRODUCE))
    records = decode_request(frame).body["topic_data"][0]["partition_data"][0]["records"]
    frame[frame.index(b"rrr")] = ord("R")
    assert bytes(records[:3]) == b"Rrr"

    large = b"l" * PIECE_BYTES_MIN
    body = {"responses": [{"partitions": [{"records": [b"ab", large]}, {"records": None}, {"records": large}]}]}
    pieces = response_pieces(1, 12, 7, body)
    assert b"".join(pieces) == encode_response(1, 12, 7, body)
    assert [len(piece) for piece in pieces][1::2] == [len(large)] * 2
    assert all(piece.obj is large for piece in pieces[1::2] if isinstance(piece, memoryview))
    assert sum(isinstance(piece, memoryview) for piece in pieces) == 2
