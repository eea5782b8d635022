"""Runs that ended are told in order, again while nobody listens, and the lease has those that were interrupted."""

import uuid

from schedule_rig import MovedClock

from siltlog.pipelines.schedule.runs import JobRunRequest, Outcome
from siltlog.pipelines.schedule.under_way import request_of
from siltlog.pipelines.schedule.untold import TELL_AGAIN_SECONDS, UNTOLD_MAX, Untold


def run(outcome: Outcome = "succeeded") -> JobRunRequest:
    return request_of("vacuum", str(uuid.uuid4()), "schedule", outcome, 0, 1, None)


class Told:
    def __init__(self) -> None:
        self.clock = MovedClock(0)
        self.asked = 0
        self.heard: list[JobRunRequest] = []
        self.listening = True
        self.untold = Untold(self._record, self.clock)

    def _record(self, run: JobRunRequest) -> bool:
        self.asked += 1
        if self.listening:
            self.heard.append(run)
        return self.listening


def test_the_oldest_is_told_first_and_each_once() -> None:
    told, runs = Told(), [run(), run("failed"), run()]
    for each in runs:
        told.untold.add(each)
    assert not told.untold.tell()
    assert not told.untold.tell()
    assert told.heard == runs


def test_where_nobody_listens_it_asks_seldom_until_another_run_ended() -> None:
    told, first, second = Told(), run(), run()
    told.listening = False
    told.untold.add(first)
    told.untold.tell()
    told.untold.tell()
    assert told.asked == 1
    told.clock.advance(TELL_AGAIN_SECONDS)
    told.untold.tell()
    assert told.asked == 2
    told.listening = True
    told.untold.add(second)
    told.untold.tell()
    assert told.heard == [first, second]


def test_what_was_interrupted_is_the_leases_until_it_is_told() -> None:
    told, cut_short = Told(), run("interrupted")
    told.listening = False
    told.untold.add(run())
    told.untold.add(cut_short)
    assert not told.untold.tell()
    assert told.untold.interrupted() == [cut_short]
    told.listening = True
    told.clock.advance(TELL_AGAIN_SECONDS)
    assert told.untold.tell(), "the lease need not have it any more"
    assert told.untold.interrupted() == []


def test_a_server_that_is_away_for_long_costs_no_memory() -> None:
    told, runs = Told(), [run() for _ in range(UNTOLD_MAX + 3)]
    for each in runs:
        told.untold.add(each)
    told.untold.tell()
    assert told.heard == runs[3:]
