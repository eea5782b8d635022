"""`silt access log`: what was done is told, and whatever was touched of it in the table is named."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from access_rig import Secured, secured_server

from siltlog.cli.main import run
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.store.store import open_store
from siltlog.infra.table.data_file import read_data_file, write_data_file
from siltlog.infra.table.table import TopicTable

Capture = pytest.CaptureFixture[str]
Rows = list[dict[str, Any]]


@pytest.fixture
def secured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    with secured_server() as found:
        monkeypatch.setenv("SILT_TOKEN", str(found.admin.token))
        monkeypatch.setenv("SILT_URL", found.server.url)
        monkeypatch.setenv("SILT_DATA_DIR", str(found.server.data_dir))
        for topic in ("one", "two", "three"):
            found.admin.create(topic)
        yield found


def verified(capsys: Capture, *options: str) -> tuple[int, list[tuple[str, int | None]]]:
    capsys.readouterr()
    status = run(["access", "log", "--verify", *options, "--output", "json"])
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["ok"] == (status == 0), told.err
    return status, [(fault["fault"], fault["offset"]) for fault in document["faults"]]


def tamper(secured: Secured, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], Rows]) -> None:
    """Writes the table anew, as somebody can who may write the bucket."""
    secured.server.stop()
    store = open_store((Path(secured.server.data_dir) / "lake").as_uri())
    clock = SystemClock()
    table = TopicTable.open(store, names.AUDIT_TOPIC, clock)
    files = table.snapshot.files_of(0)
    columns = FILE_SCHEMA.names
    whole = pa.concat_tables(
        [read_data_file(store, names.AUDIT_TOPIC, file, columns=columns, first_offset=0) for file in files]
    )
    rows = pa.Table.from_pylist(change(whole.select(columns).cast(FILE_SCHEMA).to_pylist()), schema=FILE_SCHEMA)
    now_ms = clock.now_us() // 1000
    written = write_data_file(store, names.AUDIT_TOPIC, 0, rows, compression="zstd", now_ms=now_ms)
    # Whoever does this writes the table's log as he likes.
    monkeypatch.setattr("siltlog.infra.table.table.compare_totals", lambda *_: None)
    monkeypatch.setattr("siltlog.infra.table.table.check_cover", lambda *_: None)
    table.rewrite(table.snapshot.version, files, [written], str(uuid.uuid4()))
    secured.server.restart()
    secured.again()
    monkeypatch.setenv("SILT_URL", secured.server.url)


def edited(rows: Rows) -> Rows:
    rows[2]["value"] = rows[2]["value"].replace(b"topic/two", b"topic/six")
    return rows


def swapped(rows: Rows) -> Rows:
    rows[2]["value"], rows[3]["value"] = rows[3]["value"], rows[2]["value"]
    return rows


@pytest.mark.rule("A1")
def test_what_was_done_is_told_and_whole(secured: Secured, capsys: Capture, tmp_path: Path) -> None:
    assert run(["access", "log", "--output", "json", "--since", "1h"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["operation"], each["resource"], each["outcome"]) for each in told[:2]] == [
        ("createTopic", "topic/one", "begun"),
        ("createTopic", "topic/one", "done"),
    ]
    assert run(["access", "log", "--principal", "key:other", "--output", "json"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["access", "log"]) == 0
    assert "topic/three" in capsys.readouterr().out
    assert verified(capsys) == (0, [])
    other = tmp_path / "secret"
    other.write_text("another secret than the one that sealed it")
    other.chmod(0o600)
    status, faults = verified(capsys, "--secret-file", str(other))
    assert (status, {fault for fault, _ in faults}) == (3, {"edited"})
    assert run(["access", "log", "--verify", "--since", "1h"]) == 2
    assert run(["access", "log", "--anchor", "x"]) == 2


@pytest.mark.rule("A1")
@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (edited, [("edited", 2)]),
        (swapped, [("missing", 2), ("out_of_order", 3)]),
        (lambda rows: [row for row in rows if row["offset"] != 2], [("missing", 3)]),
    ],
    ids=["edited", "swapped", "removed"],
)
def test_what_was_touched_in_the_table_is_named(
    secured: Secured, capsys: Capture, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], Rows], faults: Any
) -> None:
    tamper(secured, monkeypatch, change)
    assert verified(capsys) == (3, faults)


@pytest.mark.rule("A1")
def test_an_end_that_was_cut_off_is_told_by_the_anchor(
    secured: Secured, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = secured.admin.get("/v1/access/audit").json
    tamper(secured, monkeypatch, lambda rows: rows[:-2])
    status, faults = verified(capsys, "--anchor", noted["anchor"])
    assert (status, faults[-1][0]) == (3, "cut")
    secured.admin.create("four")
    status, faults = verified(capsys)
    assert (status, [fault for fault, _ in faults]) == (3, ["missing"]), "and for ever after"
