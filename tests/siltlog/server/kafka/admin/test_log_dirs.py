"""How much there is of each partition, and how much room is left."""

import time
from typing import Any

from http_rig import Http
from kafka_rig import WAIT_SECONDS, Tape, producer

LOG_DIRS, ACLS = 35, 29


def sizes(tape: Tape, topics: list[dict[str, Any]] | None, version: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    answer = tape.ask(LOG_DIRS, version, topics=topics)
    [found] = answer["results"]
    return found, {
        each["name"]: {part["partition_index"]: part["partition_size"] for part in each["partitions"]}
        for each in found["topics"]
    }


def test_a_partition_has_the_bytes_of_its_table_and_of_what_waits_for_it(http: Http, bootstrap: str) -> None:
    http.create("waits", 2, flush_ms=600_000)
    http.create("sized", 2)
    with producer(bootstrap) as sends:
        for topic in ("waits", "sized"):
            sends.produce(topic, b"x" * 1000, partition=1)
    with Tape(bootstrap) as tape:
        found, told = sizes(tape, [{"topic": "waits", "partitions": [0, 1]}])
        assert (list(told), told["waits"][0]) == (["waits"], 0)
        assert told["waits"][1] >= 1000
        assert found["total_bytes"] > found["usable_bytes"] > 0
        end = time.monotonic() + WAIT_SECONDS
        while http.get("/v1/topics/sized").json["files"] == 0:
            assert time.monotonic() < end
            time.sleep(0.02)
        described = http.get("/v1/topics/sized").json["offsets"][1]
        _, told = sizes(tape, [{"topic": "sized", "partitions": [1]}, {"topic": "absent", "partitions": [0]}])
        assert told == {"sized": {1: described["bytes"] + described["wal_bytes"]}}
        assert described["bytes"] > 0
        _, every = sizes(tape, None, 1)
        assert {"waits", "sized"} <= set(every)
        assert set(every["sized"]) == {0, 1}


def test_a_client_of_python_reads_them(http: Http, python_admin: Any) -> None:
    http.create("python-sized")
    assert "python-sized" in str(python_admin.describe_log_dirs())


def test_there_are_no_access_lists_of_kafka(bootstrap: str) -> None:
    with Tape(bootstrap) as tape:
        answer = tape.ask(ACLS, 3, resource_type_filter=1, operation=1, permission_type=1, pattern_type_filter=1)
    assert answer["error_code"] == 54
    assert "silt access" in answer["error_message"]
