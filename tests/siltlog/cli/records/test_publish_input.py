"""What `silt publish` makes of arguments, lines and files."""

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any, cast

import click
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_server import S3Server

from siltlog.cli.records.lines import LINE_BYTES_MAX, LineTooLong, lines_of
from siltlog.cli.records.location import content_mark
from siltlog.cli.records.publish_input import BadRecord, Input, Kind, from_arguments, from_file, from_stream, refusal
from siltlog.cli.records.record_shape import RecordShape
from siltlog.infra.client.bodies import chunks
from siltlog.infra.client.bodies.chunks import ReadAhead, chunked, skipped
from siltlog.infra.errors import Refused

PLAIN = RecordShape()


def table_of(source: Input) -> pa.Table:
    return pa.concat_tables(source.runs, promote_options="default")


def values_of(source: Input) -> list[bytes]:
    values: list[bytes] = table_of(source)["value"].to_pylist()
    return values


def cut_off(source: Input) -> tuple[list[bytes], BadRecord]:
    """The values before the bad record, and that."""
    values: list[bytes] = []
    with pytest.raises(BadRecord) as bad:
        for run in source.runs:
            values += run["value"].to_pylist()
    return values, bad.value


def parquet_file(path: Path, **columns: Any) -> str:
    pa.parquet.write_table(pa.table(columns), path)
    return str(path)


def text_file(path: Path, text: bytes) -> str:
    path.write_bytes(text)
    return str(path)


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return compressed


def test_an_argument_is_a_value() -> None:
    source = from_arguments(("a", "", "é"), RecordShape(key="k", headers=(("h", "1"),), partition=2, timestamp_us=5))
    [run] = source.runs
    assert run.to_pydict() == {
        "value": [b"a", b"", "é".encode()],
        "key": [b"k"] * 3,
        "timestamp": run["timestamp"].to_pylist(),
        "partition": [2] * 3,
        "headers": [[{"key": "h", "value": b"1"}]] * 3,
        "number": [1, 2, 3],
    }
    assert run["timestamp"].cast(pa.int64()).to_pylist() == [5] * 3


# --- lines ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").rstrip(b"\r"))),
    st.data(),
)
def test_lines_come_byte_for_byte_however_they_are_read(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + (b"\r\n" if data.draw(st.booleans()) else b"\n") for line in lines)
    if data.draw(st.booleans()):
        text = text.removesuffix(b"\n").removesuffix(b"\r")
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1))
    stream, reads = io.BytesIO(text), iter([*sizes, *[1000] * 1000])
    runs = list(lines_of(lambda _: stream.read(next(reads))))
    there = [(number, line) for number, line in enumerate(lines, 1) if line.strip(b" \t\r\n\f")]
    assert [value for run in runs for value in run.values.to_pylist()] == [line for _, line in there]
    assert [int(number) for run in runs for number in run.numbers] == [number for number, _ in there]


def test_a_line_that_does_not_end_fills_no_memory() -> None:
    blocks = iter([b"x\n", *[b"y" * 8_000_000] * 20])
    with pytest.raises(LineTooLong) as error:
        list(lines_of(lambda _: next(blocks)))
    assert error.value.number == 2
    assert sum(1 for _ in blocks) == 20 - LINE_BYTES_MAX // 8_000_000 - 1


def test_ndjson_is_kept_byte_for_byte_and_checked(tmp_path: Path) -> None:
    lines = [b'{"n":  %d}' % number for number in range(1_000)]
    file = text_file(tmp_path / "events.ndjson", b"\n\n".join(lines))
    assert values_of(from_file(file, None, PLAIN)) == lines


