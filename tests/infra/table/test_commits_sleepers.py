"""A committer that slept while others committed past it and the log was cleaned: its commit does not count."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import started
from processes import is_stopped
from record_tables import CLOCK, append, claimed, created, new_id, written
from s3_server import S3Server
from s3_storm import Storm

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Fenced, OutcomeUnknown, SiltlogError
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, Put, open_store
from siltlog.infra.table import delta as handle_module
from siltlog.infra.table.entries import (
    HOUR_MS,
    RETENTION_MS,
    cleaned_below,
    entry_path,
    last_checkpoint_path,
    log_folder,
)
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.opening import load, snapshot_at
from siltlog.infra.table.table import TopicTable

Queue = "multiprocessing.queues.Queue[str]"
Act = Callable[[ObjectStore, TopicTable], object]
COMMITS = 6
"""So many commits are made by those who go on before they write a checkpoint."""
EPOCH = 2
"""Whoever takes the partitions over meanwhile has this one."""


class Tomorrow(SystemClock):
    """After the period of everything that is there now."""

    def now_us(self) -> int:
        return super().now_us() + (RETENTION_MS + HOUR_MS) * 1000


def add(store: ObjectStore, table: TopicTable) -> object:
    return append(store, table, {0: 5})


def claim(store: ObjectStore, table: TopicTable) -> object:
    return table.claim({0: 9}, new_id())


def take_over(store: ObjectStore, table: TopicTable) -> object:
    return table.claim({0: 9}, new_id(), former={0: 1})


def configure(store: ObjectStore, table: TopicTable) -> object:
    return table.set_config(TopicConfig({"retention.ms": 5}), new_id())


def delete(store: ObjectStore, table: TopicTable) -> object:
    return table.delete(new_id())


def compact(store: ObjectStore, table: TopicTable) -> object:
    files = table.snapshot.files_of(0)
    return table.rewrite(table.snapshot.version, files, [written(store, "t", 0, 0, 4)], new_id())


def retain(store: ObjectStore, table: TopicTable) -> object:
    plan = table.snapshot
    return move_starts(table, plan.version, {0: start_move(plan, 0, 2)}, new_id(), now_ms=CLOCK.now_us() // 1000)


def filled(store: ObjectStore) -> TopicTable:
    table = claimed(store)
    append(store, table, {0: 2})
    append(store, table, {0: 2})
    return table


def pass_by(store: ObjectStore) -> TopicTable:
    """Another node takes the topic over, commits, writes a checkpoint and cleans the log, a day later."""
    table = TopicTable.open(store, "t", Tomorrow())
    table.claim(dict.fromkeys(range(2), EPOCH), new_id())
    for _ in range(COMMITS):
        append(store, table, {1: 1}, epoch=EPOCH)
    table.checkpoint()
    table.clean_log(Tomorrow().now_us() // 1000)
    append(store, table, {1: 1}, epoch=EPOCH)
    return table


def said(act: Callable[[], object]) -> str:
    try:
        act()
    except SiltlogError as error:
        return f"{type(error).__name__}: {error.detail}"
    return "done"


def sleeping(root: str, act: Act, words: Queue) -> None:
    """Stops where its commit is made and not yet linked."""
    store = open_store(root)
    table = TopicTable.open(store, "t", CLOCK)
    real = handle_module.LogWindow.publish

    def publish(window: handle_module.LogWindow, path: str) -> bool:
        os.kill(os.getpid(), signal.SIGSTOP)
        return real(window, path)

    handle_module.LogWindow.publish = publish  # type: ignore[method-assign]
    words.put(said(lambda: act(store, table)))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def asleep(root: Path, act: Act) -> Iterator[Callable[[], str]]:
    """A process that is about to link what `act` commits; call what is yielded to wake it and hear what it says."""
    words = started.queue()
    process = started.process(sleeping, root.as_uri(), act, words)
    process.start()
    assert process.pid
    pid = process.pid
    try:
        until(lambda: is_stopped(pid))

        def wake() -> str:
            os.kill(pid, signal.SIGCONT)
            until(lambda: is_stopped(pid) or not words.empty())
            while words.empty():  # it begins anew, and comes there again
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            said = words.get(timeout=60)
            assert isinstance(said, str)
            return said

        yield wake
    finally:
        process.kill()
        process.join(60)


def entries(store: ObjectStore) -> list[int]:
    listed = [info.path.rpartition("/")[2] for info in store.list(log_folder("t"))]
    return sorted(int(name.removesuffix(".json")) for name in listed if name.endswith(".json"))


def stray(store: ObjectStore, version: int) -> None:
    """What a committer that never came to look left."""
    content = store.get(entry_path("t", cleaned_below(store, "t")))
    assert store.put_if_absent(entry_path("t", version), content) is Put.WRITTEN


def check_unharmed(store: ObjectStore, table: TopicTable) -> None:
    """The log has no entry below where it was cleaned, and says what the table says."""
    assert entries(store) == list(range(cleaned_below(store, "t"), table.refresh().version + 1))
    assert TopicTable.open(store, "t", CLOCK).snapshot == table.snapshot


ANEW = {
    add: r"Fenced: .*its epoch is 2, not 1;.*",
    claim: "done",
    take_over: r"Fenced: .*its epoch is 2, not 1 any more;.*",
    configure: "done",
    delete: "done",
    compact: r"Fenced: .*plan it anew",
    retain: r"Fenced: .*plan it anew",
}


def check_decided_anew(store: ObjectStore, table: TopicTable, act: Act, said: str) -> None:
    before = table.snapshot
    assert re.fullmatch(ANEW[act], said), said
    assert table.refresh().version == before.version + (said == "done"), "on top of what the others did"
    check_unharmed(store, table)


@pytest.mark.rule("T17", "T18")
@pytest.mark.parametrize("act", [add, claim, take_over, configure, delete])
def test_a_commit_that_slept_past_a_clean_up_is_decided_anew(tmp_path: Path, act: Act) -> None:
    store = open_store(tmp_path.as_uri())
    filled(store)
    with asleep(tmp_path, act) as wake:
        table = pass_by(store)
        assert entries(store)[0] == cleaned_below(store, "t") > COMMITS
        check_decided_anew(store, table, act, wake())


@contextmanager
def under_way(server: S3Server, root: str, act: Act | None, version: int) -> Iterator[Callable[[], str]]:
    """Stands for a process, like `asleep`, whose request for that version has not come to S3 yet."""
    storm = Storm(server.endpoint)
    storm.kept_back = f"{version:020d}.json"
    words = started.queue()
    # Not a thread: some calls of deltalake keep the interpreter to themselves, and the storm is in it.
    process = started.process(committing, root, storm.endpoint, act, words)
    process.start()
    try:
        assert storm.waiting.wait(60)

        def arrive() -> str:
            storm.released.set()
            said = words.get(timeout=60)
            assert isinstance(said, str)
            return said

        yield arrive
    finally:
        storm.close()
        process.kill()
        process.join(60)


def committing(root: str, endpoint: str, act: Act | None, words: Queue) -> None:
    """Without an `act` it makes the topic."""
    store = open_store(root, s3_endpoint=endpoint)
    words.put(said(lambda: created(store) if act is None else act(store, TopicTable.open(store, "t", CLOCK))))


@pytest.mark.rule("T18")
@pytest.mark.s3
@pytest.mark.parametrize("act", [add, claim, compact, retain])
def test_a_request_that_s3_takes_past_a_clean_up_is_decided_anew(s3_server: S3Server, tmp_path: Path, act: Act) -> None:
    root = s3_server.root_uri(f"sleepers/{tmp_path.name}")
    store = open_store(root, s3_endpoint=s3_server.endpoint)
    version = filled(store).snapshot.version
    with under_way(s3_server, root, act, version + 1) as arrive:
        table = pass_by(store)
        check_decided_anew(store, table, act, arrive())


@pytest.mark.s3
def test_who_makes_a_topic_asleep_makes_none(s3_server: S3Server, tmp_path: Path) -> None:
    root = s3_server.root_uri(f"sleepers/{tmp_path.name}")
    store = open_store(root, s3_endpoint=s3_server.endpoint)
    with under_way(s3_server, root, None, 0) as arrive:
        filled(store)
        table = pass_by(store)
        assert arrive().startswith("TopicExists: ")
    check_unharmed(store, table)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"sleepers/{tmp_path.name}"), s3_endpoint=server.endpoint)


def test_who_slept_before_its_commit_takes_no_name_anew(store: ObjectStore) -> None:
    late = filled(store)
    table = pass_by(store)
    with pytest.raises((OutcomeUnknown, Fenced)):
        append(store, late, {0: 1})
    check_unharmed(store, table)
    assert late.refresh() == table.snapshot
    with pytest.raises(Fenced, match="its epoch is 2"):
        append(store, late, {0: 1})


def test_of_a_commit_before_a_clean_up_it_is_told_that_it_is_past(store: ObjectStore) -> None:
    """Whoever waits for it goes by the table then."""
    late = filled(store)
    version, landed = late.snapshot.version, new_id()
    append(store, late, {0: 1}, commit_id=landed)
    assert late.outcome(landed, version) == "landed" and late.outcome(new_id(), version) == "not_landed"
    table = pass_by(store)
    assert late.outcome(landed, version) == late.outcome(new_id(), version) == "past"
    newest = new_id()
    append(store, table, {0: 1}, epoch=EPOCH, commit_id=newest)
    assert late.outcome(newest, version) == "landed"


def test_a_stray_harms_nobody_and_goes(store: ObjectStore) -> None:
    filled(store)
    table = pass_by(store)
    for version in (2, cleaned_below(store, "t") - 1):
        stray(store, version)
        assert load(store, "t").snapshot == table.snapshot
        with pytest.raises(SiltlogError, match=f"no version {version} any more"):
            snapshot_at(store, "t", version)
    table.clean_log(CLOCK.now_us() // 1000)
    check_unharmed(store, table)


@pytest.mark.rule("T20")
def test_a_checkpoint_that_somebody_names_late_is_not_gone_by(store: ObjectStore) -> None:
    late = filled(store)
    while late.snapshot.version < COMMITS:
        append(store, late, {0: 1})
    late.checkpoint()
    named = store.get(last_checkpoint_path("t"))
    table = pass_by(store)
    assert cleaned_below(store, "t") > COMMITS + 1
    store.put(last_checkpoint_path("t"), named)
    assert TopicTable.open(store, "t", CLOCK).snapshot == table.refresh()
    append(store, table, {0: 1}, epoch=EPOCH)
    check_unharmed(store, table)


def test_a_checkpoint_right_before_those_that_are_left_is_not_gone_by(store: ObjectStore) -> None:
    table = filled(store)
    table.checkpoint()
    named = store.get(last_checkpoint_path("t"))
    append(store, table, {0: 1})
    table.checkpoint()
    table.clean_log(Tomorrow().now_us() // 1000)
    assert cleaned_below(store, "t") == table.snapshot.version
    store.put(last_checkpoint_path("t"), named)
    assert TopicTable.open(store, "t", CLOCK).snapshot == table.snapshot
