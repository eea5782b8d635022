"""How far compaction gives way: a function of what it may find to merge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.pipelines.compaction.plan import LIVE_FILES_MAX
from siltlog.pipelines.schedule.crowded import (
    CALM_FILES,
    GROWN_FILES,
    HURRIED_FILES,
    MOVED_FILES,
    CrowdedTables,
    niceness,
)
from siltlog.pipelines.schedule.runs import NICENESS_MAX


@pytest.mark.rule("H10")
@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_it_gives_way_the_less_the_more_files_there_are(few: int, more: int) -> None:
    low, high = sorted((few, more))
    assert 0 <= niceness(high) <= niceness(low) <= NICENESS_MAX
    assert niceness(CALM_FILES) == NICENESS_MAX and niceness(HURRIED_FILES) == 0


def test_files_that_cannot_be_merged_hurry_nobody() -> None:
    tables = CrowdedTables()
    assert tables.began({"large": 8_000, "small": 10}) == 0, "nobody knows yet"
    tables.ended("succeeded")
    assert not tables.crowded({"large": 8_000, "small": 10})
    assert tables.began({"large": 8_100, "small": 10}) == NICENESS_MAX
    tables.ended("succeeded")
    tables.crowded({"large": 8_100})
    assert tables.began({"large": 8_100 + LIVE_FILES_MAX, "small": 10}) == 0


def test_a_run_that_got_on_may_have_left_more() -> None:
    tables = CrowdedTables()
    tables.began({"t": 9_000})
    tables.ended("succeeded")
    assert tables.crowded({"t": 9_000 - MOVED_FILES})
    assert tables.began({"t": 9_000 - MOVED_FILES}) == 0


@pytest.mark.parametrize("now", [{"t": HURRIED_FILES - 1}, {"other": HURRIED_FILES, "t": 400}, {}])
def test_a_run_goes_on_while_no_table_is_crowded(now: dict[str, int]) -> None:
    tables = CrowdedTables()
    tables.began({"t": 400, "other": HURRIED_FILES - 100})
    assert not tables.outgrown(now)


@pytest.mark.rule("H11")
def test_a_run_under_way_is_outgrown_once_and_the_next_begins_at_once() -> None:
    tables = CrowdedTables()
    assert tables.began({"t": 400}) == NICENESS_MAX
    assert tables.outgrown({"t": HURRIED_FILES})
    tables.ended("interrupted")
    assert tables.crowded({"t": LIVE_FILES_MAX + 1})
    assert tables.began({"t": LIVE_FILES_MAX + 1}) == 0
    assert not tables.outgrown({"t": LIVE_FILES_MAX + GROWN_FILES})
