"""The files of a topic's table as a table of DuckDB: Arrow reads them as they are asked for, and checks each page.

What the Delta log says of a file stands beside it, so that one that has nothing of what is asked for is not opened.
"""

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem

from siltlog.infra.sql.identifiers import quoted

_OFFSET, _PARTITION = "offset", "partition"


def files_dataset(files: Iterable[tuple[str, int, int, int]], schema: pa.Schema, file_system: FileSystem) -> ds.Dataset:
    """Each of `files` is its path in the file system, its partition, and its first and its last offset."""
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    fragments = [
        parquet.make_fragment(
            path,
            file_system,
            partition_expression=(pc.field(_PARTITION) == pa.scalar(partition, pa.int32()))
            & (pc.field(_OFFSET) >= first)
            & (pc.field(_OFFSET) <= last),
        )
        for path, partition, first, last in files
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, file_system)


def make_views(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    places: Iterable[tuple[str, str]],
    files: ds.Dataset,
    starts: Mapping[int, int],
    head: pa.Table | None = None,
) -> str:
    """Makes views of a topic, each a schema and a name: its files from the log starts on, and its head. Gives what they
    select."""
    connection.register(f"files of {name}", files)
    select = f"SELECT * FROM {quoted(f'files of {name}')}{_above(starts)}"  # noqa: S608
    if head is not None:
        connection.register(f"head of {name}", head)
        select += f" UNION ALL SELECT * FROM {quoted(f'head of {name}')}"  # noqa: S608
    for schema, view in places:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        connection.execute(f"CREATE VIEW {quoted(schema)}.{quoted(view)} AS {select}")
    return select


def _above(starts: Mapping[int, int]) -> str:
    moved = [(partition, start) for partition, start in sorted(starts.items()) if start > 0]
    if not moved:
        return ""
    bounds = " ".join(f'WHEN {partition} THEN "offset" >= {start}' for partition, start in moved)
    return f" WHERE CASE {quoted(_PARTITION)} {bounds} ELSE true END"
