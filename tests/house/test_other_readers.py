"""A topic's table, by readers of Delta that know nothing of Siltlog."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import urllib3
from record_tables import CLEANED_RECORDS, cleaned_topic
from s3_server import S3Server

import siltlog
from siltlog import Admin, Producer
from siltlog.infra import names
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.pipelines.compaction.compact import compact_topics
from siltlog.testing import running_server

DATASET = """
from urllib.parse import urlsplit
from deltalake import DeltaTable
from pyarrow import fs

def dataset(uri):
    place = urlsplit(uri)
    if place.scheme == "s3":
        endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
        files, folder = fs.S3FileSystem(endpoint_override=endpoint, scheme="http"), place.netloc + place.path
    else:
        files, folder = fs.FileSystem.from_uri(uri)
    return DeltaTable(uri).to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, files))
"""
"""Threads that read by deltalake's own file system, which is in Python, abort some interpreters that end meanwhile."""
READERS = {
    "deltalake": f"""{DATASET}
import pyarrow.compute as pc
found = dataset(uri).to_table(columns=["offset", "value"])
print(json.dumps([found.num_rows, pc.max(found["offset"]).as_py(), str(found.schema.field("value").type)]))
""",
    "polars": """
import polars
found = polars.scan_delta(uri).select(polars.len(), polars.col("offset").max(), polars.col("value")).head(1).collect()
print(json.dumps([found["len"][0], found["offset"][0], str(found.schema["value"]).lower()]))
""",
    "duckdb": f"""{DATASET}
import duckdb
topic = dataset(uri)
found = duckdb.sql('SELECT count(*), max("offset"), lower(typeof(any_value(value))) FROM topic')
print(json.dumps(found.fetchall()[0]))
""",
}
CONDITIONS = {
    "deltalake on a condition": f"""{DATASET}
import pyarrow.dataset as ds
fits = (ds.field("sequence") >= 30, ds.field("producer_id").is_null(), ds.field("producer_epoch") == 0)
print(json.dumps([dataset(uri).count_rows(filter=each) for each in fits]))
""",
    "polars on a condition": """
from polars import col, len, scan_delta
fits = (col("sequence") >= 30, col("producer_id").is_null(), col("producer_epoch") == 0)
print(json.dumps([scan_delta(uri).filter(each).select(len()).collect().item() for each in fits]))
""",
    "duckdb on a condition": f"""{DATASET}
import duckdb
topic = dataset(uri)
fits = ("sequence >= 30", "producer_id IS NULL", "producer_epoch = 0")
print(json.dumps([duckdb.sql(f"SELECT count(*) FROM topic WHERE {{each}}").fetchall()[0][0] for each in fits]))
""",
}
BINARY = {"deltalake": "binary", "polars": "binary", "duckdb": "blob"}


def read_by(reader: str, uri: str, **environment: str) -> list[object]:
    program = f"import json, os, sys\nuri = sys.argv[1]\n{(READERS | CONDITIONS)[reader]}"
    ran = subprocess.run(
        [sys.executable, "-c", program, uri],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr
    found: list[object] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_any_reader_of_delta_reads_a_topic() -> None:
    """Two files, and what is left when the first was removed."""
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=50) as server:
        with Admin(server.url) as admin:
            admin.create_topic("events", 1)
        for first in (0, 50):
            with Producer(server.url, acks="table") as producer:
                producer.send_batch("events", pa.table({"value": [f"v{n}" for n in range(first, first + 50)]}))
        uri = siltlog.table_uri("events", server.url)
        for reader in READERS:
            assert read_by(reader, uri) == [100, 99, BINARY[reader]], reader
        with Admin(server.url) as admin:
            admin.delete_records("events", 0, 50)
        for reader in READERS:
            assert read_by(reader, uri) == [50, 99, BINARY[reader]], reader


@pytest.mark.slow
@pytest.mark.rule("T24")
def test_conditions_on_columns_without_statistics_hide_no_record() -> None:
    """Some records have a producer, and some have none."""
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=50) as server:
        with Admin(server.url) as admin:
            admin.create_topic("told", 1)
        with Producer(server.url, acks="table") as producer:
            producer.send_batch("told", pa.table({"value": [f"v{n}" for n in range(50)]}))
        records = [{"value": f"v{n}"} for n in range(30)]
        url = f"{server.url}/v1/topics/told/records?acks=table"
        assert urllib3.request("POST", url, json={"records": records}).status == 200
        uri = siltlog.table_uri("told", server.url)
        for reader in CONDITIONS:
            assert read_by(reader, uri) == [20, 30, 50], reader


@pytest.mark.slow
def test_no_reader_of_delta_minds_an_entry_below_where_the_log_was_cleaned(tmp_path: Path) -> None:
    cleaned_topic(open_store(tmp_path.as_uri()))
    uri = (tmp_path / names.topic_path("t")).as_uri()
    for reader in READERS:
        assert read_by(reader, uri) == [CLEANED_RECORDS, CLEANED_RECORDS - 1, BINARY[reader]], reader


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.slow
def test_any_reader_of_delta_reads_what_compaction_wrote_to_s3(spark: Any, s3_server: S3Server) -> None:
    """Five files of the same ten keys, of which Spark left the last of each, in one file."""
    settings = {"root": s3_server.root_uri("readers"), "s3_endpoint": s3_server.endpoint}
    with running_server(redis_url="redis://127.0.0.1:1/0", flush_ms=50, **settings) as server:
        with Admin(server.url) as admin:
            admin.create_topic("latest", 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
        for first in range(0, 50, 10):
            # Without a producer: of one's records none goes before a server has noted what they tell of it.
            records = [{"key": f"k{n}", "value": f"v{first + n}"} for n in range(10)]
            url = f"{server.url}/v1/topics/latest/records?acks=table"
            assert urllib3.request("POST", url, json={"records": records}).status == 200
        [compacted] = compact_topics(ServerSettings(**settings), ["latest"])
        assert compacted.error is None
        uri = siltlog.table_uri("latest", server.url)
        reached = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        for reader in READERS:
            assert read_by(reader, uri, **reached) == [10, 49, BINARY[reader]], reader
