"""Where the batches of one writer wait until they are published: an object for each that says what is in it.

    writer                          whose folder it is
    files/{run}/{uuid}.arrow        what tasks wrote
    batches/{batch:020d}            the files of a batch, in order; put if absent: of two tries at a batch one counts
    published/{batch:020d}          how many records were published up to the end of that batch

A batch is what its object says, whatever another try at it would give: so what was published in part is ended with the
same records. Files go once their batch is published; of `published/` the last object stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore

WRITER = "writer"
FILES = names.STAGED_FILES
BATCHES = names.STAGED_BATCHES
PUBLISHED = "published"
FILE_BYTES = 32 * 1024 * 1024
"""Bytes of records after which a task ends one file and begins another: as much as it holds in memory."""
ORPHAN_MS = 24 * 3_600_000
"""How old files of other runs must be to be removed without having been published."""


class StagedFile(NamedTuple):
    path: str
    rows: int


class Manifest(msgspec.Struct, frozen=True):
    """A batch. `first_record` is the number of the writer's records before it."""

    files: list[StagedFile]
    first_record: int
    staged_at_ms: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class _Writer(msgspec.Struct):
    writer_id: str
    topic: str


class _Published(msgspec.Struct):
    end_record: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last batch that was published, and the number of records up to its end."""

    batch: int = -1
    end_record: int = 0


class Staging:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock

    def stage(self, run: str, batches: Iterator[pa.RecordBatch]) -> list[StagedFile]:
        """Writes the batches to files of `run`, in order and durable, bounded in memory."""
        files: list[StagedFile] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= FILE_BYTES:
                files.append(self._write(run, held))
                held, size = [], 0
        if held:
            files.append(self._write(run, held))
        self.store.sync([file.path for file in files])
        return files

    def _write(self, run: str, batches: Sequence[pa.RecordBatch]) -> StagedFile:
        path = f"{FILES}/{run}/{uuid4().hex}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.store.put(path, sink.getvalue())
        return StagedFile(path, sum(batch.num_rows for batch in batches))

    def writer_id(self, topic: str, wanted: str | None) -> str:
        """Gives the writer that has the folder from its first batch on. Raises ConfigError where it is another's."""
        new = _Writer(wanted or str(uuid4()), topic)
        put_once(self.store, WRITER, msgspec.json.encode(new), self._clock)
        found = msgspec.json.decode(self.store.get(WRITER), type=_Writer)
        if found.topic != topic or wanted not in (None, found.writer_id):
            raise ConfigError(
                f"{self.store.root_uri} has the batches of writer {found.writer_id!r} to topic {found.topic!r}: give "
                "each writer and topic a stagingLocation (or checkpointLocation) of its own"
            )
        return found.writer_id

    def last_published(self) -> Last:
        found = self.store.list(PUBLISHED)
        if not found:
            return Last()
        path = max(info.path for info in found)
        return Last(_number(path), msgspec.json.decode(self.store.get(path), type=_Published).end_record)

    def waiting(self) -> list[int]:
        """Batches that were staged and are not published, or not cleaned up, in order."""
        return sorted(_number(info.path) for info in self.store.list(BATCHES))

    def decide(self, batch: int, files: Sequence[StagedFile], first_record: int) -> Manifest:
        """Decides what is in the batch from now on: these files, unless an earlier try decided it."""
        manifest = Manifest(list(files), first_record, self._clock.now_us() // 1000)
        if put_once(self.store, _batch(batch), msgspec.json.encode(manifest), self._clock):
            return manifest
        return self.decided(batch)

    def decided(self, batch: int) -> Manifest:
        return msgspec.json.decode(self.store.get(_batch(batch)), type=Manifest)

    def undo(self, batch: int) -> None:
        """The next try at the batch says anew what is in it; only while nothing of it was published."""
        self.store.delete(_batch(batch))

    def place_of(self, batch: int) -> str:
        return self.store.uri(_batch(batch))

    def records(self, manifest: Manifest) -> Iterator[pa.Table]:
        """The records of a batch, in order. Raises CorruptData where a file is gone."""
        for file in manifest.files:
            try:
                with self.store.open(file.path) as source, pa.ipc.open_stream(source) as stream:
                    for batch in stream:
                        yield pa.Table.from_batches([batch])
            except (FileNotFoundError, pa.ArrowInvalid) as error:
                raise problem(
                    "corrupt_data",
                    f"the staged file {self.store.uri(file.path)} cannot be read ({error}): its batch is not "
                    "published as a whole; restore the file, or stage what is missing as another writer",
                    path=file.path,
                ) from None

    def end(self, batch: int, manifest: Manifest) -> None:
        """Says that the batch is published, then removes what is not needed any more."""
        self.store.put(_published(batch), msgspec.json.encode(_Published(manifest.first_record + manifest.rows)))
        self.store.sync([_published(batch)])
        self.clean(batch)
        self.discard(manifest.files)

    def clean(self, last: int) -> None:
        """Removes what tells of batches up to `last`, all published, but for `last` itself."""
        for number in self.waiting():
            if number <= last:
                self.discard(self.decided(number).files)
                self.store.delete(_batch(number))
        for info in self.store.list(PUBLISHED):
            if _number(info.path) < last:
                self.store.delete(info.path)
        old = self._clock.now_us() // 1000 - ORPHAN_MS
        if not self.waiting():
            orphans = (*self.store.list(FILES), *self.store.unfinished(""))
            self.discard([StagedFile(info.path, 0) for info in orphans if info.modified_ms < old])

    def remove(self) -> None:
        """All of it."""
        paths = [info.path for folder in (FILES, BATCHES, PUBLISHED) for info in self.store.list(folder)]
        self.discard([StagedFile(path, 0) for path in [*paths, WRITER]])
        for folder in (FILES, BATCHES, PUBLISHED):
            self.store.prune(folder)

    def discard(self, files: Sequence[StagedFile]) -> None:
        for file in files:
            self.store.delete(file.path)
        for folder in {file.path.rpartition("/")[0] for file in files}:
            self.store.prune(folder)


def _batch(number: int) -> str:
    return f"{BATCHES}/{number:020d}"


def _published(number: int) -> str:
    return f"{PUBLISHED}/{number:020d}"


def _number(path: str) -> int:
    return int(path.rpartition("/")[2])
