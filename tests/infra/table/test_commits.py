"""Old versions stay readable with few checkpoints, and the newest ones are all there; when the next is worth it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.table.commits import (
    COMMITS_MAX,
    COMMITS_MIN,
    LARGE_BYTES,
    NEWEST,
    SECONDS_MAX,
    SPARSE_VERSIONS,
    Checkpoints,
    checkpoint_is_due,
)

MIB = 1024 * 1024


@pytest.mark.rule("T9")
@given(st.lists(st.integers(1, 3 * SPARSE_VERSIONS // 2), max_size=200), st.integers(0, 10_000))
def test_the_newest_and_one_of_each_thousand_versions_stay(steps: list[int], version: int) -> None:
    checkpoints = Checkpoints()
    written: list[int] = []
    kept: set[int] = set()
    for step in steps:
        version += step
        written.append(version)
        kept.add(version)
        gone = checkpoints.written(version)
        assert kept.issuperset(gone)
        kept.difference_update(gone)
        assert kept.issuperset(written[-NEWEST:])
        assert {kept_version // SPARSE_VERSIONS for kept_version in kept} == {
            each // SPARSE_VERSIONS for each in written
        }
    assert len(kept) <= NEWEST + version // SPARSE_VERSIONS + 1


def commits_until_due(entry_bytes: int, checkpoint_bytes: int) -> int:
    commits = 1
    while not checkpoint_is_due(commits, commits * entry_bytes, 0.0, checkpoint_bytes):
        commits += 1
    return commits


@pytest.mark.rule("T11")
def test_a_small_table_has_one_every_twenty_commits_and_a_large_one_fewer() -> None:
    assert commits_until_due(2_000, 0) == commits_until_due(2_000, MIB // 2) == COMMITS_MIN
    assert 50 < commits_until_due(2_000, 8 * MIB) < 80
    assert commits_until_due(2_000, 10_000 * MIB) == COMMITS_MAX, "or it would take long to open"
    assert commits_until_due(LARGE_BYTES, 0) == 1, "an entry that is large is read with each commit"


@pytest.mark.rule("T11")
def test_one_comes_with_time_too_where_anything_was_committed() -> None:
    assert checkpoint_is_due(1, 500, SECONDS_MAX, 1_000 * MIB)
    assert not checkpoint_is_due(1, 500, SECONDS_MAX - 1, 0)
    assert not checkpoint_is_due(0, 0, 10 * SECONDS_MAX, 0)


@pytest.mark.rule("T11")
@given(st.integers(200, 300_000), st.integers(0, 100 * MIB))
def test_a_checkpoint_and_the_commits_before_it_cost_about_the_same(entry_bytes: int, checkpoint_bytes: int) -> None:
    """Each commit reads the entries after the newest checkpoint."""
    commits = commits_until_due(entry_bytes, checkpoint_bytes)
    if commits < COMMITS_MAX:
        assert checkpoint_bytes <= 2 * sum(number * entry_bytes for number in range(1, commits + 1))
    if commits > COMMITS_MIN:
        assert checkpoint_bytes > 2 * sum(number * entry_bytes for number in range(1, commits - 1))
