"""Runs that are under way: lanes, ends, and what takes too long."""

from collections.abc import Iterator

import pytest
from kept_log import KeptLog
from schedule_rig import FOR_EVER, WAIT_SECONDS, MovedClock

from siltlog.pipelines.schedule.plan import DueRun
from siltlog.pipelines.schedule.process import JobProcess
from siltlog.pipelines.schedule.under_way import RETAIN_SECONDS_MAX, Run, UnderWay


class Begun:
    def __init__(self) -> None:
        self.clock = MovedClock(0)
        self.runs = UnderWay(self.clock)

    def __call__(self, job: str, *command: str) -> Run:
        process = JobProcess(job, command or FOR_EVER, {}, KeptLog(), lambda: None)
        run = Run(DueRun(job, 0), f"run of {job}", self.clock.now_us(), self.clock.monotonic(), process, "hand")
        self.runs.add(run)
        return run


@pytest.fixture
def begin() -> Iterator[Begun]:
    begun = Begun()
    yield begun
    begun.runs.end()


def test_a_long_job_is_in_the_way_of_its_lane_alone(begin: Begun) -> None:
    compact = begin("compact")
    assert [begin.runs.in_the_way(job) for job in ("compact", "audit", "retain")] == [compact, None, None]
    vacuum = begin("vacuum")
    assert [begin.runs.in_the_way(job) for job in ("retain", "vacuum", "audit")] == [vacuum, vacuum, None]


def test_a_run_that_ended_is_given_once(begin: Begun) -> None:
    ends, stays = begin("vacuum", "true"), begin("compact")
    ends.process.join(WAIT_SECONDS)
    assert begin.runs.take_ended() == [ends]
    assert begin.runs.take_ended() == []
    assert (begin.runs.of("vacuum"), begin.runs.of("compact")) == (None, stays)
    assert begin.runs.open_runs() == {"compact": (0, "run of compact", "hand")}


def test_what_takes_too_long_is_told_until_it_is_noted(begin: Begun) -> None:
    retain = begin("retain")
    begin("compact")
    begin.clock.advance(RETAIN_SECONDS_MAX)
    assert begin.runs.too_long() == []
    begin.clock.advance(1)
    assert begin.runs.too_long() == [retain]
    retain.too_long = True
    assert begin.runs.too_long() == []


def test_the_end_of_all_is_waited_for(begin: Begun) -> None:
    runs = [begin("retain"), begin("compact"), begin("audit", "true")]
    begin.runs.end()
    assert not any(run.process.running for run in runs)
    assert len(begin.runs.take_ended()) == len(runs)
    assert list(begin.runs.jobs()) == []
