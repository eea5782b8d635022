"""What the code asks of S3, counted before a real S3 server, is what is reckoned; a budget of it is kept."""

import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counted_s3 import CountedS3, counted_s3
from http_rig import NO_REDIS
from s3_server import S3Server

from docs.site.costs_tables import tables
from siltlog import Admin, Producer
from siltlog.infra.store import costs
from siltlog.infra.store.costs import Asked, Requests, asked
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

FLUSHES = 40
NEAR = 0.15
"""How far averages of a few flushes may be from those of many: they have fewer entries and checkpoints."""


@pytest.fixture
def counted(s3_server: S3Server) -> Iterator[CountedS3]:
    with counted_s3(s3_server.endpoint) as counted:
        yield counted


def served(counted: CountedS3, s3_server: S3Server, folder: Path, **settings: Any) -> Any:
    return running_server(
        data_dir=folder / "data",
        root=s3_server.root_uri(folder.name),
        s3_endpoint=counted.endpoint,
        s3_region=s3_server.region,
        redis_url=NO_REDIS,
        schedule="off",
        **settings,
    )


def told(server: ServerProcess) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics") as reply:
        return str(reply.read().decode())


def billed(counts: Counter[str]) -> Requests:
    return Requests(counts["put"] + counts["list"], counts["get"] + counts["head"])


@pytest.mark.slow
@pytest.mark.s3
def test_a_flush_asks_what_is_reckoned(counted: CountedS3, s3_server: S3Server, tmp_path: Path) -> None:
    with served(counted, s3_server, tmp_path, flush_ms=3_600_000, flush_files_per_hour=-1) as server:
        with Admin(server.url) as admin:
            admin.create_topic("t")
            admin.create_topic("o", config={"acks": "object"})
        before, counts, began = told(server), counted.counts(), time.monotonic()
        publish(server, "t", FLUSHES, "table")
        after, total, seconds = told(server), counted.counts() - counts, time.monotonic() - began
        assert counted.counts("topics/t/")["put"] >= 2 * FLUSHES
        objects = counted.counts("/wal/")["put"]
        publish(server, "o", 5, "")
        assert counted.counts("/wal/")["put"] - objects == 5
    idle = Requests().plus(costs.IDLE_NODE, seconds).plus(costs.IDLE_TOPIC, 2 * seconds)
    reckoned = idle.plus(costs.flush(1), FLUSHES)
    found = billed(total)
    assert found.writes == pytest.approx(reckoned.writes, rel=NEAR)
    assert found.reads == pytest.approx(reckoned.reads, rel=2 * NEAR)
    seen = asked(after)
    earlier = asked(before)
    assert seen.flushes - earlier.flushes == FLUSHES
    assert seen.requests.writes - earlier.requests.writes == pytest.approx(found.writes, rel=NEAR)
    assert seen.requests.reads - earlier.requests.reads == pytest.approx(found.reads, rel=2 * NEAR)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.rule("F8")
def test_a_server_keeps_to_its_budget(counted: CountedS3, s3_server: S3Server, tmp_path: Path) -> None:
    """Records that nobody waits for, in three topics that would each be flushed twice a second."""
    dollars = 20
    with served(counted, s3_server, tmp_path, flush_ms=500, flush_files_per_hour=-1, requests_budget=dollars) as server:
        topics = ("a", "b", "c")
        with Admin(server.url) as admin, Producer(server.url, linger_ms=0) as producer:
            for topic in topics:
                admin.create_topic(topic)
            began = time.monotonic()
            while time.monotonic() - began < 10:
                for topic in topics:
                    producer.send(topic, "x")
                producer.flush()
                time.sleep(0.05)
            text, passed = told(server), time.monotonic() - began
            entries = [key for kind, key in counted.requests("_delta_log/0000") if kind == "put" and "json" in key]
            publish(server, "a", 1, "table")  # whoever waits is answered all the same
    flushes = asked(text).flushes
    budget = dollars / costs.SECONDS_PER_MONTH * (passed + 10)
    price = costs.flush(1).dollars
    assert flushes <= len(entries)
    assert budget - 3 * price <= flushes * price <= budget + 2 * price
    each = Counter(key.split("/topics/")[1].split("/")[0] for key in entries)
    assert max(each[topic] for topic in topics) - min(each[topic] for topic in topics) <= 3


def publish(server: ServerProcess, topic: str, count: int, acks: str) -> None:
    query = f"?acks={acks}" if acks else ""
    for number in range(count):
        body = b'{"records": [{"value": "%d"}]}' % number
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.url}/v1/topics/{topic}/records{query}", body, headers)
        urllib.request.urlopen(request).close()


def test_the_page_has_the_tables_that_are_reckoned() -> None:
    page = (Path(__file__).parents[3] / "docs" / "costs.md").read_text("utf-8")
    for table in tables():
        assert table in page


def test_a_rate_is_between_two_looks_at_one_server() -> None:
    def look(puts: int, gets: int, flushes: int, started: float = 100.0) -> Asked:
        return asked(
            f"process_start_time_seconds {started}\nsilt_flush_seconds_count {flushes}.0\n"
            f'silt_store_seconds_count{{request="put"}} {puts}.0\nsilt_store_seconds_count{{request="get"}} {gets}.0\n'
            'silt_store_seconds_count{request="delete"} 1000.0\n'
        )

    rate = look(40, 80, 20).per_second(look(20, 40, 10), 10)
    assert rate is not None
    assert rate.writes == pytest.approx(2 + costs.COMMIT_UNSEEN.writes)
    assert rate.reads == pytest.approx(4 + costs.COMMIT_UNSEEN.reads)
    assert look(4, 8, 2, started=200.0).per_second(look(20, 40, 10), 10) is None
    assert look(4, 8, 2).per_second(None, 0) is None
    assert costs.month_of(Requests(writes=1)) == pytest.approx(12.96)
    assert costs.stored_month(2**40) == pytest.approx(23.552)
