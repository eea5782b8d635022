"""The Delta tables at the end, read by deltalake and pyarrow: nothing of the log's own stands between."""

from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from deltalake import DeltaTable

from siltlog.demo.ledger import Ledger, value_hashes
from siltlog.infra import names


def rows(root: Path, topic: str) -> Ledger:
    """All rows of the topic's table."""
    folder = root / names.topic_path(topic)
    adds = pa.table(DeltaTable(folder.as_uri()).get_add_actions(flatten=True))
    paths = [unquote(path) for path in adds.column("path").to_pylist()]
    if not paths:
        return Ledger.concat([])
    found = pyarrow.dataset.dataset(
        paths,
        filesystem=pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem()),
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(pa.schema([("partition", pa.int32())]), flavor="hive"),
    ).to_table(columns=["partition", "offset", "value"])
    return Ledger(
        found["partition"].to_numpy().astype(np.int64),
        found["offset"].to_numpy(),
        value_hashes(found["value"].to_pylist()),
    )
