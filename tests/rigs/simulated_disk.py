"""A disk that remembers what was synced, to make what a crash at any moment would have left.

Files are real (recovery maps them); on top of them a journal says in which order things happened. `crash` plays it up
to one event: a kill keeps all that was written; a power cut keeps of what was not synced any sectors in any version,
and of the renames that were not synced the first few.
"""

import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from siltlog.ingest.wal.disk import Disk

SECTOR_BYTES = 512


class SimulatedDisk(Disk):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.journal: list[tuple[Any, ...]] = []
        self.fails: Callable[[str], OSError | None] = lambda operation: None
        self._lock = threading.RLock()
        self._files_made = 0
        self._names: dict[str, int] = {}
        self._open: dict[int, int] = {}

    def note(self, *event: Any) -> None:
        with self._lock:
            self.journal.append(event)

    def _may_fail(self, operation: str) -> None:
        error = self.fails(operation)
        if error is not None:
            raise error

    def open(self, path: Path) -> int:
        with self._lock:
            fd = super().open(path)
            self._open[fd] = self._names[path.name]
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            del self._open[fd]
            super().close(fd)

    def create(self, path: Path, size_bytes: int) -> int:
        self._may_fail("create")
        with self._lock:
            path.write_bytes(bytes(size_bytes))
            self._names[path.name] = self._files_made
            self.note("create", path.name, self._files_made, size_bytes)
            self._files_made += 1
            return self.open(path)

    def write(self, fd, buffers, position: int) -> None:
        self._may_fail("write")
        data = b"".join(bytes(buffer) for buffer in buffers)
        with self._lock:
            self.note("write", self._open[fd], position, data)
            super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        self._may_fail("sync")
        self.note("sync", self._open[fd])

    def move(self, source: Path, target: Path) -> None:
        self._may_fail("move")
        with self._lock:
            self.note("move", source.name, target.name)
            source.rename(target)
            self._names[target.name] = self._names.pop(source.name)
        self.note("names synced")

    def remove(self, path: Path) -> None:
        with self._lock:
            self.note("remove", path.name)
            path.unlink()
            del self._names[path.name]
        self.note("names synced")

    def sync_folder(self, folder: Path) -> None:
        self.note("names synced")

    # --- what is left -------------------------------------------------------------------------------------
    def crash(self, events: int, folder: Path, rng: random.Random, *, power_cut: bool) -> "SimulatedDisk":
        """The disk in `folder` after the first `events` events and then a kill or a power cut."""
        journal = self.journal[:events]
        names: dict[str, int] = {}
        renames: list[tuple[Any, ...]] = []
        files: dict[int, bytearray] = {}
        unsynced: dict[int, list[tuple[int, bytes]]] = {}
        for event in journal:
            match event:
                case ("create", name, file, size):
                    names[name] = file
                    files[file] = bytearray(size)
                    unsynced[file] = []
                case ("write", file, position, data):
                    unsynced[file].append((position, data))
                case ("sync", file):
                    for position, data in unsynced[file]:
                        files[file][position : position + len(data)] = data
                    unsynced[file] = []
                case ("move" | "remove", *_):
                    renames.append(event)
                case ("names synced",):
                    _rename(names, renames)
                    renames = []
        _rename(names, renames[: rng.randint(0, len(renames))] if power_cut else renames)
        after = SimulatedDisk(folder)
        after._files_made = self._files_made
        after._names = names
        if not power_cut:
            # The page cache outlives a killed process: what was not synced still may be lost later.
            after.journal = journal
        for name, file in names.items():
            content = files[file]
            if power_cut:
                _keep_some(content, unsynced[file], rng)
                after.journal.append(("create", name, file, len(content)))
                after.journal.append(("write", file, 0, bytes(content)))
                after.journal.append(("sync", file))
            else:
                for position, data in unsynced[file]:
                    content[position : position + len(data)] = data
            (folder / name).write_bytes(content)
        return after


def _rename(names: dict[str, int], events: list[tuple[Any, ...]]) -> None:
    for event in events:
        if event[0] == "move":
            names[event[2]] = names.pop(event[1])
        else:
            del names[event[1]]


def _keep_some(content: bytearray, writes: list[tuple[int, bytes]], rng: random.Random) -> None:
    pieces: dict[int, list[tuple[int, bytes]]] = {}
    for position, data in writes:
        at = 0
        while at < len(data):
            sector = (position + at) // SECTOR_BYTES
            size = min((sector + 1) * SECTOR_BYTES - position - at, len(data) - at)
            pieces.setdefault(sector, []).append((position + at, data[at : at + size]))
            at += size
    keep = rng.choice((0.0, 0.5, 0.9, 1.0))
    for versions in pieces.values():
        kept = len(versions) if rng.random() < keep else rng.randint(0, len(versions))
        for position, data in versions[:kept]:
            content[position : position + len(data)] = data


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def io_error() -> OSError:
    return OSError(errno.EIO, "Input/output error")
