"""A table of which only the log is real: what commits cost depends on what the log says of files, not on the files."""

import dataclasses
import uuid
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from benchmarks.loads.tables import new_table
from siltlog.infra import delta_names
from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import add_action, commit_actions, remove_action
from siltlog.infra.table.entries import checkpoint_path, last_checkpoint, log_folder

ACTIONS_MAX = 5_000
"""One commit has at most so many."""
_clock = SystemClock()


class LogOnly:
    """A topic with one partition."""

    def __init__(self, store: ObjectStore, topic: str) -> None:
        self.store = store
        self.topic = topic
        self.door = new_table(store, topic, _clock)

    def files(self, count: int) -> list[DataFile]:
        model = DataFile(
            path="",
            partition=0,
            rows=1,
            size_bytes=1_500,
            first_offset=0,
            last_offset=0,
            min_timestamp_us=_clock.now_us(),
            max_timestamp_us=_clock.now_us(),
            modified_ms=_clock.now_us() // 1000,
            footer_crc=1,
        )
        return [dataclasses.replace(model, path=f"partition=0/{uuid.uuid4()}-0.parquet") for _ in range(count)]

    def commit(self, added: Sequence[DataFile], removed: Sequence[DataFile] = ()) -> None:
        now_ms = _clock.now_us() // 1000
        actions = [
            *(remove_action(file, data_change=False, now_ms=now_ms) for file in removed),
            *(add_action(file, data_change=False) for file in added),
        ]
        commit_id = str(uuid.uuid4())
        transactions = {delta_names.txn_offset(0): self.door.snapshot.version}
        self.door.commit(commit_id, lambda _: lambda delta: commit_actions(delta, actions, transactions, commit_id))

    def add_and_remove(self, count: int) -> None:
        """Leaves so many removals in the log, and no file."""
        while count > 0:
            files = self.files(min(count, ACTIONS_MAX))
            self.commit(files)
            self.commit([], files)
            count -= len(files)

    def checkpoint_bytes(self) -> int:
        """Gives the size of the newest checkpoint."""
        checkpoint = last_checkpoint(self.store, self.topic)
        if checkpoint is None:
            return 0
        return self.store.size(checkpoint_path(self.topic, checkpoint.version)) or 0

    def log_bytes(self) -> int:
        """The size of the table's log on the disk; for local roots only."""
        folder = Path(unquote(urlsplit(self.store.uri(log_folder(self.topic))).path))
        return sum(path.stat().st_size for path in folder.iterdir())
