"""Finds what every partition has that is not in its table, and how long the files of its topic let it wait."""

from collections.abc import Collection, MutableMapping, Sequence
from weakref import WeakKeyDictionary

from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX, UNLIMITED
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.due import EARLY_BYTES, UNHURRIED, Load, held_until
from siltlog.ingest.flush.file_budget import FileBudget
from siltlog.ingest.flush.request_budget import RequestBudget, Want
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog


class Loads:
    def __init__(self, log: Log, logger: Logger, requests: RequestBudget) -> None:
        self._log = log
        self._requests = requests
        self._logger = logger
        # Weak, so that a topic that is deleted goes with all its records in memory.
        self._budgets: MutableMapping[TopicLog, FileBudget] = WeakKeyDictionary()

    def of(self, topics: Sequence[TopicLog]) -> list[Load]:
        """The loads of partitions that have any. Where the log or the memory is short, none waits to save files."""
        log = self._log
        now = log.clock.monotonic()
        tight = log.admission.wal_is_tight()
        pinning = frozenset(log.wal.oldest_pinning() if log.admission.wal_holds_much() else ())
        loads = []
        pinned = set()
        for topic in topics:
            if not topic.may_flush:
                continue
            config = topic.config
            flush_ms, flush_bytes = config.integer("flush.ms"), config.integer("flush.bytes")
            hidden = topic.hidden
            waiting = [
                (each, oldest)
                for each in topic.partitions
                if (oldest := each.head.oldest_unflushed_seconds) is not None
            ]
            if not waiting:
                continue
            pace = self._budget(topic).pace(len(waiting), config.integer("flush.files.per.hour"), flush_bytes, now)
            at_once = hidden or pace.ready_seconds <= now
            for each, oldest in waiting:
                nbytes, awaited = each.head.unflushed_bytes, each.awaited
                pins = (topic.id_bytes, each.partition) in pinning
                if pins:
                    pinned.add((topic.name, each.partition))
                held = 0.0 if at_once or pins or awaited else held_until(pace, nbytes, oldest, flush_ms)
                loads.append(
                    Load(
                        topic.name,
                        each.partition,
                        nbytes,
                        oldest,
                        flush_ms,
                        flush_bytes,
                        pins and tight,
                        hidden,
                        awaited,
                        UNHURRIED if pins else pace,
                        held,
                    )
                )
        if log.head_is_tight(sum(load.bytes for load in loads)):
            return [load._replace(pace=UNHURRIED, held_seconds=0.0) for load in loads]
        return self._priced(loads, pinned, now) if self._requests.on else loads

    def _priced(self, loads: Sequence[Load], pinned: Collection[tuple[str, int]], now: float) -> list[Load]:
        """Keeps back what the budget of requests has no room for, but for what does not wait for it (F8)."""
        files: dict[str, int] = {}
        due: dict[str, float] = {}
        for load in loads:
            files[load.topic] = files.get(load.topic, 0) + 1
            due_at = max(load.oldest_seconds + load.flush_ms / 1000, load.held_seconds)
            due[load.topic] = min(due.get(load.topic, due_at), due_at)
        wants = [Want(due[topic], count) for topic, count in files.items()]
        ready = dict(zip(files, self._requests.ready(wants, now), strict=True))
        return [
            load
            if ready[load.topic] <= now or load.hidden or load.awaited or (load.topic, load.partition) in pinned
            else load._replace(
                pace=load.pace._replace(early_bytes=load.flush_bytes),
                held_seconds=max(
                    load.held_seconds,
                    min(ready[load.topic], load.oldest_seconds + max(load.flush_ms, FLUSH_WAIT_MS_MAX) / 1000),
                ),
            )
            for load in loads
        ]

    def flushed(self, topic: TopicLog, loads: Sequence[Load]) -> None:
        """Takes note of a flush that begins."""
        small = sum(load.bytes < EARLY_BYTES for load in loads)
        per_hour = topic.config.integer("flush.files.per.hour")
        self._budget(topic).spend(small, per_hour, self._log.clock.monotonic())

    def see(self, topic: TopicLog, patience: float) -> None:
        """Takes note of how crowded the table is; a person is told when that begins and when it is over."""
        budget = self._budget(topic)
        crowded = budget.patience > 1.0
        budget.patience = patience
        if topic.config.integer("flush.files.per.hour") == UNLIMITED or crowded == (patience > 1.0):
            return
        files = len(topic.snapshot.files)
        if crowded:
            self._logger.info(
                "files come as usual again: the table is not crowded any more", topic=topic.name, files=files
            )
        else:
            self._logger.warning(
                "the table is crowded, so its files come more seldom; `silt jobs` says how compaction went",
                topic=topic.name,
                files=files,
            )

    def _budget(self, topic: TopicLog) -> FileBudget:
        return self._budgets.setdefault(topic, FileBudget())
