import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.data_file import write_data_file
from siltlog.infra.schema import FILE_SCHEMA
from siltlog.infra.store import ObjectStore, open_store
from siltlog.infra.table import TopicTable
from siltlog.infra.topic_config import TopicConfig

CLOCK = SystemClock()


def records(first_offset: int, count: int, **columns: list[Any]) -> pa.Table:
    """Records whose values say their offsets."""
    offsets = range(first_offset, first_offset + count)
    whole: dict[str, list[Any]] = {
        "offset": list(offsets),
        "timestamp": [1_700_000_000_000_000 + 1_001 * offset for offset in offsets],
        "key": [f"key-{offset % 7}".encode() if offset % 3 else None for offset in offsets],
        "value": [f"value-{offset}".encode() for offset in offsets],
        "headers": [[{"key": "h", "value": b"\x00\xff"}, {"key": "h", "value": None}]] + [None] * (count - 1),
        "producer_id": [None] * count,
        "producer_epoch": [None] * count,
        "sequence": [None] * count,
    } | columns
    return pa.table({name: pa.array(whole[name], FILE_SCHEMA.field(name).type) for name in FILE_SCHEMA.names})


class TopicWriter:
    """A topic that is filled as the server fills it: files, then one commit."""

    def __init__(self, store: ObjectStore, topic: str, partitions: int = 2, **config: Any) -> None:
        settings = {name.replace("_", "."): value for name, value in ({"retention_ms": -1} | config).items()}
        self.store = store
        self.topic = topic
        self.table = TopicTable.create(
            store,
            topic,
            topic_id=str(uuid.uuid4()),
            partitions=partitions,
            config=TopicConfig(settings),
            created_us=CLOCK.now_us(),
            clock=CLOCK,
        )
        self.epochs = dict.fromkeys(range(partitions), 1 + max(self.table.snapshot.epochs.values(), default=0))
        self.table.claim(self.epochs, str(uuid.uuid4()))

    def append(self, *counts: int, **columns: list[Any]) -> None:
        """One commit with that many records for partition 0, 1, ..."""
        snapshot = self.table.refresh()
        files, bounds = [], {}
        for partition, count in enumerate(counts):
            if count:
                first = snapshot.offsets[partition]
                table = records(first, count, **columns)
                files.append(
                    write_data_file(
                        self.store, self.topic, partition, table, compression="zstd", now_ms=CLOCK.now_us() // 1000
                    )
                )
                bounds[partition] = (first, first + count)
        self.table.append(files, bounds, self.epochs, str(uuid.uuid4()))


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """Its root has what trips names of files: a space and a glob."""
    return open_store((tmp_path / "the lake [1]").as_uri())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from siltlog.pipelines.session import spark_session

    with spark_session(open_store(tmp_path_factory.mktemp("spark").as_uri())) as session:
        yield session