@pytest.mark.parametrize("bad", [b'{"n": ', b"1 2", b"{}{}", b"[1,", b'"\xff"', b"x", b"[" * 100_000])
def test_a_line_that_is_no_json_ends_it_and_is_named(tmp_path: Path, bad: bytes) -> None:
    file = text_file(tmp_path / "events.ndjson", b'{"n": 1}\n\n' + bad + b"\n2]\n")
    values, error = cut_off(from_file(file, None, PLAIN))
    assert (values, error.number) == ([b'{"n": 1}'], 3)
    refused = refusal(from_file(file, None, PLAIN), error, "the rest is there")
    assert str(refused).startswith(f"{file}: line 3: it is not JSON")
    assert str(refused).endswith("; the rest is there")
    assert (refused.error_code, refused.members["line"]) == ("invalid_record", 3)


def test_lines_of_text_are_not_checked(tmp_path: Path) -> None:
    file = text_file(tmp_path / "app.log", b"no json\n\xff\n")
    assert values_of(from_file(file, "lines", PLAIN)) == [b"no json", b"\xff"]


def test_keys_and_times_are_taken_from_each_value(tmp_path: Path) -> None:
    file = text_file(
        tmp_path / "events.ndjson",
        b'{"user": {"id": "a"}, "at": "2026-11-21T07:36:00Z"}\n{"user": {"id": 2.0}, "at": 1000}\n{"user": {}}\n',
    )
    shape = RecordShape(key_from=("user", "id"), timestamp_from=("at",))
    run = next(from_file(file, None, shape).runs)
    assert run["key"].to_pylist() == [b"a", b"2.0"]
    assert [when.isoformat() for when in run["timestamp"].to_pylist()] == [
        "2026-11-21T07:36:00+00:00",
        "1970-01-01T00:00:01+00:00",
    ]
    _, error = cut_off(from_file(file, None, shape))
    assert (error.number, str(error)) == (3, "there is no string, number or boolean at '/user/id'")


def test_the_first_of_several_bad_records_counts(tmp_path: Path) -> None:
    file = text_file(tmp_path / "x.ndjson", b'{"k": 1, "t": "never"}\n{"t": 1}\nno\n')
    _, error = cut_off(from_file(file, None, RecordShape(key_from=("k",), timestamp_from=("t",))))
    assert error.number == 1
    assert "not a time" in str(error)


def test_record_lines_are_what_a_reader_prints(tmp_path: Path) -> None:
    records = [
        {
            "partition": 1,
            "offset": 7,
            "timestamp": "2026-11-21T07:36:00.000001Z",
            "key": "k",
            "value": "text",
            "headers": [],
        },
        {"value": {"a": [1.50]}, "headers": [{"key": "h", "value": "v"}, {"key": "n", "value": None}], "topic": "t"},
        {"value_base64": "/w==", "key_base64": "/g==", "headers": {"x": "y"}},
        {"key": "gone", "value": None},
    ]
    file = text_file(tmp_path / "r.ndjson", b"\n".join(json.dumps(one).encode() for one in records))
    table = table_of(from_file(file, None, RecordShape(lines="record")))
    assert table["value"].to_pylist() == [b"text", b'{"a": [1.5]}', b"\xff", None]
    assert table["key"].to_pylist() == [b"k", None, b"\xfe", b"gone"]
    assert table["partition"].to_pylist() == [1, None, None, None]
    assert table["headers"].to_pylist() == [
        None,
        [{"key": "h", "value": b"v"}, {"key": "n", "value": None}],
        [{"key": "x", "value": b"y"}],
        None,
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[0] % 1_000_000 == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"{}",
        b'{"value": null}',
        b'{"value": 1, "value_base64": "AA=="}',
        b'{"value_base64": "?"}',
        b'{"value": 1, "partition": -1}',
        b'{"value": 1, "timestamp": "yesterday"}',
        b'{"value": 1, "other": 2}',
        b'{"value": 1',
        b'{"value": {"a": "\xff"}}',
        b"[]",
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, bad: bytes) -> None:
    file = text_file(tmp_path / "r.ndjson", b'{"value": 1}\n' + bad)
    values, error = cut_off(from_file(file, None, RecordShape(lines="record")))
    assert (values, error.number) == ([b"1"], 2)


