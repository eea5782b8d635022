"""Groups whose next records were removed, against a real server with its embedded Valkey."""

import json
import random
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import urllib3

from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.options import Reset
from siltlog.consumers.library.sources.choice import Read
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.errors import OffsetOutOfRange, Refused
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

RECORDS = 10
COMMITTED = 2
START = 6


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def group(url: str) -> str:
    """A group, and a topic of its name, whose committed offset lies below the log start."""
    name = f"below-{uuid.uuid4()}"
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic(name)
        for number in range(RECORDS):
            producer.send(name, b"%d" % number)
        producer.flush()
        admin.set_group_offsets(name, {TopicPartition(name, 0): COMMITTED})
        assert admin.delete_records(name, 0, START)["log_start_offset"] == START
    return name


def poll(url: str, group: str, reset: str, member: str = "", **more: Any) -> dict[str, Any]:
    body = {"generation": 0, "topics": [group], "auto_offset_reset": reset, "wait_ms": 1_000, **more}
    path = f"{url}/v1/groups/{group}/members/{member or uuid.uuid4()}/poll"
    reply = urllib3.request("POST", path, body=json.dumps(body), headers={"Content-Type": "application/json"})
    assert reply.status == 200, reply.data
    document: dict[str, Any] = reply.json()
    return document


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_goes_on_with_what_is_there(url: str, group: str, reset: Reset) -> None:
    with Consumer(url, group=group, topics=[group], auto_offset_reset=reset, stop_at="latest") as consumer:
        found = [record.offset for record in consumer]
    assert found == list(range(START, RECORDS)), "the policy `latest` skips nothing that a group has not read"
    with Admin(url) as admin:
        assert admin.group_offsets(group) == {TopicPartition(group, 0): RECORDS}


def test_with_the_policy_error_it_is_an_error(url: str, group: str) -> None:
    with (
        Consumer(url, group=group, topics=[group], auto_offset_reset="error") as consumer,
        pytest.raises(OffsetOutOfRange, match=f"{START} \\(log start\\)"),
    ):
        for _ in range(10):
            consumer.poll(timeout_ms=2_000)


def test_a_poll_over_http(url: str, group: str) -> None:
    assert [record["offset"] for record in poll(url, group, "earliest")["records"]] == list(range(START, RECORDS))


def test_a_poll_over_http_with_the_policy_error(url: str, group: str) -> None:
    document = poll(url, group, "error")
    (partition,) = document["partitions"]
    assert not document["records"] and partition["log_start_offset"] == START
    assert partition["error"]["error_code"] == "offset_out_of_range"


def test_what_was_deleted_while_it_was_handled_can_be_committed(url: str, group: str) -> None:
    with Admin(url) as admin:
        with Consumer(url, group=group, topics=[group], auto_commit=False) as consumer:
            while not (found := consumer.poll(max_records=1, timeout_ms=60_000)):
                pass
            admin.delete_records(group, 0, RECORDS - 1)
            consumer.commit()
        assert admin.group_offsets(group) == {TopicPartition(group, 0): found[0].offset + 1}
        member = str(uuid.uuid4())
        first = poll(url, group, "earliest", member, max_records=1)
        admin.delete_records(group, 0, "latest")
        commit = [{"topic": group, "partition": 0, "offset": START + 2}]
        again = poll(url, group, "earliest", member, generation=first["generation"], commit=commit, wait_ms=0)
        assert again["partitions"][0]["next_offset"] == RECORDS and not again["records"]


def test_an_offset_below_the_log_start_is_refused_where_no_member_read_it(url: str, group: str) -> None:
    with Admin(url) as admin, pytest.raises(Refused, match=f"which has {START} to {RECORDS}"):
        admin.set_group_offsets(group, {TopicPartition(group, 0): START - 1})


def test_lag_counts_what_can_be_read(url: str, group: str) -> None:
    with Admin(url) as admin:
        (partition,) = admin.group(group)["partitions"]
    assert partition["lag"] == RECORDS - START


def test_a_consumer_that_is_overtaken_goes_on_at_the_log_start(url: str, group: str) -> None:
    with Admin(url) as admin, Consumer(url, group=group, topics=[group]) as consumer:
        first = consumer.poll(max_records=1, timeout_ms=10_000)
        assert [record.offset for record in first] == [START]
        admin.delete_records(group, 0, "latest")
        with Producer(url) as producer:
            producer.send(group, b"new")
        found: list[int] = []
        for _ in range(20):
            found += [record.offset for record in consumer.poll(timeout_ms=1_000)]
            if RECORDS in found:
                break
    assert found[-1] == RECORDS and found == sorted(found), "what had been fetched before may still be handed out"


@pytest.mark.parametrize("read", ["server", "table"])
def test_a_scan_that_is_overtaken_misses_only_what_was_deleted(url: str, read: Read) -> None:
    topic, end = f"scanned-{uuid.uuid4()}", 3_000
    chance = random.Random(7)
    starts = {0}
    seen = [-1]
    with Admin(url) as admin, Producer(url, acks="table") as producer:
        admin.create_topic(topic)
        for first in range(0, end, 300):
            producer.send_batch(topic, pa.table({"value": [b"%d" % n for n in range(first, first + 300)]}))
            producer.flush()
        with Consumer(url, assign=[TopicPartition(topic, 0)], read=read, stop_at="latest") as consumer:
            while seen[-1] < end - 1:
                found = [record.offset for record in consumer.poll(max_records=60, timeout_ms=60_000)]
                assert found, f"nothing came after {seen[-1]}"
                seen += found
                if chance.random() < 0.4:
                    start = min(max(seen[-1] + chance.randint(-50, 200), *starts), end - 1)
                    assert admin.delete_records(topic, 0, start)["log_start_offset"] == start
                    starts.add(start)
    jumps = [after for before, after in pairwise(seen) if after != before + 1]
    assert len(starts) > 5 and set(jumps) <= starts and seen == sorted(set(seen))
