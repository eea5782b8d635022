"""A request that names very many things is answered for each of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from http_rig import Http
from kafka_rig import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Tape, batch

from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.frames import decode_response, encode_request

COUNT = 5_000
UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module", autouse=True)
def topic(both: tuple[Http, str, Any]) -> None:
    both[0].create("few", 2)


def fetched() -> dict[str, Any]:
    parts = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1} for number in range(COUNT)]
    topics = [{"topic": "few", "partitions": parts}]
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics}


def produced() -> dict[str, Any]:
    records = batch(b"x")
    parts = [{"index": number % 4, "records": records} for number in range(COUNT)]
    return {"acks": -1, "timeout_ms": 60_000, "topic_data": [{"name": "few", "partition_data": parts}]}


def listed() -> dict[str, Any]:
    parts = [{"partition_index": number, "timestamp": -1} for number in range(COUNT)]
    return {"topics": [{"name": "few", "partitions": parts}]}


def committed() -> dict[str, Any]:
    parts = [{"partition_index": number, "committed_offset": 0, "committed_metadata": ""} for number in range(COUNT)]
    return {"group_id": "g", "topics": [{"name": "few", "partitions": parts}]}


def cut() -> dict[str, Any]:
    parts = [{"partition_index": 2 + number, "offset": 0} for number in range(COUNT)]
    return {"timeout_ms": 60_000, "topics": [{"name": "few", "partitions": parts}]}


def described() -> dict[str, Any]:
    resources = [{"resource_type": 2, "resource_name": f"absent-{number}"} for number in range(COUNT)]
    return {"resources": resources}


def named() -> dict[str, Any]:
    topics = [{"name": f"absent-{number}"} for number in range(COUNT)]
    return {"topics": topics, "allow_auto_topic_creation": False}


def codes(value: Any) -> Iterator[int]:
    """The error codes of an answer."""
    if isinstance(value, list):
        for each in value:
            yield from codes(each)
    elif isinstance(value, dict):
        if "error_code" in value:
            yield value["error_code"]
        for each in value.values():
            if isinstance(each, list):
                yield from codes(each)


@pytest.mark.parametrize(
    ("key", "version", "body", "good"),
    [
        (FETCH, 11, fetched(), 2),
        (PRODUCE, 9, produced(), COUNT // 2),
        (LIST_OFFSETS, 5, listed(), 2),
        (8, 8, committed(), 2),
        (21, 2, cut(), 0),
        (32, 3, described(), 0),
        (METADATA, 9, named(), 0),
    ],
    ids=["fetch", "produce", "offsets", "committed", "deleted", "settings", "metadata"],
)
def test_each_has_its_answer(
    both: tuple[Http, str, Any], key: int, version: int, body: dict[str, Any], good: int
) -> None:
    with Tape(both[1]) as tape:
        tape.frame(encode_request(key, version, 1, "many", body))
        answer = decode_response(key, version, tape.received()).body
    told = [code for code in codes(answer) if code != 0 or key != FETCH]
    assert len([code for code in told if code == UNKNOWN]) == COUNT - good
