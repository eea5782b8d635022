"""Stranded records: acknowledged ones that never came into their table, as a server or a node has set them aside.

{topic}/{topic id}/{partition}-{epoch}-{first offset}.arrow       the records, RECORD_SCHEMA
{topic}/{topic id}/{partition}-{epoch}-{first offset}.published   that they were published
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa
import xxhash

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.store.local import LocalStore
from siltlog.infra.store.store import COPY_BYTES, ObjectStore


@dataclass(frozen=True, slots=True)
class Publishing:
    """Says that the records of a file are being published, or have been."""

    topic: str
    begun_at: str
    published_at: str | None = None


class StrandedFolder(NamedTuple):
    """Where there may be some."""

    store: ObjectStore
    path: str

    @property
    def shown(self) -> str:
        """The folder as people name it."""
        return str(self.store.path(self.path)) if isinstance(self.store, LocalStore) else self.store.uri(self.path)

    def mapped(self, path: str) -> pa.NativeFile:
        """Opens a file; one on this disk is in memory only as far as it is read."""
        if isinstance(self.store, LocalStore):
            return pa.memory_map(str(self.store.path(path)))
        return self.store.open(path)


@dataclass(frozen=True, slots=True)
class StrandedFile:
    folder: StrandedFolder
    name: str
    """Within the folder."""
    topic: str
    topic_id: str
    partition: int
    size_bytes: int
    publishing: Publishing | None

    @property
    def path(self) -> str:
        """Where it lies in the store."""
        return f"{self.folder.path}/{self.name}"

    def read(self) -> pa.Table:
        """RECORD_SCHEMA, in the order of offsets. Raises CorruptData."""
        try:
            with self.folder.mapped(self.path) as source:
                return pa.ipc.open_file(source).read_all()
        except pa.ArrowException as error:
            raise problem(
                "corrupt_data",
                f"{self.folder.shown}/{self.name} is damaged: {error}. Put it back from a copy",
            ) from error

    def mark(self) -> str:
        """The same for the same records, in a copy of the data dir too."""
        digest = xxhash.xxh3_128()
        with self.folder.store.open(self.path) as stream:
            while piece := stream.read(COPY_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def note(self, publishing: Publishing) -> None:
        """Durable on return."""
        store, path = self.folder.store, _note_name(self.path)
        store.put(path, msgspec.json.encode(asdict(publishing)))
        store.sync([path])


def stranded_files(folder: StrandedFolder) -> list[StrandedFile]:
    """Lists the files in a folder of stranded records, by topic, partition and first offset. Raises Unavailable."""
    listed = {info.path: info for info in folder.store.list(folder.path)}
    found = []
    for path, info in listed.items():
        inner = path.removeprefix(f"{folder.path}/")
        parts = inner.split("/")
        numbers = parts[-1].removesuffix(names.STRANDED_SUFFIX).split("-")
        if (
            len(parts) == 3
            and inner.endswith(names.STRANDED_SUFFIX)
            and len(numbers) == 3
            and all(number.isdecimal() for number in numbers)
        ):
            topic, topic_id, _ = parts
            partition, epoch, first_offset = map(int, numbers)
            noted = _noted(folder.store, _note_name(path)) if _note_name(path) in listed else None
            file = StrandedFile(folder, inner, topic, topic_id, partition, info.size, noted)
            found.append(((topic, topic_id, partition, first_offset, epoch), file))
    return [file for _, file in sorted(found, key=lambda item: item[0])]


def _note_name(name: str) -> str:
    return name.removesuffix(names.STRANDED_SUFFIX) + names.STRANDED_NOTE_SUFFIX


def _noted(store: ObjectStore, path: str) -> Publishing | None:
    try:
        return msgspec.json.decode(store.get(path), type=Publishing)
    except FileNotFoundError:
        return None
