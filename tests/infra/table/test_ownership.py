"""Partitions have an owner: what each of its commits is checked by, before it and after it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from record_tables import CLOCK, append, claimed, new_id

from siltlog.infra import delta_names
from siltlog.infra.errors import Fenced
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.table import TopicTable


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


Act = Callable[[ObjectStore, TopicTable], object]


def add(store: ObjectStore, table: TopicTable) -> object:
    return append(store, table, {0: 2})


def take(store: ObjectStore, table: TopicTable) -> object:
    return table.claim({0: 2}, new_id())


def mark(store: ObjectStore, table: TopicTable) -> object:
    return table.mark({0: 1}, {delta_names.txn_shipped(0): 1}, new_id())


def grow(store: ObjectStore, table: TopicTable) -> object:
    return table.grow(3, [0, 0], 1, new_id(), config=TopicConfig({}))


def release(store: ObjectStore, table: TopicTable) -> object:
    return table.release({0: 1}, new_id())


@pytest.mark.rule("CS3")
@pytest.mark.parametrize("act", [add, take, mark, grow])
def test_who_is_followed_by_another_right_after_a_commit_hears_of_it(store: ObjectStore, act: Act) -> None:
    table = claimed(store)
    other = TopicTable.open(store, "t", CLOCK)
    after(table, lambda: other.claim({0: other.refresh().epochs[0] + 1}, new_id()))
    with pytest.raises(Fenced, match="partition 0 of topic t: its epoch is"):
        act(store, table)


@pytest.mark.rule("CS3")
def test_a_release_is_one_also_where_another_claims_at_once(store: ObjectStore) -> None:
    table = claimed(store)
    other = TopicTable.open(store, "t", CLOCK)

    def claim() -> None:
        assert other.refresh().released[0] == 1
        other.claim({0: 2}, new_id(), expected={delta_names.txn_released(0): 1})

    after(table, claim)
    assert table.release({0: 1}, new_id()).epochs[0] == 2


@pytest.mark.rule("CS3")
@pytest.mark.parametrize("act", [add, take, mark, release])
def test_a_commit_that_its_log_does_not_have_is_none(
    store: ObjectStore, act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = claimed(store)
    monkeypatch.setattr(table._handle, "commit", lambda make: None)
    monkeypatch.setattr(table, "_counts", lambda *_: True)
    before = table.snapshot
    with pytest.raises(Fenced, match=r"partition 0 of topic t: its (log|epoch)"):
        act(store, table)
    assert table.refresh() == before


def after(table: TopicTable, do: Callable[[], object]) -> None:
    """Has `do` done when the next commit has landed, and was not seen to."""
    handle: Any = table._handle
    commit = handle.commit

    def followed(make: Any) -> None:
        handle.commit = commit
        commit(make)
        do()

    handle.commit = followed


def test_a_claim_is_made_on_what_it_was_decided_on(store: ObjectStore) -> None:
    table = claimed(store)
    append(store, table, {0: 2})
    table.release({0: 1}, new_id())
    other = TopicTable.open(store, "t", CLOCK)
    table.mark({0: 1}, {delta_names.txn_released(0): 0}, new_id(), expected={delta_names.txn_released(0): 1})
    with pytest.raises(Fenced, match="released/0 is 0, not 1 any more"):
        other.claim({0: 5}, new_id(), expected={delta_names.txn_epoch(0): 1, delta_names.txn_released(0): 1})
    taken = other.claim({0: 5}, new_id(), expected={delta_names.txn_shipped(0): 0}, marks={"y/0": 5, "x/0": 1})
    assert (taken.epochs[0], taken.transactions["y/0"], taken.shipped(0), taken.offsets[0]) == (5, 5, 0, 2)
    jumped = other.mark({0: 5}, {"y/0": 0, delta_names.txn_shipped(0): 5}, new_id(), offsets={0: 1 << 32})
    assert (jumped.transactions["y/0"], jumped.shipped(0), jumped.offsets[0]) == (0, 5, 1 << 32)
    assert jumped.gaps(0) == [(2, 1 << 32)] and TopicTable.open(store, "t", CLOCK).snapshot == jumped
    with pytest.raises(Fenced, match="above 7"):
        other.mark({0: 5}, {}, new_id(), offsets={0: 7})
    with pytest.raises(Fenced, match="its epoch is 5, not 1"):
        table.mark({0: 1}, {delta_names.txn_shipped(0): 1}, new_id())


def test_what_a_topic_shipped_goes_with_it_and_comes_to_new_partitions(store: ObjectStore) -> None:
    table = claimed(store)
    table.mark(dict.fromkeys(range(2), 1), {delta_names.txn_shipped(p): 1 for p in range(2)}, new_id())
    grown = table.grow(3, [0, 0], 1, new_id(), config=TopicConfig({}))
    assert [grown.shipped(partition) for partition in range(3)] == [1, 1, 1]
    deleted = table.delete(new_id())
    assert [deleted.shipped(partition) for partition in range(3)] == [0, 0, 0]
