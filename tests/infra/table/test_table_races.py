"""Processes and threads that change one table at once: no record is lost and none is there twice."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Barrier, Event

import pytest
import started
from deltalake import DeltaTable
from record_tables import CLOCK, append, claimed, created, new_id, written
from s3_server import S3Server

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Fenced, TopicExists, Unavailable, UnknownTopic
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.data_file import DataFile, read_data_file
from siltlog.infra.table.delta import Make, commit_actions
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable

PARTITIONS = 2
APPENDS = 12
RECORDS = sum(number % 3 + 1 for number in range(APPENDS))
Queue = "multiprocessing.queues.Queue[str]"


def appending(root: str, endpoint: str, partition: int, done: Queue) -> None:
    store = open_store(root, s3_endpoint=endpoint)
    table = TopicTable.open(store, "t", CLOCK)
    for number in range(APPENDS):
        append(store, table, {partition: number % 3 + 1})
        table.maintain()
    done.put(f"appended {partition} {table.snapshot.offsets[partition]}")


def rewriting(root: str, endpoint: str, done: Queue) -> None:
    """Until everything is appended and each partition is one file."""
    store = open_store(root, s3_endpoint=endpoint)
    table = TopicTable.open(store, "t", CLOCK)
    while True:
        snapshot, removes, adds = table.refresh(), [], []
        for partition in range(PARTITIONS):
            files = list(snapshot.files_of(partition))
            if len(files) > 1:
                first, last = files[0].first_offset, files[-1].last_offset
                removes += files
                adds.append(written(store, "t", partition, first, last - first + 1))
        if removes:
            try:
                table.rewrite(snapshot.version, removes, adds, new_id())
                done.put("rewritten")
            except Fenced:
                done.put("fenced")
        elif all(offset == RECORDS for offset in snapshot.offsets.values()):
            return


def reconfiguring(root: str, endpoint: str, done: Queue) -> None:
    table = TopicTable.open(open_store(root, s3_endpoint=endpoint), "t", CLOCK)
    for number in range(4):
        for _ in range(10):
            try:
                table.set_config(TopicConfig({"retention.ms": number}), new_id())
                break
            except Unavailable:
                continue  # It lost races for too long.
    done.put("configured")


def retaining(root: str, endpoint: str, partition: int, done: Queue) -> None:
    """Moves the log start of one partition by two, again and again, until half of what comes is below it."""
    table = TopicTable.open(open_store(root, s3_endpoint=endpoint), "t", CLOCK)
    while (plan := table.refresh()).starts[partition] < RECORDS // 2:
        start = min(plan.starts[partition] + 2, plan.offsets[partition])
        # With pauses, as a job has: an append may lose races only for so long.
        CLOCK.sleep(random.uniform(0.02, 0.1))
        if start == plan.starts[partition]:
            continue
        try:
            move = start_move(plan, partition, start)
            move_starts(table, plan.version, {partition: move}, new_id(), now_ms=CLOCK.now_us() // 1000)
        except Fenced:
            continue
        done.put("retained")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "local":
        return tmp_path.as_uri(), ""
    server: S3Server = request.getfixturevalue("s3_server")
    return server.root_uri(f"races/{tmp_path.name}"), server.endpoint


def run(processes: list[ForkServerProcess], done: Queue) -> Counter[str]:
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    words: Counter[str] = Counter()
    while not done.empty():
        words[done.get()] += 1
    return words


def offsets_of(store: ObjectStore, table: TopicTable, partition: int) -> list[int]:
    found: list[int] = []
    for file in table.snapshot.files_of(partition):
        found += read_data_file(store, "t", file, columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


@pytest.mark.rule("T15")
@pytest.mark.slow
def test_appends_rewrites_and_changes_of_many_processes(place: tuple[str, str]) -> None:
    store = open_store(place[0], s3_endpoint=place[1])
    table = claimed(store, partitions=PARTITIONS)
    done = started.queue()
    words = run(
        [
            *(started.process(appending, *place, p, done) for p in range(PARTITIONS)),
            *(started.process(rewriting, *place, done) for _ in range(2)),
            started.process(reconfiguring, *place, done),
            started.process(retaining, *place, 1, done),
        ],
        done,
    )
    fresh = TopicTable.open(store, "t", CLOCK)
    assert table.refresh() == fresh.snapshot
    for partition in range(PARTITIONS):
        assert words[f"appended {partition} {RECORDS}"] == 1
        found = offsets_of(store, fresh, partition)
        assert found == list(range(RECORDS))[-len(found) :], "each once, and without a hole"
        assert found[0] == 0 if partition == 0 else found[0] <= fresh.snapshot.starts[1]
    assert words["rewritten"] >= 1 and words["retained"] >= 1, words
    assert RECORDS // 2 <= fresh.snapshot.starts[1] <= RECORDS // 2 + 1 and fresh.snapshot.starts[0] == 0


def in_threads(targets: list[Callable[[], str]]) -> Counter[str]:
    """What the targets return, started together."""
    barrier = Barrier(len(targets))

    def started(target: Callable[[], str]) -> str:
        barrier.wait()
        return target()

    with ThreadPoolExecutor(len(targets)) as pool:
        return Counter(pool.map(started, targets))


def test_of_racing_creators_one_wins(place: tuple[str, str]) -> None:
    store = open_store(place[0], s3_endpoint=place[1])

    def creating() -> str:
        try:
            return created(store).topic_id
        except TopicExists:
            return "exists"

    for _ in range(3):
        words = in_threads([creating] * 3)
        table = TopicTable.open(store, "t", CLOCK)
        assert words == Counter({"exists": 2, table.topic_id: 1})
        table.delete(new_id())


def test_of_racing_owners_the_highest_epoch_stays(place: tuple[str, str]) -> None:
    store = open_store(place[0], s3_endpoint=place[1])
    created(store, partitions=1)

    def claiming(epoch: int) -> str:
        table = TopicTable.open(store, "t", CLOCK)
        try:
            table.claim({0: epoch}, new_id())
            for _ in range(APPENDS):
                append(store, table, {0: 2}, epoch=epoch)
        except Fenced:
            return f"fenced {epoch}"
        return f"through {epoch}"

    words = in_threads([partial(claiming, epoch) for epoch in (1, 2, 3)])
    assert words["through 3"] == 1
    table = TopicTable.open(store, "t", CLOCK)
    assert table.snapshot.epochs[0] == 3
    assert offsets_of(store, table, 0) == list(range(table.snapshot.offsets[0]))


@pytest.mark.rule("T15")
def test_an_append_beside_two_rewrites(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    table = claimed(store)
    append(store, table, {0: 3})

    def compacting(version: int, removes: Sequence[DataFile]) -> str:
        end = removes[-1].last_offset + 1
        try:
            TopicTable.open(store, "t", CLOCK).rewrite(version, removes, [written(store, "t", 0, 0, end)], new_id())
        except Fenced:
            return "fenced"
        return "landed"

    def appending_one() -> str:
        append(store, table, {0: 2})
        return "appended"

    for _ in range(6):
        append(store, table, {0: 3})
        plan = table.refresh()
        compact = partial(compacting, plan.version, plan.files_of(0))
        assert in_threads([compact, compact, appending_one]) == Counter(["landed", "fenced", "appended"])
        table.refresh()
        assert offsets_of(store, table, 0) == list(range(table.snapshot.offsets[0]))


def test_a_change_that_never_comes_first_is_given_up(tmp_path: Path) -> None:
    class ClockOfRaces(SystemClock):
        """A second passes with each race, however long it takes."""

        def monotonic(self) -> float:
            return float(lost)

    store = open_store(tmp_path.as_uri())
    claimed(store)
    other = TopicTable.open(store, "t", CLOCK)
    lost = 0
    table = TopicTable.open(store, "t", ClockOfRaces())

    def overtaken(snapshot: TableSnapshot) -> Make:
        def make(handle: DeltaTable) -> None:
            nonlocal lost
            lost += 1
            append(store, other, {0: 1})
            commit_actions(handle, [], {}, new_id())

        return make

    with pytest.raises(Unavailable, match="for 30 s each commit lost the race"):
        table.commit(new_id(), overtaken)
    assert lost > 20, "far more than two that change the same thing now and then would lose"
    assert table.refresh() == other.refresh()


def test_a_delete_beside_appends(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    for _ in range(6):
        table = created(store)
        epoch = table.snapshot.epochs[0] + 1
        table.claim({0: epoch}, new_id())
        other = TopicTable.open(store, "t", CLOCK)
        over = Event()

        def appending_on(table: TopicTable = table, epoch: int = epoch, over: Event = over) -> str:
            # With pauses, as a flusher has, on a slow machine too: a delete may lose races only for so long.
            took = 0.0
            while not over.wait(random.uniform(0, 0.1 + 5 * took)):
                began = time.monotonic()
                try:
                    append(store, table, {0: 1}, epoch=epoch)
                    # As a flusher does: the longer the log, the longer a delete takes, and the more races it loses.
                    table.maintain()
                except UnknownTopic:
                    return "told"
                took = time.monotonic() - began
            with pytest.raises(UnknownTopic):
                append(store, table, {0: 1}, epoch=epoch)
            return "told"

        def deleting(other: TopicTable = other, over: Event = over) -> str:
            try:
                other.delete(new_id())
            finally:
                over.set()
            return "deleted"

        assert in_threads([appending_on, deleting]) == Counter(["told", "deleted"])
        fresh = TopicTable.open(store, "t", CLOCK)
        assert fresh.snapshot.deleted and not fresh.snapshot.files and fresh.snapshot.offsets[0] == 0
