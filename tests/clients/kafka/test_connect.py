"""Kafka Connect brings files into a topic and out of it at a broker of Kafka and at this server, over restarts."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from connect_worker import DISTRIBUTED, STANDALONE, Settings, Worker

from siltlog.infra.errors import ConfigError

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(600)]


class Files:
    """A file whose lines go into a topic, and the one into which they come out of it."""

    def __init__(self, folder: Path) -> None:
        self._source, self._sink = folder / "source", folder / "sink"
        self.lines: list[str] = []
        topic = f"t{uuid.uuid4()}"
        self.connectors: dict[str, Settings] = {
            f"source-{topic}": {
                "connector.class": "FileStreamSource",
                "file": str(self._source),
                "topic": topic,
                "topic.creation.default.replication.factor": "-1",
                "topic.creation.default.partitions": "1",
            },
            f"sink-{topic}": {"connector.class": "FileStreamSink", "file": str(self._sink), "topics": topic},
        }

    def grow(self) -> None:
        more = [f"line {number}" for number in range(len(self.lines), len(self.lines) + 50)]
        with self._source.open("a") as file:
            file.writelines(line + "\n" for line in more)
        self.lines += more

    def come_out(self, worker: Worker) -> None:
        worker.until_file_has(self._sink, self.lines)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@contextmanager
def working(
    folder: Path, main: str, bootstrap: str, settings: Settings, connectors: dict[str, Settings]
) -> Iterator[Worker]:
    try:
        with Worker(folder, main, bootstrap, settings, connectors) as worker:
            yield worker
    except ConfigError as error:
        pytest.skip(f"Kafka Connect cannot be run: {error}")


def test_a_standalone_worker_goes_on_where_it_was(bootstrap: str, files: Files, tmp_path: Path) -> None:
    settings = {"offset.storage.file.filename": str(tmp_path / "offsets")}
    for _ in range(2):
        files.grow()
        with working(tmp_path, STANDALONE, bootstrap, settings, files.connectors) as worker:
            files.come_out(worker)
            files.grow()
            files.come_out(worker)
            worker.stop()


def test_a_distributed_worker_finds_all_it_needs_in_its_topics(bootstrap: str, files: Files, tmp_path: Path) -> None:
    """These are compacted, and it makes them."""
    name = f"connect-{uuid.uuid4()}"
    settings = {"group.id": name, "offset.storage.partitions": "1", "status.storage.partitions": "1"}
    for kept in ("config", "offset", "status"):
        settings |= {f"{kept}.storage.topic": f"{name}-{kept}", f"{kept}.storage.replication.factor": "1"}
    for is_first in (True, False):
        files.grow()
        with working(tmp_path, DISTRIBUTED, bootstrap, settings, {}) as worker:
            worker.until_up()
            if is_first:
                for connector, own in files.connectors.items():
                    worker.put(connector, own)
            files.come_out(worker)
            assert worker.connectors() == sorted(files.connectors)
            worker.stop()
