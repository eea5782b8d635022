"""What `silt publish` makes of arguments, lines and files."""

import io
import json
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_server import S3Server

from siltlog.cli.publish_input import KEYS_AT_ONCE, from_arguments, from_file, from_lines, keyed
from siltlog.infra.errors import Refused


def all_of(source: object) -> list[bytes]:
    return [value for run in source.values for value in run]  # type: ignore[attr-defined]


def test_an_argument_is_a_value() -> None:
    source = from_arguments(("a", "", "é"))
    assert (all_of(source), source.total) == ([b"a", b"", "é".encode()], 3)


@given(st.lists(st.binary().map(lambda line: line.replace(b"\n", b"").rstrip(b"\r")).filter(bytes.strip)))
def test_lines_come_byte_for_byte_whatever_ends_them(lines: list[bytes]) -> None:
    text = b"".join(line + (b"\r\n" if number % 2 else b"\n") for number, line in enumerate(lines))
    assert all_of(from_lines(io.BytesIO(text))) == lines
    assert all_of(from_lines(io.BytesIO(text.removesuffix(b"\n")))) == lines


def test_ndjson_is_kept_byte_for_byte_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    lines = [b'{"n":  %d}' % number for number in range(KEYS_AT_ONCE + 3)]
    file.write_bytes(b"\n\n".join(lines))
    assert all_of(from_file(str(file))) == lines
    file.write_bytes(b'{"n": 1}\n\n{"n": \n')
    with pytest.raises(Refused, match=r"events\.ndjson: line 3 is not JSON"):
        all_of(from_file(str(file)))


def test_rows_of_csv_and_parquet_become_the_same_objects(tmp_path: Path) -> None:
    table = pa.table({"carrier": ["UA", "AA"], "delay": [2, None]})
    pa.parquet.write_table(table, tmp_path / "flights.parquet")
    (tmp_path / "flights.csv").write_text("carrier,delay\nUA,2\nAA,\n")
    rows = [{"carrier": "UA", "delay": 2}, {"carrier": "AA", "delay": None}]
    for name, total in (("flights.parquet", 2), ("flights.csv", None)):
        source = from_file(str(tmp_path / name))
        assert [json.loads(value) for value in all_of(source)] == rows
        assert source.total == total


@pytest.mark.parametrize("name", ["broken.csv", "broken.parquet"])
def test_a_damaged_file_is_a_sentence_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b'a,b\n1\n"')
    with pytest.raises(Refused, match=name):
        all_of(from_file(str(tmp_path / name)))


def test_other_endings_are_a_misuse(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match=r"\.ndjson, \.jsonl, \.csv, \.parquet"):
        from_file(str(tmp_path / "notes.txt"))


def test_keys_are_one_for_all_or_taken_from_each() -> None:
    runs = [[b'{"id": 1}'], [b'{"id": "b"}', b'{"id": true}']]
    assert [key for key, _ in keyed(iter(runs), "k", None)] == ["k", "k", "k"]
    assert [key for key, _ in keyed(iter(runs), None, "id")] == ["1", "b", "true"]
    assert [key for key, _ in keyed(iter(runs), None, None)] == [None] * 3
    with pytest.raises(Refused, match="record 3"):
        list(keyed(iter([*runs[:1], [b'{"id": 2}', b"{}"]]), None, "id"))


def test_a_file_may_be_anywhere_that_fsspec_reaches() -> None:
    import fsspec

    with fsspec.open("memory://days/day.ndjson", "wb") as sink:
        sink.write(b'{"n": 1}\n{"n": 2}\n')
    assert all_of(from_file("memory://days/day.ndjson")) == [b'{"n": 1}', b'{"n": 2}']


@pytest.mark.s3
def test_a_file_may_be_on_s3(s3_server: S3Server) -> None:
    import fsspec

    endpoint = {"client_kwargs": {"endpoint_url": s3_server.endpoint}}
    fsspec.config.conf["s3"] = endpoint
    try:
        with fsspec.open(f"s3://{s3_server.bucket}/days/day.csv", "wb") as sink:
            sink.write(b"n,text\n1,one\n")
        assert all_of(from_file(f"s3://{s3_server.bucket}/days/day.csv")) == [b'{"n":1,"text":"one"}']
    finally:
        del fsspec.config.conf["s3"]