# --- rows -----------------------------------------------------------------------------------------------------


def test_rows_of_csv_and_parquet_become_the_same_objects(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "flights.parquet", carrier=["UA", "AA"], delay=[2, None])
    csv = text_file(tmp_path / "flights.csv", b"carrier,delay\nUA,2\nAA,\n")
    for name in (file, csv):
        source = from_file(name, None, RecordShape(key_from=("carrier",)))
        table = table_of(source)
        assert [json.loads(value) for value in table["value"].to_pylist()] == [
            {"carrier": "UA", "delay": 2},
            {"carrier": "AA", "delay": None},
        ]
        assert (table["key"].to_pylist(), table["number"].to_pylist()) == ([b"UA", b"AA"], [1, 2])
        assert source.position() == source.total


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    file = parquet_file(
        tmp_path / "t.parquet",
        id=[1, 2, 3],
        body=[b"\xff", b"", b"x"],
        at=pa.array([1, None, 2_000_000], pa.timestamp("us", "UTC")),
        user=[{"name": "a"}, {"name": "b"}, {"name": "c"}],
    )
    shape = RecordShape(value_from="body", key_from=("user", "name"), timestamp_from=("at",))
    table = table_of(from_file(file, None, shape))
    assert table["value"].to_pylist() == [b"\xff", b"", b"x"]
    assert table["key"].to_pylist() == [b"a", b"b", b"c"]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1, None, 2_000_000]


@pytest.mark.parametrize(
    ("shape", "number", "words"),
    [
        (RecordShape(key_from=("name",)), 2, "there is no key: 'name' is empty"),
        (RecordShape(value_from="name"), 2, "a null value is a tombstone and needs a key"),
        (RecordShape(key_from=("no",)), None, "there is no column 'no'; there are: id, name, list, when"),
        (RecordShape(key_from=("id", "x")), None, "'x' is not a member of int64"),
        (RecordShape(value_from="list"), None, "which has no text"),
        (RecordShape(timestamp_from=("when",)), None, "have no time zone"),
        (RecordShape(timestamp_from=("name",)), 1, "not a time"),
    ],
)
def test_a_row_that_cannot_be_published_is_named(
    tmp_path: Path, shape: RecordShape, number: int | None, words: str
) -> None:
    file = parquet_file(
        tmp_path / "t.parquet", id=[1, 2], name=["a", None], list=[[1], []], when=pa.array([1, 2], pa.timestamp("us"))
    )
    values, error = cut_off(from_file(file, None, shape))
    assert error.number == number
    assert words in str(error)
    assert len(values) == max(0, (number or 1) - 1)


def test_a_null_value_with_a_key_is_a_tombstone(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "t.parquet", key=["a", "b"], value=["x", None])
    assert values_of(from_file(file, None, RecordShape(value_from="value", key_from=("key",)))) == [b"x", None]


def test_damage_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"broken\.parquet"):
        from_file(text_file(tmp_path / "broken.parquet", b"PAR1 no"), None, PLAIN)
    _, error = cut_off(from_file(text_file(tmp_path / "broken.csv", b"a,b\n1\n"), None, PLAIN))
    assert "Expected 2 columns" in str(error)
    late = b"a\n" + b"1\n" * 3_000_000 + b"x\n"
    values, error = cut_off(from_file(text_file(tmp_path / "late.csv", late), None, PLAIN))
    assert len(values) > 1_000_000, "what came before is published"
    assert "invalid value 'x'" in str(error)


# --- where it comes from --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "compress"),
    [("a.ndjson.gz", gzip.compress), ("a.jsonl.zst", zstd), ("a.ndjson", gzip.compress), ("a.csv.gz", gzip.compress)],
)
def test_what_is_compressed_is_inflated(tmp_path: Path, name: str, compress: Any) -> None:
    rows = range(50_000)
    if ".csv" in name:
        text = b"n\n" + b"".join(b"%d\n" % n for n in rows)
        expected = [b'{"n":%d}' % n for n in rows]
    else:
        expected = [b'{"n": %d}' % n for n in rows]
        text = b"\n".join(expected)
    file = text_file(tmp_path / name, compress(text))
    source = from_file(file, None, PLAIN)
    assert values_of(source) == expected
    assert source.position() == source.total == Path(file).stat().st_size


