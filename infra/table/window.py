"""A window on a topic's log on a local disk: a folder with hard links to the end of it, and a way back into it."""

import os
import re
import shutil
import uuid
import weakref
from collections.abc import Sequence
from pathlib import Path

from siltlog.infra import names
from siltlog.infra.store.local import PENDING_PREFIX, LocalStore
from siltlog.infra.table.entries import Checkpoint, entry_path, last_checkpoint, last_checkpoint_path, log_folder

_ENTRY = re.compile(r"(\d{20})\.json")


class LogWindow:
    """Lies in a folder of this process; what a killed process left is removed by the next. Every method raises OSError
    where the disk has no hard links between the two folders."""

    def __init__(self, store: LocalStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._root = store.private_folder() / f"{topic}-{uuid.uuid4().hex}"
        self._log = self._root / names.DELTA_LOG_FOLDER
        self._log.mkdir(parents=True)
        weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)

    @property
    def uri(self) -> str:
        return self._root.as_uri()

    def fill(self, checkpoint: Checkpoint | None) -> int | None:
        """Shows the log from `checkpoint` or its beginning on; the last version shown, None when there is none."""
        for shown in list(self._log.iterdir()):
            shown.unlink()
        if checkpoint is None:
            return self.show_from(0)
        self._show([*checkpoint.paths, last_checkpoint_path(self._topic)])
        if last_checkpoint(self._store, self._topic) != checkpoint:
            # A newer one, which is not shown here: without the hint deltalake finds the one that is.
            self.withdraw(last_checkpoint_path(self._topic))
        # deltalake asks for the checkpoint's own entry; another program's clean-up may have taken it.
        last = self.show_from(checkpoint.version) or self.show_from(checkpoint.version + 1)
        return checkpoint.version if last is None else last

    def show_from(self, version: int) -> int | None:
        """Shows the entries from `version` on; the last of them, None when there is none."""
        last = None
        while True:
            try:
                self._show([entry_path(self._topic, version)])
            except FileNotFoundError:
                return last
            except FileExistsError:
                # It was made here.
                pass
            last = version
            version += 1

    def versions(self) -> list[int]:
        """Lists the versions that the log has an entry of, in no order."""
        log = self._store.path(log_folder(self._topic))
        found = (_ENTRY.fullmatch(path.name) for path in log.iterdir())
        return [int(entry[1]) for entry in found if entry]

    def publish(self, path: str) -> bool:
        """Links what was made here into the log; False when its name is taken there."""
        try:
            os.link(self._here(path), self._store.path(path))
        except FileExistsError:
            return False
        return True

    def withdraw(self, path: str) -> None:
        """Removes what was made here."""
        self._here(path).unlink()

    def replace(self, path: str) -> None:
        """Puts what was made here, if anything was, in the place of what the log has under that name."""
        if not self._here(path).exists():
            return
        pending = self._store.path(f"{log_folder(self._topic)}/{PENDING_PREFIX}{uuid.uuid4().hex}")
        os.link(self._here(path), pending)
        pending.replace(self._store.path(path))

    def _show(self, paths: Sequence[str]) -> None:
        for path in paths:
            os.link(self._store.path(path), self._here(path))

    def _here(self, path: str) -> Path:
        return self._log / path.rpartition("/")[2]
