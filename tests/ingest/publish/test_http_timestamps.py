"""Times in seconds are refused in every format, with what to do; old times that are meant, or stored, are taken."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_rig import Http

from siltlog import Consumer, Producer
from siltlog.cli.main import run
from siltlog.infra.errors import Refused
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

SECONDS = 1_795_286_433
AGO = "1950-07-01T00:00:00.000000Z"
MANY = 60
"""Enough to be read as columns."""
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(flush_ms=50) as running:
        yield running


@pytest.fixture
def http(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Http:
    monkeypatch.setenv("SILT_URL", server.url)
    monkeypatch.setenv("SILT_DATA_DIR", str(server.data_dir))
    return Http(server.url)


def made(http: Http, **config: Any) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    http.create(name, **config)
    return name


def sent(http: Http, topic: str, form: str, timestamp: int | str, **headers: str) -> Any:
    """Good records, then one with this time."""
    path = f"/v1/topics/{topic}/records"
    count = MANY if form.endswith("many") else 2
    if form == "blob":
        return http.call("POST", f"{path}?timestamp={timestamp}", b"v", Content_Type="application/octet-stream")
    good: list[dict[str, Any]] = [{"value": str(n), "timestamp": 1_795_286_433_000} for n in range(count - 1)]
    records = [*good, {"value": "x", "timestamp": timestamp}]
    if form.startswith("json"):
        return http.json("POST", path, {"records": records}, **headers)
    if form == "lines":
        lines = "\n".join(map(json.dumps, records)).encode()
        return http.call("POST", f"{path}?lines=record", lines, Content_Type="application/x-ndjson", **headers)
    times = pa.array([record["timestamp"] for record in records], pa.int64())
    table = pa.table({"value": [record["value"].encode() for record in records], "timestamp": times})
    return http.arrow(topic, table, **headers)


FORMS = ("json", "json many", "lines", "arrow", "arrow many", "blob")


@pytest.mark.rule("B8")
@pytest.mark.parametrize("form", FORMS)
def test_seconds_are_refused_and_what_allows_old_times_is_named(http: Http, form: str) -> None:
    topic = made(http)
    refused = sent(http, topic, form, SECONDS)
    assert (refused.status, refused.error_code) == (422, "invalid_record"), refused
    index = {"blob": 0}.get(form, MANY - 1 if form.endswith("many") else 1)
    assert refused.json["index"] == index
    for words in (f"record {index}: its timestamp", "1970-01-21T", "looks like seconds", "timestamp.before.max.ms"):
        assert words in refused.json["detail"]
    assert http.end(topic) == 0
    http.json("PATCH", f"/v1/topics/{topic}", {"config": {"timestamp.before.max.ms": -1}})
    assert sent(http, topic, form, SECONDS).status == 200


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", [10**6, 10**9], ids=["microseconds", "nanoseconds"])
def test_finer_units_are_refused(http: Http, form: str, times: int) -> None:
    refused = sent(http, made(http), form, SECONDS * times)
    assert refused.status == 422
    assert "timestamp" in refused.json["detail"] and "looks like microseconds" in refused.json["detail"]


@pytest.mark.parametrize("form", ["json", "json many", "lines", "blob"])
def test_history_of_past_decades_needs_nothing(http: Http, form: str) -> None:
    assert sent(http, made(http), form, "1980-01-01T00:00:00.000000Z").status == 200
    refused = sent(http, made(http), form, AGO)
    assert refused.status == 422 and "-1 all" in refused.json["detail"] and "seconds:" not in refused.json["detail"]


def test_what_was_stored_before_moves_unless_the_topic_itself_says_no(http: Http) -> None:
    topic = made(http)
    assert sent(http, topic, "arrow", SECONDS, Silt_Timestamps="stored").status == 200
    assert sent(http, topic, "json many", AGO, Silt_Timestamps="stored").status == 200
    wrong = sent(http, topic, "json", AGO, Silt_Timestamps="any")
    assert (wrong.status, wrong.json["parameter"]) == (400, "Silt-Timestamps")
    strict = made(http, timestamp_before_max_ms=86_400_000)
    assert sent(http, strict, "arrow", SECONDS, Silt_Timestamps="stored").status == 422


def old(http: Http) -> str:
    """A topic that took old times once, and does not any more."""
    topic = made(http, timestamp_before_max_ms=-1)
    assert http.publish(topic, {"value": "a", "timestamp": AGO}, {"value": "b"}, query="?acks=table").status == 200
    http.json("PATCH", f"/v1/topics/{topic}", {"config": {"timestamp.before.max.ms": None}})
    return topic


def test_replays_and_imports_keep_old_times(http: Http, tmp_path: Path, capsys: Capture) -> None:
    topic, again, back = old(http), made(http), made(http)
    assert run(["replay", "--topic", topic, "--into", again]) == 0
    assert run(["export", "--topic", topic, "--to", str(tmp_path / "out"), "--format", "ndjson"]) == 0
    assert run(["import", "--topic", back, str(tmp_path / "out")]) == 0
    for name in (again, back):
        assert next(record["timestamp"] for record in http.read(name, 0)) == AGO
    [file] = (tmp_path / "out").glob("*.ndjson")
    assert run(["import", "--topic", made(http), str(file), "--lines", "record"]) == 1
    assert "timestamp.before.max.ms" in capsys.readouterr().err, "a file of somebody's own is looked at"


def test_a_dead_letter_goes_back_with_its_old_time(http: Http, server: ServerProcess) -> None:
    topic = old(http)

    def handle(record: Any) -> None:
        raise ValueError

    with Consumer(server.url, group=f"g-{topic}", topics=[topic], stop_at="latest") as consumer:
        consumer.run(handle, max_attempts=1)
    assert run(["dlq", "replay", topic]) == 0
    assert [record["timestamp"] == AGO for record in http.read(topic, 0)] == [True, False, True, False]


def test_the_command_line_names_the_line_and_the_field(http: Http, tmp_path: Path, capsys: Capture) -> None:
    topic = made(http)
    lines = tmp_path / "events.ndjson"
    lines.write_text(f'{{"seen": {{"at": 1795286433000}}}}\n{{"seen": {{"at": {SECONDS}}}}}\n')
    assert run(["publish", topic, "--file", str(lines), "--timestamp-from", "/seen/at"]) == 1
    said = capsys.readouterr().err
    assert "events.ndjson: line 2: its timestamp, 'seen/at', 1970-01-21T" in said and "record " not in said
    lines.write_text('{"at": "soon"}\n')
    assert run(["publish", topic, "--file", str(lines), "--timestamp-from", "at"]) == 1
    assert "line 1: 'at': 'soon' is not a time" in capsys.readouterr().err
    for number, unit in ((SECONDS * 10**6, "microseconds"), (SECONDS * 10**9, "nanoseconds"), (SECONDS, "seconds")):
        pq.write_table(pa.table({"at": [1_795_286_433_000, number]}), tmp_path / "rows.parquet")
        assert run(["publish", topic, "--file", str(tmp_path / "rows.parquet"), "--timestamp-from", "at"]) == 1
        said = capsys.readouterr().err
        assert "row 2: " in said and "'at'" in said and unit in said, said


def test_a_producer_is_told_of_its_record(http: Http, server: ServerProcess) -> None:
    topic = made(http)
    with Producer(server.url, linger_ms=200) as producer:
        good = producer.send(topic, "a")
        bad = producer.send(topic, "b", timestamp=SECONDS)
        assert good.result().offset == 0
        with pytest.raises(Refused, match=r"^its timestamp, 1970-01-21T.* looks like seconds"):
            bad.result()
