"""Erases every record of a key from tables: the right to be forgotten.

Files that hold the key are written anew without its records, by the door, as compactions are; the other records keep
their offsets, and readers go past the gaps. Then the old files go at once, from former versions too, and it is looked
whether any is left. Killed at any point and run again, the result is the same: each commit is whole, and what there
is to do is found by looking.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow.compute as pc

from siltlog.infra import delta_names, names
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.columns import FILE_SCHEMA
from siltlog.infra.errors import ConfigError, Fenced, SiltlogError, UnknownTopic, problem
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import ObjectStore, delete_all, open_store
from siltlog.infra.table.data_file import DataFile, read_data_file, write_data_file
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable
from siltlog.infra.table.totals import Kept
from siltlog.pipelines.erasure.looking import (
    Holding,
    Left,
    Looked,
    backed_up,
    data_files,
    of_key,
    partition_of,
    replays,
    staged,
    stranded,
)
from siltlog.pipelines.retention.journals import HEADER_BYTES, left_journals
from siltlog.pipelines.topics import chosen_topics, journals_store, other_store, store_of

COMMIT_FILES_MAX = 100
"""One commit replaces at most so many files: what a race or a kill makes futile stays small."""
RACES_MAX = 5
"""How many commits in a row may be overtaken by others before a topic is left for the next run."""
READERS_S = 10.0
"""How long readers of old files have to see that there are new ones, where no server said that it did."""
CLOCKS_MS = 2_000
"""How much younger than it is a file may seem."""
_NOTHING = Kept(0, 0, 0, 0)

Progress = Callable[[str, int, int], None]
"""Called with the topic, the files done and the files planned."""
Settle = Callable[[], Sequence[Left]]
"""Has the servers put what they acknowledged into the tables, see what the tables are, and let go of other copies; what
could not be done."""


_UNSETTLED = Left(
    "the servers",
    "their write-ahead logs, journals and memory were not asked to let go of what the tables have",
    "run this again where they answer (`--url`)",
)


@dataclass(slots=True)
class ErasureReport:
    """What was erased of one topic; a dry run has what would be. `error` ended it early."""

    topic: str
    dry_run: bool
    records: int = 0
    """How many records the table has, those below the log start included."""
    files: int = 0
    """Files of the table that are written anew, or go."""
    old_files: int = 0
    """Files that no table names any more, of former versions and of writers that were killed."""
    left: list[Left] = field(default_factory=list)
    seconds: float = 0.0
    error: SiltlogError | None = None


@dataclass(slots=True)
class Erasure:
    """The result of a run. `left` has what holds the key, or may, beside the topics."""

    topics: list[ErasureReport]
    left: list[Left] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing was left."""
        return not self.left and not any(report.left or report.error for report in self.topics)


