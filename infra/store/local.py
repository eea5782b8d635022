"""The object store on a local disk: whole-object renames, links for put-if-absent, and fsync of files and folders."""

import builtins
import errno
import os
import re
import threading
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.private_folder import PrivateFolder
from siltlog.infra.store import disk_space
from siltlog.infra.store.observed import Observe, observed, unobserved
from siltlog.infra.store.store import COPY_BYTES, ByteStream, ObjectInfo, Put

PENDING_PREFIX = ".pending-"
"""Names of objects that are still being written; never listed."""
_STAGED = re.compile(r"#\d+$")
"""Names of objects that deltalake is still writing."""
_SYNC_THREADS = 8
_SYNC_THREADS_FROM = 16
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
FOLDERS_HELD_MAX = 16


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Foreign errors of a disk, except an absent file, become Unavailable."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in disk_space.ERRNOS:
            raise problem("disk_full", f"no space is left to write {path}; free space on its disk") from error
        raise problem("topic_unavailable", f"{path} cannot be read or written: {error.strerror or error}") from error


class LocalStore:
    def __init__(self, root: str, observe: Observe = unobserved) -> None:
        """Makes the root folder. Raises ConfigError when it cannot."""
        self.observe = observe
        self._root = Path(root).absolute()
        self.root_uri = self._root.as_uri()
        self._failed: set[Path] = set()
        self._held: dict[Path, _Folder] = {}
        """Folders of late puts, whose own entries are durable in the folders above."""
        self._private: PrivateFolder | None = None
        self._private_lock = threading.Lock()
        try:
            self._make_root()
        except OSError as error:
            raise ConfigError(f"the root {self._root} cannot be made: {error.strerror or error}") from error

    def _make_root(self) -> None:
        made = [folder for folder in (self._root, *self._root.parents) if not folder.exists()]
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in made:
            _sync(folder.parent)

    def private_folder(self) -> Path:
        """A folder on this disk for this store alone, gone with it; what killed processes left is removed.

        Raises OSError when it cannot be made.
        """
        with self._private_lock:
            if self._private is None:
                self._private = PrivateFolder(self.path(names.PRIVATE_FOLDER))
            return self._private.path

    def path(self, path: str) -> Path:
        """Where `path` is on this disk."""
        return self._root / path

    def uri(self, path: str, scheme: str | None = None) -> str:
        return self.path(path).as_uri()

    def storage_options(self) -> dict[str, str]:
        return {}

    @observed("get")
    def get(self, path: str) -> bytes:
        with translated(path):
            return self.path(path).read_bytes()

    @observed("put")
    def put(self, path: str, data: bytes | memoryview | pa.Buffer) -> None:
        with translated(path):
            pending = self._write_pending(path, data)
            pending.replace(self.path(path))

    @observed("put")
    def put_from(self, path: str, source: ByteStream) -> None:
        target = self.path(path)
        pending = target.with_name(PENDING_PREFIX + uuid.uuid4().hex)
        with translated(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with pending.open("wb") as out:
                    while part := source.read(COPY_BYTES):
                        out.write(part)
                pending.replace(target)
            except BaseException:
                pending.unlink(missing_ok=True)
                raise

    @observed("put")
    def put_if_absent(self, path: str, data: bytes) -> Put:
        target = self.path(path)
        with translated(path):
            folder = self._held_folder(target.parent)
            while (put := folder.put(target.name, data)) is None:
                self._held.pop(target.parent, None)
                folder = self._held_folder(target.parent)
        return self._settled(put, folder, target)

    def stage(self, path: str, data: bytes) -> "LocalStagedObject":
        """Writes and syncs an object that is to be put under `path` later, if nothing is there by then."""
        target = self.path(path)
        with translated(path):
            while True:
                folder = self._held_folder(target.parent)
                try:
                    return LocalStagedObject(self, path, folder, folder.write(data))
                except FileNotFoundError:
                    self._held.pop(target.parent, None)

    def put_staged(self, staged: "LocalStagedObject") -> Put:
        target = self.path(staged.path)
        with translated(staged.path):
            put = staged.folder.link(staged.pending, target.name)
        return Put.UNKNOWN if put is None else self._settled(put, staged.folder, target)

    def _settled(self, put: Put, folder: "_Folder", target: Path) -> Put:
        """Makes the name of an object durable; UNKNOWN where that fails."""
        try:
            # Also what another put: whoever is told that it exists builds on it.
            if put is Put.EXISTS:
                self._sync_one(target)
            self._sync_one(target.parent, folder.descriptor)
            self._settle(folder, target)
        except FileNotFoundError:
            return put  # deleted since
        except SiltlogError:
            if put is Put.EXISTS:
                raise
            return Put.UNKNOWN
        return put

    def _held_folder(self, path: Path) -> "_Folder":
        folder = self._held.get(path)
        while folder is None:
            try:
                folder = _Folder(path)
            except FileNotFoundError:
                path.mkdir(parents=True, exist_ok=True)
        return folder

    def _settle(self, folder: "_Folder", file: Path) -> None:
        """Syncs the folders above, once: whoever made this one may have been killed before it did."""
        if self._held.get(file.parent) is folder:
            return
        for above in list(self._folders_above(file))[1:]:
            self._sync_one(above)
        self._held[file.parent] = folder
        while len(self._held) > FOLDERS_HELD_MAX:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread was first
                del self._held[next(iter(self._held))]

    def _write_pending(self, path: str, data: bytes | memoryview | pa.Buffer) -> Path:
        target = self.path(path)
        pending = target.with_name(PENDING_PREFIX + uuid.uuid4().hex)
        try:
            try:
                pending.write_bytes(data)
            except FileNotFoundError:
                target.parent.mkdir(parents=True, exist_ok=True)
                pending.write_bytes(data)
        except OSError:
            pending.unlink(missing_ok=True)
            raise
        return pending

    @observed("head")
    def info(self, path: str) -> ObjectInfo | None:
        with translated(path):
            try:
                status = self.path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return ObjectInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def size(self, path: str) -> int | None:
        info = self.info(path)
        return None if info is None else info.size

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        return [self.size(path) for path in paths]

    @observed("list")
    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        found: list[ObjectInfo] = []
        with translated(prefix):
            for folder, _, file_names in os.walk(self.path(prefix)):
                for name in file_names:
                    if not name.startswith(PENDING_PREFIX):
                        info = self.info((Path(folder) / name).relative_to(self._root).as_posix())
                        if info is not None:
                            found.append(info)
        return sorted(found)

    def unfinished(self, prefix: str) -> builtins.list[ObjectInfo]:
        found: list[ObjectInfo] = []
        with translated(prefix):
            for folder, _, file_names in os.walk(self.path(prefix)):
                for name in file_names:
                    if name.startswith(PENDING_PREFIX) or _STAGED.search(name):
                        info = self.info((Path(folder) / name).relative_to(self._root).as_posix())
                        if info is not None:
                            found.append(info)
        return sorted(found)

    def clock_ms(self) -> int:
        with translated(str(self._root)):
            # Works on a full disk, too.
            os.utime(self._root)
            return self._root.stat().st_mtime_ns // 1_000_000

    @observed("list")
    def folders(self, prefix: str) -> builtins.list[str]:
        with translated(prefix):
            try:
                with os.scandir(self.path(prefix)) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir())
            except FileNotFoundError:
                return []

    @observed("delete")
    def delete(self, path: str) -> None:
        with translated(path):
            self.path(path).unlink(missing_ok=True)

    def prune(self, folder: str) -> None:
        with translated(folder):
            for emptied in self._folders_above(self.path(folder) / "any"):
                try:
                    if emptied != self._root:
                        emptied.rmdir()
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno not in _NOT_EMPTY:
                        raise
                    return

    def prune_below(self, folder: str, before_ms: int) -> None:
        with translated(folder):
            # Told before any goes: the one that it was in changes with it.
            found = [
                self.info(Path(path).relative_to(self._root).as_posix()) for path, _, _ in os.walk(self.path(folder))
            ]
            for info in reversed(found):
                if info is not None and info.modified_ms < before_ms:
                    with suppress(OSError):  # it is not empty, or gone
                        self.path(info.path).rmdir()

    def sync(self, paths: Iterable[str]) -> None:
        files = [self.path(path) for path in dict.fromkeys(paths)]
        folders = dict.fromkeys(folder for file in files for folder in self._folders_above(file))
        for group in (files, list(folders)):
            if len(group) < _SYNC_THREADS_FROM:
                for path in group:
                    self._sync_one(path)
            else:
                with ThreadPoolExecutor(_SYNC_THREADS) as pool:
                    list(pool.map(self._sync_one, group))

    def _sync_one(self, path: Path, descriptor: int | None = None) -> None:
        with translated(str(path)):
            # The kernel reports a failed write once: a second fsync of the same file would say that all is well.
            if path in self._failed:
                raise OSError(errno.EIO, "it failed to be synced before")
            try:
                if descriptor is None:
                    _sync(path)
                else:
                    os.fsync(descriptor)
            except FileNotFoundError:
                raise
            except OSError:
                self._failed.add(path)
                raise

    def _folders_above(self, file: Path) -> Iterator[Path]:
        folder = file.parent
        while folder != self._root:
            yield folder
            folder = folder.parent
        yield self._root

    @observed("get")
    def open(self, path: str) -> pa.NativeFile:
        with translated(path):
            return pa.OSFile(str(self.path(path)), mode="rb")


