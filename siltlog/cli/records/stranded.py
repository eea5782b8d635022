"""Stranded records: acknowledged ones that never came into their table, as a server set them aside in its data dir.

{data dir}/stranded/{topic}/{topic id}/{partition}-{epoch}-{first offset}.arrow       the records, RECORD_SCHEMA
{data dir}/stranded/{topic}/{topic id}/{partition}-{epoch}-{first offset}.published   that they were published
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.store.store import COPY_BYTES, open_store


@dataclass(frozen=True, slots=True)
class Publishing:
    """Says that the records of a file are being published, or have been."""

    topic: str
    begun_at: str
    published_at: str | None = None


@dataclass(frozen=True, slots=True)
class StrandedFile:
    folder: Path
    """The folder of stranded records."""
    name: str
    """Within it."""
    topic: str
    topic_id: str
    partition: int
    publishing: Publishing | None

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def read(self) -> pa.Table:
        """RECORD_SCHEMA, in the order of offsets. Raises CorruptData."""
        try:
            with pa.memory_map(str(self.path)) as source:
                return pa.ipc.open_file(source).read_all()
        except pa.ArrowException as error:
            raise problem(
                "corrupt_data", f"{self.path} is damaged: {error}. Put it back from a copy of the disk"
            ) from error

    def mark(self) -> str:
        """The same for the same records, in a copy of the data dir too."""
        digest = xxhash.xxh3_128()
        with self.path.open("rb") as stream:
            while piece := stream.read(COPY_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def note(self, publishing: Publishing) -> None:
        """Durable on return."""
        store = open_store(self.folder.as_uri())
        path = _note_name(self.name)
        store.put(path, msgspec.json.encode(asdict(publishing)))
        store.sync([path])


def stranded_files(folder: Path) -> list[StrandedFile]:
    """Lists the files in the folder of stranded records, by topic, partition and first offset."""
    found = []
    for path in folder.glob(f"*/*/*{names.STRANDED_SUFFIX}"):
        topic, topic_id, name = path.relative_to(folder).parts
        numbers = path.stem.split("-")
        if len(numbers) == 3 and all(number.isdecimal() for number in numbers):
            partition, epoch, first_offset = map(int, numbers)
            inner = f"{topic}/{topic_id}/{name}"
            file = StrandedFile(folder, inner, topic, topic_id, partition, _noted(folder / _note_name(inner)))
            found.append(((topic, topic_id, partition, first_offset, epoch), file))
    return [file for _, file in sorted(found, key=lambda item: item[0])]


def _note_name(name: str) -> str:
    return name.removesuffix(names.STRANDED_SUFFIX) + names.STRANDED_NOTE_SUFFIX


def _noted(path: Path) -> Publishing | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Publishing)
    except FileNotFoundError:
        return None
