"""Old versions stay readable with few checkpoints, and the newest ones are all there."""

from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.table_checkpoints import NEWEST, SPARSE_VERSIONS, Checkpoints


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
