"""Fetch sessions over the wire: what is said once is read on, and answers name what is new."""

import time
from typing import Any

import pytest
from http_rig import Http
from kafka import KafkaConsumer
from kafka import TopicPartition as Position
from kafka_rig import FETCH, METADATA, WAIT_SECONDS, Tape, batch, publish

from siltlog.infra.kafka.errors import KafkaError

Both = tuple[Http, str, Any]
TAKEN = "silt_kafka_session_partitions"


def asked(session: tuple[int, int], topics: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    session_id, epoch = session
    own = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, **more}
    return {**own, "session_id": session_id, "session_epoch": epoch, "topics": topics}


def wanted(topic: dict[str, Any], *offsets: tuple[int, int]) -> dict[str, Any]:
    """Partitions of a topic, each with its next offset."""
    parts = [{"partition": at, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for at, offset in offsets]
    return {**topic, "partitions": parts}


def told(answer: dict[str, Any]) -> dict[int, tuple[int, int, bool]]:
    """Error, high watermark, and whether there are records, of each partition that an answer names."""
    return {
        part["partition_index"]: (part["error_code"], part["high_watermark"], bool(part["records"]))
        for topic in answer["responses"]
        for part in topic["partitions"]
    }


@pytest.mark.rule("KF21")
@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_session_is_told_what_is_new(both: Both, version: int) -> None:
    http, bootstrap, _ = both
    name = f"session-{version}"
    http.create(name, 3)
    with Tape(bootstrap) as tape:
        [found] = tape.ask(METADATA, 12, topics=[{"name": name}])["topics"]
        topic = {"topic_id": found["topic_id"]} if version >= 13 else {"topic": name}
        answer = tape.ask(FETCH, version, **asked((0, 0), [wanted(topic, (0, 0), (1, 0), (2, 0))]))
        number = answer["session_id"]
        assert number > 0
        assert told(answer) == {0: (0, 0, False), 1: (0, 0, False), 2: (0, 0, False)}
        assert http.metrics()[TAKEN] == 3
        assert told(tape.ask(FETCH, version, **asked((number, 1), []))) == {}
        tape.ask(0, 9, **publish(name, batch(b"x"), partition=1))
        answer = tape.ask(FETCH, version, **asked((number, 2), []))
        assert (answer["session_id"], told(answer)) == (number, {1: (0, 1, True)})
        assert told(tape.ask(FETCH, version, **asked((number, 3), [wanted(topic, (1, 1))]))) == {}
        # A reader behind the end of the log is told so each time.
        behind = {2: (KafkaError.OFFSET_OUT_OF_RANGE, 0, False)}
        for epoch, parts in ((4, [wanted(topic, (2, 9))]), (5, [])):
            assert {at: (code, 0, more) for at, (code, _, more) in
                    told(tape.ask(FETCH, version, **asked((number, epoch), parts))).items()} == behind  # fmt: skip
        assert told(tape.ask(FETCH, version, **asked((number, 6), [wanted(topic, (2, 0))]))) == {2: (0, 0, False)}
        wrong = tape.ask(FETCH, version, **asked((number, 9), []))
        assert (wrong["error_code"], wrong["responses"]) == (KafkaError.INVALID_FETCH_SESSION_EPOCH, [])
        forgotten = [{**topic, "partitions": [0, 1]}]
        tape.ask(FETCH, version, **asked((number, 7), [], forgotten_topics_data=forgotten))
        tape.ask(0, 9, **publish(name, batch(b"y"), partition=0))
        assert told(tape.ask(FETCH, version, **asked((number, 8), []))) == {}
        assert http.metrics()[TAKEN] == 1
        last = tape.ask(FETCH, version, **asked((number, -1), [wanted(topic, (0, 0))]))
        assert (last["session_id"], told(last)) == (0, {0: (0, 1, True)})
        gone = tape.ask(FETCH, version, **asked((number, 9), []))
        assert gone["error_code"] == KafkaError.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.rule("KF21")
def test_a_session_waits_for_what_comes_and_ends_with_its_connection(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("session-waits", 2)
    with Tape(bootstrap) as tape:
        topic = {"topic": "session-waits"}
        number = tape.ask(FETCH, 11, **asked((0, 0), [wanted(topic, (0, 0), (1, 0))]))["session_id"]
        tape.send(FETCH, 11, **asked((number, 1), [], max_wait_ms=20_000, min_bytes=1))
        http.publish("session-waits", {"value": "x", "partition": 1})
        assert told(tape.answer(FETCH, 11)) == {1: (0, 1, True)}
        with Tape(bootstrap) as other:
            stolen = other.ask(FETCH, 11, **asked((number, 2), []))
            assert stolen["error_code"] == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    end = time.monotonic() + WAIT_SECONDS
    while http.metrics()[TAKEN]:
        assert time.monotonic() < end, "what a session took is not given back"


@pytest.mark.rule("KF21")
def test_a_topic_that_is_made_again_is_another_to_a_session_of_ids(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("session-again")
    with Tape(bootstrap) as tape:
        [found] = tape.ask(METADATA, 12, topics=[{"name": "session-again"}])["topics"]
        first = tape.ask(FETCH, 13, **asked((0, 0), [wanted({"topic_id": found["topic_id"]}, (0, 0))]))
        assert http.call("DELETE", "/v1/topics/session-again").status == 204
        http.create("session-again")
        http.publish("session-again", {"value": "x"})
        answer = tape.ask(FETCH, 13, **asked((first["session_id"], 1), []))
        assert told(answer) == {0: (KafkaError.UNKNOWN_TOPIC_ID, -1, False)}
        assert answer["responses"][0]["topic_id"] == found["topic_id"]


@pytest.mark.rule("KF21")
def test_a_python_client_reads_by_a_session(both: Both) -> None:
    http, bootstrap, _ = both
    http.create("session-read", 3)
    at = [Position("session-read", partition) for partition in range(3)]
    reads = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", fetch_max_wait_ms=50
    )
    reads.assign(at)
    found: list[tuple[int, bytes]] = []
    end = time.monotonic() + WAIT_SECONDS
    for number in range(6):
        http.publish("session-read", {"value": str(number), "partition": number % 2})
        while len(found) <= number:
            assert time.monotonic() < end
            for position, records in reads.poll(1000).items():
                found += [(position.partition, record.value) for record in records]
    assert found == [(number % 2, b"%d" % number) for number in range(6)]
    assert http.metrics()[TAKEN] == 3
    reads.close()