def erase_key(
    settings: ServerSettings,
    key: bytes,
    topics: Sequence[str] = (),
    *,
    backups: Sequence[str] = (),
    settle: Settle | None = None,
    dry_run: bool = True,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Erasure:
    """Erases every record of `key` from `topics` and their dead letters, or from all but the system's when empty.

    It is looked whether the `backups` at those places have it: what is in them is not changed. A topic that fails has
    its `error` in its report and the others go on. Raises UnknownTopic for a name that is none,
    Refused `forbidden` for a topic of the system.
    """
    clock = clock or SystemClock()
    store = store_of(settings)
    chosen = _with_dead_letters(store, topics)
    # By the earlier of two clocks, and what this one does not know of is not older than it seems.
    began_ms = min(clock.now_us() // 1000, store.clock_ms()) - CLOCKS_MS
    said = [] if dry_run or settle is None else list(settle())
    works = []
    for topic in chosen:
        work = _Work(store, topic, key, clock, dry_run, progress)
        work.attempt(work.rewrite)
        # Without names: its creation was cut short before its first commit.
        if topics or not isinstance(work.report.error, UnknownTopic):
            works.append(work)
    if not dry_run:
        if settle is not None:
            said = list(settle())
        settled = settle is not None and not said
        if not settled:
            clock.sleep(READERS_S)
        for work in works:
            work.attempt(partial(work.delete_old, flushes_since_ms=began_ms if settled else 0))
    if settle is None and not dry_run:
        said = [_UNSETTLED]
    left = [*said, *_beside(settings, store, key, dry_run)]
    if not dry_run:
        left += _journals(settings, store, clock, began_ms)
    for place in backups:
        kept = other_store(settings, place, make=False)
        if kept is None:
            raise ConfigError(f"there are no backups at {place}")
        left += backed_up(kept, key)
    return Erasure([work.report for work in works], left)


def _with_dead_letters(store: ObjectStore, topics: Sequence[str]) -> list[str]:
    there = chosen_topics(store, ())
    if not topics:
        return [topic for topic in there if not topic.startswith(names.SYSTEM_PREFIX)]
    for topic in topics:
        if topic.startswith(names.SYSTEM_PREFIX):
            raise problem("forbidden", f"the topic {topic} is the system's: its records follow from its use")
    found = dict.fromkeys(chosen_topics(store, topics))
    for topic in list(found):
        while (topic := names.dead_letter_topic(topic)) in there:
            found[topic] = None
    return list(found)


def _journals(settings: ServerSettings, store: ObjectStore, clock: Clock, began_ms: int) -> Iterator[Left]:
    """Deletes the records in journals of starts that are over; yields those that somebody may still need."""
    journals = journals_store(settings, store)
    # Those with records are named before these come, so no age has to say that nobody needs them.
    delete_all(journals, left_journals(store, journals, clock.now_us() // 1000 + CLOCKS_MS, gone_ms=0))
    old = [
        info
        for info in journals.list(names.JOURNALS_FOLDER)
        if info.size > HEADER_BYTES and info.modified_ms < began_ms
    ]
    if old:
        yield Left(
            journals.uri(names.JOURNALS_FOLDER),
            f"{len(old)} objects of journals that a node may still need, and that may have the key",
            "run this again once each topic has an owner and every node answers (`silt cluster status`)",
        )


def _beside(settings: ServerSettings, store: ObjectStore, key: bytes, dry_run: bool) -> list[Left]:
    left = [*staged(store, key), *stranded(store, names.SHARED_STRANDED_FOLDER, key)]
    if (settings.data_dir / names.STRANDED_FOLDER).is_dir():
        left += stranded(open_store(settings.data_dir.absolute().as_uri()), names.STRANDED_FOLDER, key)
    for run, ended, objects in list(replays(store, key)):
        if not ended:
            left.append(
                Left(
                    store.uri(names.replay_plan_object(run)),
                    f"the replay {run} was told to read this key, and has not ended",
                    "let it end, or delete the object; then run this again",
                )
            )
        elif not dry_run:
            for path in objects:
                store.delete(path)
    return left


class _Work:
    """The erasing of a key from one topic."""

    def __init__(
        self, store: ObjectStore, topic: str, key: bytes, clock: Clock, dry_run: bool, progress: Progress | None
    ) -> None:
        self.report = ErasureReport(topic, dry_run)
        self._store = store
        self._key = key
        self._clock = clock
        self._progress = progress
        self._looked = Looked(store, topic, key)

    def attempt(self, step: Callable[[TopicTable], None]) -> None:
        """Takes a step, unless one before it failed."""
        if self.report.error is not None:
            return
        started = self._clock.monotonic()
        try:
            step(TopicTable.open(self._store, self.report.topic, self._clock))
        except SiltlogError as error:
            self.report.error = error
        self.report.seconds += self._clock.monotonic() - started

    def rewrite(self, table: TopicTable) -> None:
        """Has the table name no file any more that holds the key; a dry run counts them, and those it does not name."""
        if self.report.dry_run:
            found = self._looked.holding(table.snapshot.files.values())
            self._count(found.values())
            self.report.old_files = len(self._looked.holding(self._strays(table.snapshot)))
            self._say_unreadable()
            return
        races = 0
        done = 0
        while races < RACES_MAX:
            snapshot = table.refresh()
            found = self._looked.holding(snapshot.files.values())
            if not found:
                return
            batch = list(found.values())[:COMMIT_FILES_MAX]
            try:
                self._replace(table, snapshot, batch)
            except Fenced:
                races += 1
                continue
            races = 0
            done += len(batch)
            self._count(batch)
            if self._progress is not None:
                self._progress(table.topic, done, done + len(found) - len(batch))
        raise problem(
            "topic_unavailable",
            f"topic {table.topic} is being rewritten by others all the time; run this again",
            topic=table.topic,
        )

    def _count(self, found: Collection[Holding]) -> None:
        self.report.files += len(found)
        self.report.records += sum(holding.rows for holding in found)

    def _replace(self, table: TopicTable, snapshot: TableSnapshot, batch: Sequence[Holding]) -> None:
        kept: dict[int, Kept] = {}
        marks: dict[str, int] = {}
        removes, adds = [], []
        for holding in batch:
            file = snapshot.files[holding.path]
            removes.append(file)
            written, rest = self._without(file, str(snapshot.config["compression"]))
            if written is not None:
                adds.append(written)
            before = kept.get(file.partition, _NOTHING)
            kept[file.partition] = Kept(
                before.rows + rest.rows, before.total + rest.total, before.keyless + rest.keyless, 0
            )
            mark = delta_names.txn_erased(file.partition)
            marks[mark] = max(marks.get(mark, snapshot.erased(file.partition)), holding.last_offset + 1)
        table.rewrite(snapshot.version, removes, adds, str(uuid.uuid4()), kept=kept, marks=marks)

    def _without(self, file: DataFile, compression: str) -> tuple[DataFile | None, Kept]:
        """Writes the other records of a file into another; none where it has no others."""
        records = read_data_file(self._store, self.report.topic, file, columns=FILE_SCHEMA.names)
        rest = records.filter(pc.invert(of_key(records.column("key"), self._key)))
        if not rest.num_rows:
            return None, _NOTHING
        now_ms = self._clock.now_us() // 1000
        written = write_data_file(
            self._store, self.report.topic, file.partition, rest, compression=compression, now_ms=now_ms
        )
        total = sum(rest.column("offset").to_pylist())
        return written, Kept(rest.num_rows, total, rest.column("key").null_count, 0)

    def _strays(self, snapshot: TableSnapshot) -> list[str]:
        beginning = f"{names.topic_path(self.report.topic)}/"
        paths = (info.path.removeprefix(beginning) for info in data_files(self._store, self.report.topic))
        return [path for path in paths if path not in snapshot.files]

    def delete_old(self, table: TopicTable, flushes_since_ms: int) -> None:
        """Deletes what holds the key and no table names, then looks whether anything does still.

        Flushes that began before `flushes_since_ms` have ended.
        """
        found = self._looked.holding(self._strays(table.snapshot))
        if found:
            snapshot = self._fenced(table, {partition_of(path) for path in found})
            beginning = names.topic_path(table.topic)
            there = {info.path.removeprefix(f"{beginning}/"): info for info in data_files(self._store, table.topic)}
            # What a flush has written and not committed yet lies at or above the end of its partition.
            doomed = [
                there[path]
                for path, holding in found.items()
                if path in there
                and path not in snapshot.files
                and (
                    snapshot.deleted
                    or there[path].modified_ms < flushes_since_ms
                    or holding.last_offset < snapshot.offsets.get(partition_of(path), 0)
                )
            ]
            delete_all(self._store, doomed)
            for folder in dict.fromkeys(info.path.rpartition("/")[0] for info in doomed):
                if folder.startswith(f"{beginning}/{names.REWRITE_PREFIX}"):
                    self._store.prune(folder)
            self.report.old_files += len(doomed)
        self._verify(table)

    def _fenced(self, table: TopicTable, partitions: set[int]) -> TableSnapshot:
        """The snapshot after a commit by which no rewrite that was planned before it can bring a file back."""
        for _ in range(RACES_MAX):
            snapshot = table.refresh()
            kept = dict.fromkeys(sorted(partitions & snapshot.offsets.keys()), _NOTHING)
            if snapshot.deleted or not kept:
                return snapshot
            try:
                return table.rewrite(snapshot.version, (), (), str(uuid.uuid4()), kept=kept)
            except Fenced:
                continue
        raise problem(
            "topic_unavailable",
            f"topic {table.topic} is being rewritten by others all the time; run this again",
            topic=table.topic,
        )

    def _verify(self, table: TopicTable) -> None:
        snapshot = table.refresh()
        live = self._looked.holding(snapshot.files.values())
        strays = self._looked.holding(self._strays(snapshot))
        where = self._store.uri(names.topic_path(table.topic))
        if live:
            rows = sum(holding.rows for holding in live.values())
            self.report.left.append(
                Left(
                    where,
                    f"{rows} records of the key came while it was being erased",
                    "have nobody publish it any more, then run this again",
                )
            )
        for path in sorted(strays):
            self.report.left.append(
                Left(f"{where}/{path}", "a file that is on its way into the table", "run this again in a minute")
            )
        self._say_unreadable()

    def _say_unreadable(self) -> None:
        where = self._store.uri(names.topic_path(self.report.topic))
        there = {info.path for info in data_files(self._store, self.report.topic)}
        unfinished = [info.path for info in self._store.unfinished(names.topic_path(self.report.topic))]
        for path, why in sorted(self._looked.unreadable.items()):
            if f"{names.topic_path(self.report.topic)}/{path}" in there:
                self.report.left.append(
                    Left(
                        f"{where}/{path}",
                        f"it cannot be read: {why}",
                        "a job may be writing it: run this again once no job runs, or after `silt vacuum`",
                    )
                )
        for path in unfinished:
            self.report.left.append(
                Left(
                    self._store.uri(path),
                    "an object that is being written, or was when its writer was killed",
                    "run this again in a minute; `silt vacuum` removes what a killed process left",
                )
            )
