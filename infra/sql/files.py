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


def files_dataset(
    files: Iterable[tuple[str, int, int, int]], starts: Mapping[int, int], schema: pa.Schema, file_system: FileSystem
) -> ds.Dataset:
    """Each of `files` is its path in the file system, its partition, and its first and its last offset. What is below
    the start of its partition is in none of it: whatever a query finds it by, that is not there."""
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
    dataset = ds.FileSystemDataset(fragments, schema, parquet, file_system)
    for partition, start in sorted(starts.items()):
        if start > 0:
            dataset = dataset.filter((pc.field(_PARTITION) != partition) | (pc.field(_OFFSET) >= start))
    return dataset


def make_views(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    places: Iterable[tuple[str, str]],
    files: ds.Dataset,
    head: pa.Table | None = None,
) -> str:
    """Makes views of a topic, each a schema and a name: its files, and its head. Gives what they select."""
    connection.register(f"files of {name}", files)
    select = f"SELECT * FROM {quoted(f'files of {name}')}"  # noqa: S608
    if head is not None:
        connection.register(f"head of {name}", head)
        select += f" UNION ALL SELECT * FROM {quoted(f'head of {name}')}"  # noqa: S608
    for schema, view in places:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        connection.execute(f"CREATE VIEW {quoted(schema)}.{quoted(view)} AS {select}")
    return select
