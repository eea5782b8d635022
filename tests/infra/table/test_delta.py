"""A table on a disk is committed to through a window on its log: what that changes, and what it must not."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import started
from record_tables import CLOCK, append, claimed, new_id

from siltlog.infra.errors import CorruptData, OutcomeUnknown
from siltlog.infra.store.local import LocalStore
from siltlog.infra.table import delta as handle_module
from siltlog.infra.table import table as table_module
from siltlog.infra.table.commits import COMMITS_MIN
from siltlog.infra.table.delta import TableHandle, WindowHandle
from siltlog.infra.table.entries import Checkpoint, entry_path, log_folder, newest_checkpoint
from siltlog.infra.table.table import TopicTable

LOG = log_folder("t")


@pytest.fixture
def disk(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def reopened(disk: LocalStore) -> TopicTable:
    return TopicTable.open(disk, "t", CLOCK)


def private_folders(disk: LocalStore) -> list[Path]:
    return sorted(disk.path("cluster/private").iterdir())


def shown(disk: LocalStore) -> set[str]:
    """Names of the log files that handles of this process look at."""
    return {path.name for path in disk.private_folder().glob("*/_delta_log/*")}


@pytest.mark.rule("T8", "T10")
def test_a_commit_looks_at_the_newest_checkpoint_and_what_follows_it_only(disk: LocalStore) -> None:
    table = claimed(disk)
    while table.snapshot.version < COMMITS_MIN + 2:
        append(disk, table, {0: 1})
        table.maintain()
    first = COMMITS_MIN - 1
    entries = {f"{version:020d}.json" for version in range(first, COMMITS_MIN + 3)}
    assert shown(disk) == entries | {"_last_checkpoint", f"{first:020d}.checkpoint.parquet"}
    assert disk.path(entry_path("t", 0)).exists()
    assert reopened(disk).snapshot == table.snapshot


def test_a_checkpoint_that_comes_while_a_table_is_opened(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at which one is the newest and the links."""
    table = claimed(disk)

    def until_checkpointed() -> None:
        before = newest_checkpoint(disk, "t")
        while newest_checkpoint(disk, "t") == before:
            append(disk, table, {0: 1})
            table.maintain()

    until_checkpointed()
    real = WindowHandle._newest_checkpoint
    raced: list[int] = []

    def racing(handle: WindowHandle) -> Checkpoint | None:
        found = real(handle)
        if not raced:
            raced.append(1)
            until_checkpointed()
        return found

    monkeypatch.setattr(WindowHandle, "_newest_checkpoint", racing)
    opened = reopened(disk)
    assert raced
    assert opened.snapshot == table.snapshot
    append(disk, opened, {1: 2})
    assert dict(table.refresh().offsets) == dict(opened.snapshot.offsets)


def test_what_was_not_linked_into_the_log_was_never_committed(
    disk: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = claimed(disk)
    version = table.snapshot.version

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(handle_module.LogWindow, "publish", full)
        with pytest.raises(Exception, match="no space is left"):
            append(disk, table, {0: 3})
    assert not disk.path(entry_path("t", version + 1)).exists()
    append(disk, table, {0: 2})
    assert reopened(disk).snapshot.offsets[0] == 2


def test_a_version_that_another_took_is_committed_after(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the log and the link."""
    table = claimed(disk)
    other = reopened(disk)
    real = table_module.commit_actions
    raced: list[int] = []

    def racing(*arguments: object, **options: object) -> None:
        real(*arguments, **options)  # type: ignore[arg-type]
        if not raced:
            raced.append(1)
            append(disk, other, {1: 2})

    monkeypatch.setattr(table_module, "commit_actions", racing)
    append(disk, table, {0: 3})
    assert dict(reopened(disk).snapshot.offsets) == {0: 3, 1: 2}
    assert other.refresh() == table.snapshot


def test_a_handle_that_slept_past_a_clean_up_does_not_take_a_version_anew(disk: LocalStore) -> None:
    table = claimed(disk)
    asleep = reopened(disk)
    while table.snapshot.version < COMMITS_MIN + 1:
        append(disk, table, {0: 1})
        table.maintain()
    for version in range(COMMITS_MIN):
        disk.path(entry_path("t", version)).unlink()
    with pytest.raises(OutcomeUnknown):
        asleep.claim({1: 9}, new_id())
    asleep.claim({1: 9}, new_id())
    assert not disk.path(entry_path("t", 2)).exists()
    assert asleep.snapshot.version == table.refresh().version == COMMITS_MIN + 2


@pytest.mark.parametrize("version", [0, 2])
def test_a_hole_in_the_log_is_no_end_of_it(disk: LocalStore, version: int) -> None:
    table = claimed(disk)
    for _ in range(3):
        append(disk, table, {0: 1})
    disk.path(entry_path("t", version)).unlink()
    with pytest.raises(CorruptData, match=LOG):
        TopicTable.open(disk, "t", CLOCK)


def test_a_disk_without_links_between_folders(disk: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = claimed(disk)
    append(disk, table, {0: 1})

    def unsupported(*paths: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", unsupported)
    other = TopicTable.open(disk, "t", CLOCK)
    assert type(other._handle) is TableHandle
    append(disk, other, {0: 1})
    monkeypatch.undo()
    assert isinstance(reopened(disk)._handle, WindowHandle)
    assert table.refresh() == other.snapshot


def hold(root: str, ready: "multiprocessing.queues.Queue[str]") -> None:
    store = LocalStore(root)
    ready.put(str(store.private_folder()))
    TopicTable.open(store, "t", CLOCK)
    ready.get()


def test_what_a_killed_process_left_goes_and_what_another_uses_stays(disk: LocalStore) -> None:
    claimed(disk)
    processes, folders = [], []
    for _ in range(2):
        ready = started.queue()
        process = started.process(hold, str(disk.path(".")), ready)
        process.start()
        processes.append(process)
        folders.append(Path(ready.get(timeout=60)))
    try:
        processes[0].kill()
        processes[0].join(60)
        own = LocalStore(str(disk.path("."))).private_folder()
        assert not folders[0].exists()
        assert folders[1].exists()
        assert own not in private_folders(disk), "a store that is gone leaves no folder"
        assert disk.private_folder().exists()
    finally:
        for process in processes:
            process.kill()
            process.join(60)


def test_the_window_goes_with_the_table(disk: LocalStore) -> None:
    table = claimed(disk)
    assert shown(disk)
    del table
    assert not shown(disk)
    shutil.rmtree(disk.private_folder())