@pytest.mark.parametrize("compress", [gzip.compress, zstd])
def test_what_ends_too_early_is_told(tmp_path: Path, compress: Any) -> None:
    whole = compress(b"\n".join(b'{"n": "%s"}' % os.urandom(60).hex().encode() for _ in range(100_000)))
    file = text_file(tmp_path / "a.ndjson.gz", whole[: len(whole) // 2])
    values, error = cut_off(from_file(file, None, PLAIN))
    assert error.number is None or error.number > 10_000
    assert len(values) > 10_000


def test_a_stream_is_read_as_it_comes() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as sink:
        sink.write(b"one\ntwo\nthr")
        runs = from_stream(stream, "lines", PLAIN).runs
        assert next(runs)["value"].to_pylist() == [b"one", b"two"]
        sink.write(b"ee\n")
        assert next(runs)["value"].to_pylist() == [b"three"]
        sink.close()
        assert list(runs) == []


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("lines", gzip.compress(b"a\nb", mtime=0), [b"a", b"b"]),
        ("ndjson", b"1\n2\n", [b"1", b"2"]),
        ("csv", b"a\n1\n", [b'{"a":1}']),
        ("csv", gzip.compress(b"a\n1\n", mtime=0), [b'{"a":1}']),
        ("lines", b"", []),
    ],
)
def test_a_stream_may_hold_each_format(kind: Kind, content: bytes, expected: list[bytes]) -> None:
    stream = cast(Any, io.BufferedReader(cast(Any, io.BytesIO(content))))
    runs = from_stream(stream, kind, PLAIN).runs
    assert [value for run in runs for value in run["value"].to_pylist()] == expected


def test_parquet_needs_a_file() -> None:
    with pytest.raises(click.UsageError, match="--file"):
        from_stream(io.BytesIO(), "parquet", PLAIN)


