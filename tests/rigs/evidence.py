"""What is really there, in the API and in the table as any reader sees it; and whether it is what was promised."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import urllib3
from deltalake import DeltaTable
from publishers import Ledger, Wire

from siltlog.infra import names


class Found(NamedTuple):
    partition: int
    offset: int
    value: str


def read_partition(wire: Wire, topic: str, partition: int, offset: int = 0, query: str = "") -> list[Found]:
    """Reads from `offset` to the high watermark, on by next_offset."""
    found: list[Found] = []
    while True:
        rows, offset, high_watermark = read_once(wire, topic, partition, offset, query)
        found += rows
        if offset >= high_watermark:
            return found


def read_once(wire: Wire, topic: str, partition: int, offset: int, query: str = "") -> tuple[list[Found], int, int]:
    """The rows of one reply, its next offset, its high watermark."""
    path = f"/v1/topics/{topic}/partitions/{partition}/records?offset={offset}{query}"
    reply: urllib3.BaseHTTPResponse = wire.raw("GET", path, Accept=names.MEDIA_ARROW)
    assert reply.status == 200, reply.data
    table = pa.ipc.open_stream(reply.data).read_all()
    values = table.column("value").cast(pa.string()).to_pylist()
    rows = [Found(partition, at, value) for at, value in zip(table.column("offset").to_pylist(), values, strict=True)]
    next_offset = int(reply.headers[names.HEADER_NEXT_OFFSET])
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})
    assert not rows or (offset <= rows[0].offset and rows[-1].offset < next_offset), (offset, next_offset)
    return rows, next_offset, int(reply.headers[names.HEADER_HIGH_WATERMARK])


def read_api(wire: Wire, topic: str, partitions: int) -> list[Found]:
    return [row for partition in range(partitions) for row in read_partition(wire, topic, partition)]


def read_table(root: str, topic: str, storage_options: dict[str, str] | None = None) -> list[Found]:
    """The rows by partition and offset, read by deltalake and pyarrow, nothing of the project between."""
    table = DeltaTable(f"{root}/{names.topic_path(topic)}", storage_options=storage_options)
    paths = [unquote(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()]
    if not paths:
        return []
    if storage_options:
        filesystem = table_filesystem(f"{root}/{names.topic_path(topic)}", storage_options)
    else:
        base = unquote(urlsplit(root).path)
        filesystem = pa.fs.SubTreeFileSystem(f"{base}/{names.topic_path(topic)}", pa.fs.LocalFileSystem())
    partitioning = ds.partitioning(pa.schema([("partition", pa.int32())]), flavor="hive")
    files = ds.dataset(paths, filesystem=filesystem, format="parquet", partitioning=partitioning)
    rows = files.to_table(columns=["partition", "offset", "value"])
    values = rows.column("value").cast(pa.string()).to_pylist()
    columns = zip(rows.column("partition").to_pylist(), rows.column("offset").to_pylist(), values, strict=True)
    return sorted(Found(*row) for row in columns)


def table_filesystem(uri: str, options: dict[str, str]) -> pa.fs.FileSystem:
    parts = urlsplit(uri)
    endpoint = urlsplit(options["AWS_ENDPOINT_URL"])
    s3 = pa.fs.S3FileSystem(
        access_key=options["AWS_ACCESS_KEY_ID"],
        secret_key=options["AWS_SECRET_ACCESS_KEY"],
        region=options["AWS_REGION"],
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc,
    )
    return pa.fs.SubTreeFileSystem(f"{parts.netloc}{parts.path}", s3)


def check(found: list[Found], ledger: Ledger, *, gaps: bool = False) -> None:
    """Every promise kept: what was acknowledged is there once, at its place; what was refused is not."""
    assert not ledger.complaints, ledger.complaints[:5]
    by_partition: dict[int, list[int]] = defaultdict(list)
    times: dict[str, int] = defaultdict(int)
    places: dict[str, tuple[int, int]] = {}
    for row in found:
        by_partition[row.partition].append(row.offset)
        times[row.value] += 1
        places[row.value] = (row.partition, row.offset)
    for partition, offsets in by_partition.items():
        assert offsets == sorted(set(offsets)), f"partition {partition}: {_doubled(offsets)} more than once"
        if not gaps:
            assert offsets == list(range(len(offsets))), f"partition {partition}: {_first_hole(offsets)} is missing"
    _complain("there more than once", [value for value, count in times.items() if count > 1])
    _complain("acknowledged and not there", [value for value in ledger.acked if value not in times])
    _complain("not where it was said", [value for value, place in ledger.acked.items() if places[value] != place])
    _complain("not there for all its repeats", [value for value in ledger.exactly_once if value not in times])
    _complain("refused and there", [value for value in ledger.refused if value in times])
    known = ledger.acked.keys() | ledger.exactly_once | ledger.unknown
    _complain("of nobody", [value for value in times if value not in known])
    for publisher, run in _runs(found):
        assert run == sorted(run), f"{publisher}: out of order"


def _runs(found: list[Found]) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Per publisher and partition, its own numbers in the order of offsets."""
    runs: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in sorted(found):
        publisher, number = row.value.split(" ", 1)[0].rsplit(":", 1)
        runs[publisher, row.partition].append(int(number))
    yield from runs.items()


def _complain(what: str, values: list[str]) -> None:
    assert not values, f"{len(values)} records {what}: {[value[:40] for value in values[:5]]}"


def _doubled(offsets: list[int]) -> list[int]:
    return [a for a, b in zip(sorted(offsets), sorted(offsets)[1:], strict=False) if a == b][:5]


def _first_hole(offsets: list[int]) -> int:
    return next((i for i, offset in enumerate(offsets) if i != offset), len(offsets))
