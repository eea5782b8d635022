"""A table's log as any reader sees it: entries that appear, and the files each adds. Local roots only."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from benchmarks.bench import TOPIC, Server
from siltlog.infra import names


class Added(NamedTuple):
    partition: int
    last_offset: int


class Entry(NamedTuple):
    version: int
    modified: float
    """When it appeared; seconds since 1970."""
    added: list[Added]


def entries(server: Server, version: int) -> Iterator[Entry]:
    """Yields the entries that are there, from `version` on."""
    folder = Path(unquote(urlsplit(server.process.root).path)) / names.topic_path(TOPIC) / names.DELTA_LOG_FOLDER
    for number in count(version):
        path = folder / f"{number:020d}.json"
        try:
            lines = path.read_text().splitlines()
            modified = path.stat().st_mtime
        except FileNotFoundError:
            return
        actions = [json.loads(line) for line in lines]
        yield Entry(number, modified, [_added(action["add"]) for action in actions if "add" in action])


def _added(action: dict[str, object]) -> Added:
    values = action["partitionValues"]
    assert isinstance(values, dict)
    return Added(int(values[names.PARTITION_COLUMN]), int(json.loads(str(action["stats"]))["maxValues"]["offset"]))