def test_what_is_not_for_a_format_is_a_misuse(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--value-from"):
        from_file(text_file(tmp_path / "a.ndjson", b'{"a":1}'), None, RecordShape(value_from="a"))


RECORDS = RecordShape(lines="record")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("value,other\na,b\n", "there are: value, other"),
        ("key\na\n", "value or value_base64 is needed"),
        ("value,value_base64\na,YQ==\n", "both given"),
        ("value_base64\n?\n", "value_base64 is not base64"),
        ("value,headers\na,{\n", "headers are not JSON"),
        ("value,timestamp\na,noon\n", "noon"),
        ("value,key\n,\n", "needs a key"),
        ("value,partition\na,x\n", "int32"),
    ],
    ids=["column", "value", "both", "base64", "headers", "time", "tombstone", "partition"],
)
def test_rows_that_are_no_records(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        list(from_file(text_file(tmp_path / "a.csv", text.encode()), None, RECORDS).runs)


def test_other_endings_are_a_misuse_unless_said(tmp_path: Path) -> None:
    for name in ("notes.txt", "notes", "notes.gz"):
        with pytest.raises(click.UsageError, match="--format"):
            from_file(text_file(tmp_path / name, b"1"), None, PLAIN)
        assert values_of(from_file(str(tmp_path / name), "ndjson", PLAIN)) == [b"1"]


def test_a_file_may_be_anywhere_that_fsspec_reaches() -> None:
    import fsspec

    with fsspec.open("memory://days/day.ndjson", "wb") as sink:
        sink.write(b'{"n": 1}\n{"n": 2}\n')
    assert values_of(from_file("memory://days/day.ndjson", None, PLAIN)) == [b'{"n": 1}', b'{"n": 2}']
    before = content_mark("memory://days/day.ndjson")
    assert before is not None
    assert before == content_mark("memory://days/day.ndjson")
    with fsspec.open("memory://days/day.ndjson", "wb") as sink:
        sink.write(b'{"n": 1}\n{"n": 3}\n')
    assert content_mark("memory://days/day.ndjson") != before


@pytest.mark.s3
def test_a_file_may_be_on_s3(s3_server: S3Server, tmp_path: Path) -> None:
    import fsspec

    endpoint = {"client_kwargs": {"endpoint_url": s3_server.endpoint}}
    fsspec.config.conf["s3"] = endpoint
    folder = f"s3://{s3_server.bucket}/days"
    try:
        with fsspec.open(f"{folder}/day.csv", "wb") as sink:
            sink.write(b"n,text\n1,one\n")
        with fsspec.open(f"{folder}/day.parquet", "wb") as sink:
            sink.write(Path(parquet_file(tmp_path / "x.parquet", n=[1], text=["one"])).read_bytes())
        for name in ("day.csv", "day.parquet"):
            assert values_of(from_file(f"{folder}/{name}", None, PLAIN)) == [b'{"n":1,"text":"one"}']
            assert content_mark(f"{folder}/{name}") is not None
        assert content_mark(f"{folder}/day.csv") != content_mark(f"{folder}/day.parquet")
    finally:
        del fsspec.config.conf["s3"]


def test_a_content_is_known_again_and_another_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    seen = set()
    for text in (b"1\n2\n", b"1\n3\n", b"1\n2\n3\n"):
        file.write_bytes(text)
        os.utime(file, ns=(0, 1))
        seen.add(content_mark(str(file)))
    os.utime(file, ns=(0, 2))
    seen.add(content_mark(str(file)))
    assert len(seen) == 4
    file.rename(tmp_path / "b.ndjson")
    assert content_mark(str(tmp_path / "b.ndjson")) in seen
    os.mkfifo(tmp_path / "pipe")
    assert content_mark(str(tmp_path / "pipe")) is None


# --- chunks ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("I2")
@given(st.data())
def test_chunks_are_the_same_however_the_records_came(data: st.DataObject) -> None:
    values = [b"x" * data.draw(st.integers(0, 40)) for _ in range(data.draw(st.integers(0, 60)))]
    whole = pa.table({"value": pa.array(values, pa.binary()), "n": list(range(len(values)))})

    def cut(table: pa.Table) -> list[pa.Table]:
        runs, start = [], 0
        while start < table.num_rows:
            size = data.draw(st.integers(1, 20))
            runs.append(table.slice(start, size))
            start += size
        return runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", 100)
        patch.setattr(chunks, "CHUNK_RECORDS", 7)
        once, again = (list(chunked(iter(cut(whole)))) for _ in range(2))
    assert once == again
    assert [n for chunk in once for n in chunk["n"].to_pylist()] == list(range(len(values)))
    for chunk in once[:-1]:
        lengths = [len(value) for value in chunk["value"].to_pylist()]
        assert sum(lengths[:-1]) < 100
        assert len(lengths) == 7 or sum(lengths) >= 100
    skip = data.draw(st.integers(0, len(values) + 3))
    left = list(skipped(iter(cut(whole)), skip))
    assert [n for run in left for n in run["n"].to_pylist()] == list(range(len(values)))[skip:]


def test_what_came_before_an_error_is_read_first() -> None:
    def runs() -> Any:
        yield pa.table({"value": [b"a"]})
        yield pa.table({"value": [b"b"], "key": [b"k"]})
        raise BadRecord(3, "bad")

    for tables, gather in ((runs(), True), (chunked(runs()), False)):
        ahead = ReadAhead(tables, lambda: 7)
        read, error = [], None
        try:
            for chunk in ahead.chunks(gather=gather):
                assert chunk.position == 7
                read += chunk.table["value"].to_pylist()
        except BadRecord as bad:
            error = bad
        finally:
            ahead.stop()
        assert (read, error is not None) == ([b"a", b"b"], True)
