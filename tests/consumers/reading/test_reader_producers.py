"""Records with their producers: from a log that moves meanwhile, and by every read of a real server."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fake_log import FakeLog
from http_rig import Http
from push_rig import tailing, talking

from siltlog.consumers.reading.budget import record_ends
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra import names
from siltlog.infra.columns import PRODUCED_SCHEMA, RECORD_SCHEMA
from siltlog.infra.store.local import LocalStore

OF = ["etl", None, "app", "etl"]
"""The producer of each record of a topic that `published` fills."""


@pytest.mark.parametrize("seed", range(6))
def test_each_record_has_its_own_producer_wherever_it_is_read(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    log = FakeLog(LocalStore(str(tmp_path)))
    view = log.create("flights").partitions[0]
    row_groups = RowGroups(log.store, bytes_max=dice.choice([0, 1 << 20]))
    fetcher = Fetcher(log, row_groups)
    sent: list[str | None] = []

    def move() -> None:
        match dice.randint(0, 2):
            case 0:
                ids = [dice.choice([None, "etl", "app"]) for _ in range(dice.randint(1, 4))]
                view.append([b"x"] * len(ids), producer_ids=ids if any(ids) or dice.random() < 0.5 else None)
                sent.extend(ids)
            case 1:
                view.flush(dice.randint(view.bounds().table_offset, view.high_watermark))
            case 2:
                view.evict()

    async def moves() -> None:
        move()

    async def read(producers: bool) -> list[pa.RecordBatch]:
        found, offset = [], 0
        while offset < (end := len(sent)):
            position = FetchPosition("flights", 0, offset)
            records = dice.randint(1, 9)
            result = await fetcher.fetch(
                [position], max_records=records, max_bytes=1 << 20, min_bytes=1, wait_ms=0, producers=producers
            )
            [part] = result.partitions
            assert part.error is None
            assert offset < part.next_offset <= end or view.high_watermark > end
            offset = part.next_offset
            found += part.batches
        return found

    async def test() -> None:
        for _ in range(12):
            move()
        log.pause = moves
        for producers in (True, False, True):
            found = await read(producers)
            schema = PRODUCED_SCHEMA if producers else RECORD_SCHEMA
            assert all(batch.schema == schema for batch in found)
            rows = pa.Table.from_batches(found, schema)
            offsets = rows.column("offset").to_pylist()
            assert offsets == list(range(len(offsets)))
            if producers:
                assert rows.column("producer_id").to_pylist() == sent[: len(offsets)]
                numbered = [offset if id_ else None for offset, id_ in zip(offsets, sent, strict=False)]
                assert rows.column("sequence").to_pylist() == numbered

    try:
        asyncio.run(test())
    finally:
        row_groups.close()


def test_the_ids_of_producers_count_against_the_bytes_of_a_reply() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"offset": at, "value": b"x", "producer_id": id_} for at, id_ in enumerate(["p" * 100, None, "q"])],
        schema=PRODUCED_SCHEMA,
    )
    more = record_ends(batch) - record_ends(batch.select(RECORD_SCHEMA.names))
    assert more.tolist() == [100, 100, 101]


@pytest.fixture
def topic(http: Http) -> str:
    name = f"produced-{uuid.uuid4().hex}"
    http.create(name)
    return name


def published(http: Http, topic: str) -> list[dict[str, Any] | None]:
    """Publishes a record of each of OF, and gives what each is to say of its producer."""
    told: list[dict[str, Any] | None] = []
    sequences: dict[str, int] = {}
    for id_ in OF:
        sequence = sequences.get(id_ or "", 0)
        own = {"Silt_Producer_Id": id_, "Silt_Producer_Epoch": "3", "Silt_Sequence": str(sequence)} if id_ else {}
        reply = http.publish(topic, {"value": "v", "partition": 0}, **own)
        assert reply.status == 200, reply
        sequences[id_ or ""] = sequence + 1
        told.append({"id": id_, "epoch": 3, "sequence": sequence} if id_ else None)
    return told


def settled(http: Http, topic: str) -> None:
    """All of it is in the table."""
    deadline = time.monotonic() + 60
    while http.bounds(topic)["table_offset"] < len(OF):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def records_of(http: Http, topic: str, query: str, accept: str) -> Any:
    reply = http.get(f"/v1/topics/{topic}/partitions/0/records?offset=0&{query}", Accept=accept)
    assert reply.status == 200, reply
    return reply


def by_json(http: Http, topic: str, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = records_of(http, topic, query, names.MEDIA_JSON).json["records"]
    return found


def by_lines(http: Http, topic: str, query: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in records_of(http, topic, query, names.MEDIA_NDJSON).body.splitlines()]


def by_events(http: Http, topic: str, query: str, count: int = len(OF)) -> list[dict[str, Any]]:
    with tailing(http.url, f"/v1/topics/{topic}/tail?offset=earliest&{query}") as stream:
        return stream.records(count)


def by_socket(http: Http, topic: str, query: str, count: int = len(OF)) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with talking(http.url, f"/v1/topics/{topic}/ws?offset=earliest&{query}") as socket:
        socket.say("credit", records=100)
        while len(found) < count:
            found += socket.until("records")["records"]
    return found


def by_search(http: Http, topic: str, **body: Any) -> list[dict[str, Any]]:
    reply = http.json("POST", f"/v1/topics/{topic}/search", body)
    assert reply.status == 200, reply
    return [line["record"] for line in map(json.loads, reply.body.splitlines()) if "record" in line]


@pytest.mark.parametrize("in_table", [False, True])
def test_every_read_says_it_where_it_is_asked_to_and_else_does_not(http: Http, topic: str, in_table: bool) -> None:
    told = published(http, topic)
    if in_table:
        settled(http, topic)
    reads: list[Callable[[Http, str, str], list[dict[str, Any]]]] = [by_json, by_lines, by_events, by_socket]
    for read in reads:
        assert [record["producer"] for record in read(http, topic, "producers=true")] == told, read
        assert all("producer" not in record for record in read(http, topic, "producers=false")), read
    assert [record["producer"] for record in by_search(http, topic, producers=True)] == told
    assert all("producer" not in record for record in by_search(http, topic))
    stream = pa.ipc.open_stream(records_of(http, topic, "producers=true", names.MEDIA_ARROW).body)
    assert stream.schema == PRODUCED_SCHEMA
    assert stream.read_all().column("producer_id").to_pylist() == OF
    assert pa.ipc.open_stream(records_of(http, topic, "", names.MEDIA_ARROW).body).schema == RECORD_SCHEMA


@pytest.mark.parametrize("in_table", [False, True])
def test_reads_that_filter_can_do_so_by_the_producer(http: Http, topic: str, in_table: bool) -> None:
    told = published(http, topic)
    if in_table:
        settled(http, topic)
    wanted = [(at, producer) for at, producer in enumerate(told) if producer and producer["id"] == "etl"]
    by_query = "producer_id=etl"
    for found in (
        by_search(http, topic, producer_id="etl"),
        by_search(http, topic, producer_id="etl", contains="v"),
        by_events(http, topic, by_query, len(wanted)),
        by_socket(http, topic, by_query, len(wanted)),
    ):
        assert [(record["offset"], record["producer"]) for record in found] == wanted
    assert by_search(http, topic, producer_id="nobody") == []
    assert by_search(http, topic, producer_id="etl", contains="other") == []


def test_what_says_its_producer_can_be_published_again(http: Http, topic: str) -> None:
    published(http, topic)
    lines = records_of(http, topic, "producers=true", names.MEDIA_NDJSON).body
    copy = f"{topic}-copy"
    http.create(copy)
    reply = http.call("POST", f"/v1/topics/{copy}/records?lines=record", lines, Content_Type=names.MEDIA_NDJSON)
    assert reply.status == 200, reply
    again = by_json(http, copy, "producers=true")
    assert [record["value"] for record in again] == ["v"] * len(OF)
    assert [record["producer"] for record in again] == [None] * len(OF)


def test_bare_values_have_no_place_for_a_producer(http: Http, topic: str) -> None:
    reply = http.get(f"/v1/topics/{topic}/partitions/0/records?lines=value&producers=true")
    assert (reply.status, reply.error_code) == (400, "invalid_parameter")
    assert reply.json["parameter"] == "producers"