class _Folder:
    """A folder that is open: what is put by it lands in this very folder, or nowhere once it was removed, though
    another may have its name since."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError when it is absent."""
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, self.descriptor)

    def put(self, name: str, data: bytes) -> Put | None:
        """Writes and syncs `data`, and links it where there is nothing; None once the folder was removed."""
        try:
            pending = self.write(data)
        except FileNotFoundError:
            return None
        return self.link(pending, name)

    def link(self, pending: str, name: str) -> Put | None:
        """Gives what was written a name, where nothing has it; None once the folder was removed."""
        try:
            os.link(pending, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except FileExistsError:
            return Put.EXISTS
        finally:
            self.remove(pending)
        return Put.WRITTEN

    def write(self, data: bytes) -> str:
        """Writes and syncs a file that is never listed; its name. Raises FileNotFoundError once the folder was
        removed."""
        pending = PENDING_PREFIX + uuid.uuid4().hex
        file = os.open(pending, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self.descriptor)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        except BaseException:
            self.remove(pending)
            raise
        finally:
            os.close(file)
        return pending

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)


class LocalStagedObject(NamedTuple):
    store: LocalStore
    path: str
    folder: _Folder
    pending: str

    @property
    def observe(self) -> Observe:
        return self.store.observe

    @observed("put")
    def put(self) -> Put:
        return self.store.put_staged(self)

    def discard(self) -> None:
        self.folder.remove(self.pending)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
