"""Moving the log start: what goes, what stays, and who loses which race."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from deltalake.exceptions import CommitFailedError
from record_tables import CLOCK, append, claimed, created, new_id, written
from s3_server import S3Server

from siltlog.infra import names
from siltlog.infra.errors import Fenced, OutcomeUnknown, Unavailable, UnknownTopic
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table import commits as table_module
from siltlog.infra.table import entries as delta_log
from siltlog.infra.table.log_start import move_starts, start_move
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable

NOW_MS = CLOCK.now_us() // 1000


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return open_store(tmp_path.as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return open_store(server.root_uri(f"retention/{tmp_path.name}"), s3_endpoint=server.endpoint)


def moved(
    table: TopicTable, starts: dict[int, int], *, plan: TableSnapshot | None = None, commit_id: str = ""
) -> TableSnapshot:
    plan = plan or table.snapshot
    moves = {partition: start_move(plan, partition, start) for partition, start in starts.items()}
    return move_starts(table, plan.version, moves, commit_id or new_id(), now_ms=NOW_MS)


def filled(store: ObjectStore, files: int = 4) -> TopicTable:
    """Two partitions; files of five records."""
    table = claimed(store)
    for _ in range(files):
        append(store, table, {0: 5, 1: 5})
    return table


def test_whole_files_go_and_the_start_moves_in_one_commit(store: ObjectStore) -> None:
    table = filled(store)
    before = table.snapshot
    moved(table, {0: 12, 1: 20})
    for snapshot in (table.snapshot, TopicTable.open(store, "t", CLOCK).snapshot):
        assert snapshot.version == before.version + 1
        assert dict(snapshot.starts) == {0: 12, 1: 20} and snapshot.offsets == before.offsets
        assert [(file.first_offset, file.last_offset) for file in snapshot.files_of(0)] == [(10, 14), (15, 19)]
        assert snapshot.files_of(1) == ()
    for file in before.files.values():
        assert store.size(f"{names.topic_path('t')}/{file.path}") == file.size_bytes, "vacuum's to delete"
    moved(table, {0: 14})
    assert table.snapshot.starts[0] == 14 and len(table.snapshot.files_of(0)) == 2
    append(store, table, {0: 3, 1: 3})
    assert dict(table.snapshot.offsets) == {0: 23, 1: 23} and dict(table.snapshot.starts) == {0: 14, 1: 20}


def test_readers_of_the_log_see_a_deletion_of_data(store: ObjectStore) -> None:
    table = filled(store)
    moved(table, {0: 10})
    content = store.get(delta_log.entry_path("t", table.snapshot.version)).decode()
    assert content.count('"remove"') == 2 and content.count('"dataChange":true') == 2
    assert f'"appId":"rewrite/0","version":{table.snapshot.version}' in content


@pytest.mark.rule("L1")
@pytest.mark.parametrize("start", [9, 21], ids=["lowered", "above the table offset"])
def test_a_start_is_never_lowered_nor_above_the_table_offset(store: ObjectStore, start: int) -> None:
    table = filled(store)
    moved(table, {0: 10})
    before = table.snapshot
    with pytest.raises(ValueError, match="cannot move to"):
        moved(table, {0: start})
    assert table.refresh() == before


def test_appends_beside_it_land_and_so_does_it(store: ObjectStore) -> None:
    table = filled(store)
    other = TopicTable.open(store, "t", CLOCK)
    plan = table.snapshot
    append(store, other, {0: 5, 1: 5})
    moved(table, {0: 10}, plan=plan)
    append(store, other, {0: 5, 1: 5})
    assert other.snapshot.starts[0] == 10 and other.snapshot.offsets[0] == 30
    assert [file.first_offset for file in other.snapshot.files_of(0)] == [10, 15, 20, 25]


@pytest.mark.rule("L2")
def test_what_was_planned_before_another_change_does_not_land(store: ObjectStore) -> None:
    table = filled(store)
    other = TopicTable.open(store, "t", CLOCK)

    plan = table.snapshot
    merged = written(store, "t", 0, 0, 10)
    other.rewrite(plan.version, plan.files_of(0)[:2], [merged], new_id())
    with pytest.raises(Fenced, match="plan it anew"):
        moved(table, {0: 7}, plan=plan)

    plan = table.refresh()
    moved(other, {0: 7}, plan=plan)
    for start in (6, 7, 8):
        with pytest.raises(Fenced):
            moved(table, {0: start}, plan=plan)
    with pytest.raises(Fenced):
        table.rewrite(plan.version, [merged], [written(store, "t", 0, 0, 10)], new_id())

    plan = table.refresh()
    other.set_config(TopicConfig({"retention.ms": -1}), new_id())
    with pytest.raises(Fenced):
        moved(table, {0: 10}, plan=plan)
    assert table.snapshot.starts[0] == 7

    plan = table.refresh()
    other.delete(new_id())
    created(store)
    with pytest.raises((Fenced, UnknownTopic)):
        moved(table, {0: 10}, plan=plan)
    assert TopicTable.open(store, "t", CLOCK).snapshot.starts[0] == 0


@pytest.mark.rule("L2")
def test_two_moves_and_a_rewrite_from_one_plan(store: ObjectStore) -> None:
    table = filled(store)
    for _ in range(3):
        append(store, table, {0: 5})
        plan = table.refresh()
        start, end = plan.starts[0], plan.offsets[0]
        barrier = Barrier(4)

        def racing(kind: str, plan: TableSnapshot = plan, barrier: Barrier = barrier) -> str:
            mine = TopicTable.open(store, "t", CLOCK)
            first = plan.files_of(0)[0].first_offset
            barrier.wait()
            try:
                if kind == "append":
                    append(store, mine, {0: 2})
                elif kind == "rewrite":
                    merged = written(store, "t", 0, first, plan.offsets[0] - first)
                    mine.rewrite(plan.version, plan.files_of(0), [merged], new_id())
                else:
                    moved(mine, {0: plan.starts[0] + 3}, plan=plan)
            except Fenced:
                return "fenced"
            return "appended" if kind == "append" else "landed"

        with ThreadPoolExecutor(4) as pool:
            words = Counter(pool.map(partial(racing), ["append", "rewrite", "move", "move"]))
        assert words == Counter({"appended": 1, "landed": 1, "fenced": 2})
        found = table.refresh()
        assert found.starts[0] in (start, start + 3) and found.offsets[0] == end + 2
        offsets = [number for file in found.files_of(0) for number in range(file.first_offset, file.last_offset + 1)]
        assert offsets == list(range(offsets[0], end + 2)) and offsets[0] <= found.starts[0]


class LostAnswers:
    """`commit_actions` whose answer is lost, after it landed or before it was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lands: bool) -> None:
        real = table_module.commit_actions

        def commit(*args: object, **kwargs: object) -> None:
            if lands:
                real(*args, **kwargs)  # type: ignore[arg-type]
            monkeypatch.setattr(table_module, "commit_actions", real)
            raise CommitFailedError("no answer")

        monkeypatch.setattr(table_module, "commit_actions", commit)


def test_a_lost_answer(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(store)
    LostAnswers(monkeypatch, lands=True)
    assert moved(table, {0: 10}).starts[0] == 10
    LostAnswers(monkeypatch, lands=False)
    with pytest.raises(Fenced):
        moved(table, {0: 15})
    assert table.refresh().starts[0] == 10


def test_an_outcome_that_cannot_be_read_is_unknown(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(store)
    LostAnswers(monkeypatch, lands=True)

    def unreadable(*args: object) -> object:
        raise Unavailable("the store does not answer", error_code="topic_unavailable")

    commit_id = new_id()
    with monkeypatch.context() as patched:
        patched.setattr(table_module, "read_entry", unreadable)
        with pytest.raises(OutcomeUnknown, match=commit_id):
            moved(table, {0: 10}, commit_id=commit_id)
    assert table.outcome(commit_id, table.snapshot.version) in ("landed", "not_landed")
    assert table.refresh().starts[0] == 10
