"""Looking for the records of a key: in the data files of a topic, live or not, and in what lies beside the tables."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from siltlog.infra import names
from siltlog.infra.errors import CorruptData
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.pipelines import backup_names
from siltlog.pipelines.replay.plan import Progress, ReplayPlan

READS_AT_ONCE = 8
_PLAN = msgspec.json.Decoder(ReplayPlan)
_PROGRESS = msgspec.json.Decoder(Progress)


@dataclass(frozen=True, slots=True)
class Holding:
    """A data file that holds records of the key, at offsets from `first_offset` to `last_offset`."""

    path: str
    """Relative to the topic's path."""
    rows: int
    """The records of the key."""
    first_offset: int
    last_offset: int


class Left(NamedTuple):
    """A place that holds the key, or may, and that the job does not change."""

    place: str
    what: str
    remedy: str


def of_key(keys: pa.ChunkedArray, key: bytes) -> pa.ChunkedArray:
    """Tells which of `keys` are `key`; a record without a key is of none."""
    return pc.fill_null(pc.equal(keys, pa.scalar(key, keys.type)), False)


class Looked:
    """What is known of the files of one topic. A file of a name never changes, so each is read once."""

    def __init__(self, store: ObjectStore, topic: str, key: bytes) -> None:
        self._store = store
        self._topic = topic
        self._key = key
        self._known: dict[str, Holding | None] = {}
        self.unreadable: dict[str, str] = {}
        """Files that could not be read whole, and why; each is tried again."""

    def holding(self, files: Iterable[DataFile | str]) -> dict[str, Holding]:
        """Reads those of `files` that were not read yet; those with records of the key, by path. Raises Unavailable."""
        wanted = {file if isinstance(file, str) else file.path: file for file in files}
        fresh = [file for path, file in wanted.items() if path not in self._known]
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            for _ in pool.map(self._look, fresh):
                pass
        found = ((path, self._known.get(path)) for path in wanted)
        return {path: holding for path, holding in found if holding is not None}

    def _look(self, file: DataFile | str) -> None:
        path = file if isinstance(file, str) else file.path
        try:
            records = read_data_file(self._store, self._topic, file, columns=["offset", "key"])
        except CorruptData as error:
            self.unreadable[path] = error.detail
            return
        self.unreadable.pop(path, None)
        at = np.flatnonzero(of_key(records.column("key"), self._key).to_numpy())
        offsets = records.column("offset").to_numpy()
        self._known[path] = Holding(path, len(at), int(offsets[at[0]]), int(offsets[at[-1]])) if len(at) else None


def data_files(store: ObjectStore, topic: str) -> list[ObjectInfo]:
    """Every Parquet file below the topic's path that is none of its log, whether a version names it or not."""
    beginning = f"{names.topic_path(topic)}/"
    return [
        info
        for info in store.list(names.topic_path(topic))
        if info.path.endswith(".parquet") and not info.path.removeprefix(beginning).startswith("_")
    ]


def partition_of(path: str) -> int:
    """The partition that a data file's folder names; -1 where it names none."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    number = folder.removeprefix(f"{names.PARTITION_COLUMN}=")
    return int(number) if number != folder and number.isdigit() else -1


def staged(store: ObjectStore, key: bytes) -> Iterator[Left]:
    """Yields the batches of Spark writers that are still to be published and have the key."""
    for info in store.list(names.STAGING_FOLDER):
        writer, _, rest = info.path.removeprefix(f"{names.STAGING_FOLDER}/").partition("/")
        if rest.startswith(f"{names.STAGED_FILES}/") and _arrow_holds(store, info.path, key, pa.ipc.open_stream):
            yield Left(
                store.uri(info.path),
                f"Spark's writer {writer} has staged it, to publish it or since it did",
                "let the stream end, then `silt vacuum`; then run this again",
            )


def stranded(store: ObjectStore, folder: str, key: bytes) -> Iterator[Left]:
    """Yields the files below `folder` of records that never came into their table and have the key."""
    for info in store.list(folder):
        if info.path.endswith(names.STRANDED_SUFFIX) and _arrow_holds(store, info.path, key, pa.ipc.open_file):
            yield Left(
                store.uri(info.path),
                "stranded records that never came into their table",
                "`silt stranded publish` it and run this again, or delete the file",
            )


def _arrow_holds(store: ObjectStore, path: str, key: bytes, opening: Any) -> bool:
    """Whether an Arrow file or stream has the key; True where it cannot be read, and nobody can tell."""
    try:
        with store.open(path) as source, opening(source) as reader:
            records = reader.read_all()
    except FileNotFoundError:
        return False
    except (OSError, pa.ArrowException):
        return True
    if "key" not in records.column_names:
        return False
    return bool(pc.any(of_key(records.column("key").cast(pa.binary()), key)).as_py())


def backed_up(store: ObjectStore, key: bytes) -> Iterator[Left]:
    """Yields the place of backups at `store`, where any of their files has the key."""
    paths = [info.path for info in store.list(backup_names.FILES_FOLDER) if info.path.endswith(".parquet")]
    with ThreadPoolExecutor(READS_AT_ONCE) as pool:
        count = sum(pool.map(lambda path: _parquet_holds(store, path, key), paths))
    if count:
        yield Left(
            store.root_uri,
            f"{count} files of the backups there have it",
            f"`silt backup --to {store.root_uri} --keep 1`, which removes the backups before and what only they have",
        )


def _parquet_holds(store: ObjectStore, path: str, key: bytes) -> bool:
    """True also where it cannot be read, and nobody can tell."""
    try:
        with store.open(path) as source:
            keys = pq.read_table(source, columns=["key"])
    except FileNotFoundError:
        return False
    except (OSError, pa.ArrowException):
        return True
    if not keys.num_columns:
        return False
    return bool(pc.any(of_key(keys.column("key"), key)).as_py())


def replays(store: ObjectStore, key: bytes) -> Iterator[tuple[str, bool, Sequence[str]]]:
    """Yields the runs of `silt replay` that were told to read this key: name, whether it has ended, its objects."""
    for info in store.list(names.REPLAY_FOLDER):
        run = info.path.removeprefix(f"{names.REPLAY_FOLDER}/").partition("/")[0]
        plan, progress = names.replay_plan_object(run), names.replay_progress_object(run)
        if info.path != plan:
            continue
        try:
            selected = _PLAN.decode(store.get(plan)).selection.key
        except (FileNotFoundError, msgspec.DecodeError):
            continue
        if selected == key:
            yield run, _finished(store, progress), (plan, progress)


def _finished(store: ObjectStore, progress: str) -> bool:
    try:
        return _PROGRESS.decode(store.get(progress)).finished
    except (FileNotFoundError, msgspec.DecodeError):
        return False
