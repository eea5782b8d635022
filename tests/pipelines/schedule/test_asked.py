"""Jobs that somebody asks a schedule for, beside those that its times begin: real children, a real store."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from schedule_rig import FOR_EVER, START_US, WAIT_SECONDS, MovedClock, Rig, states, wait_for

from siltlog.infra.clock import parse_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.cron import Cron
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.schedule.asked import Asked
from siltlog.pipelines.schedule.scheduler import FULL_SECONDS

T = TypeVar("T")


@pytest.fixture
def rig(store: ObjectStore) -> Iterator[Rig]:
    made = Rig(store, MovedClock(START_US), {})
    made.scheduler.step()
    yield made
    for process in made.begun:
        process.stop()
        process.join(0)


def done(rig: Rig, answer: "Future[T]") -> T:
    """The answer after one step."""
    rig.scheduler.step()
    return answer.result(0)


def code(rig: Rig, answer: "Future[Any]") -> str:
    """What it is refused with after one step."""
    rig.scheduler.step()
    error = answer.exception(0)
    assert isinstance(error, SiltlogError)
    return error.error_code


def wait_all(rig: Rig) -> None:
    for process in rig.begun:
        process._ended.wait(WAIT_SECONDS)


@pytest.mark.rule("H14")
def test_a_job_begins_when_it_is_asked_for_and_its_times_up_to_then_are_done(rig: Rig, store: ObjectStore) -> None:
    rig.clock.advance(589)
    run_id = done(rig, rig.scheduler.begin_now("retain"))
    assert rig.jobs() == ["retain"] and rig.triggers == {run_id: "hand"} and rig.niceness["retain"] == 10
    rig.settle()
    [told] = rig.told
    assert (told.run_id, told.job, told.outcome, told.trigger) == (run_id, "retain", "succeeded", "hand")
    assert states(store)["retain"].handled_us == parse_us("2026-11-21T07:39:59Z")
    rig.clock.advance(1)
    rig.scheduler.step()
    rig.settle()
    assert rig.jobs().count("retain") == 2, "the next time is one of its own"


@pytest.mark.rule("H14")
def test_asked_for_at_the_moment_that_it_is_due_it_runs_once(rig: Rig) -> None:
    rig.commands["retain"] = FOR_EVER
    rig.clock.advance(590)
    begun = rig.scheduler.begin_now("retain")
    again = rig.scheduler.begin_now("retain")
    run_id = done(rig, begun)
    refused = again.exception(0)
    assert isinstance(refused, SiltlogError) and refused.error_code == "job_running"
    assert refused.members == {"job": "retain", "run_id": run_id} and run_id in refused.detail
    rig.scheduler.step()
    assert rig.jobs().count("retain") == 1
    assert code(rig, rig.scheduler.begin_now("vacuum")) == "job_running", "a quick one waits for the other"
    assert done(rig, rig.scheduler.end_now("retain", run_id)) == "interrupted"
    rig.settle()
    assert rig.jobs().count("retain") == 1, "the time came to the run that was stopped"


def test_asked_for_while_a_run_of_the_schedule_goes_on_it_is_refused(rig: Rig) -> None:
    rig.commands["compact"] = FOR_EVER
    rig.clock.advance(590)
    rig.scheduler.step()
    asked = rig.scheduler.begin_now("compact")
    assert code(rig, asked) == "job_running"
    error = asked.exception(0)
    assert isinstance(error, SiltlogError) and rig.triggers[error.members["run_id"]] == "schedule"


@pytest.mark.rule("H14")
def test_the_lease_has_a_run_before_it_begins_and_the_next_runner_tells_of_it(rig: Rig, store: ObjectStore) -> None:
    rig.commands["audit"] = FOR_EVER
    crons = {"audit": Cron("20 4 * * 0")}
    clock = rig.clock
    killed = Rig(store, clock, {"audit": FOR_EVER}, **crons)
    rig.scheduler.stop()
    rig.scheduler.run()
    killed.scheduler.step()
    seen: list[str | None] = []
    begin = killed._start

    def start(*given: Any) -> Any:
        seen.append(states(store)["audit"].run_id)
        return begin(*given)

    killed.scheduler._start = start
    run_id = done(killed, killed.scheduler.begin_now("audit"))
    assert seen == [run_id]
    state = states(store)["audit"]
    assert (state.run_id, state.by_hand, state.running_since_us) == (run_id, True, clock.now_us())
    [process] = killed.begun
    process.stop()
    process.join(0)
    after = Rig(store, clock, {}, **crons)
    after.scheduler.step()
    clock.advance(91)
    after.scheduler.step()
    after.settle()
    [told] = after.told
    assert (told.run_id, told.outcome, told.trigger) == (run_id, "interrupted", "hand")
    assert "gone" in str(told.error)
    assert after.jobs() == [], "it was asked for once, and no time of it has come"
    after.scheduler.step()
    assert states(store)["audit"].run_id is None, "it does not stand there as under way"


def test_what_the_lease_cannot_say_does_not_begin(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as away:

        def refuse(*_: object) -> None:
            raise problem("topic_unavailable", "the store is away")

        away.setattr(rig.scheduler._lease._store, "put_if_absent", refuse)
        assert code(rig, rig.scheduler.begin_now("retain")) == "topic_unavailable"
    assert rig.begun == []
    rig.clock.advance(90)
    assert done(rig, rig.scheduler.begin_now("retain"))


def test_who_has_not_the_right_begins_nothing(rig: Rig, store: ObjectStore) -> None:
    other = Rig(store, rig.clock, {})
    assert rig.scheduler.holds and not other.scheduler.holds
    assert code(other, other.scheduler.begin_now("retain")) == "schedule_unavailable"
    rig.clock.advance(91)
    other.scheduler.step()
    assert other.scheduler.holds and not rig.scheduler.holds
    assert code(rig, rig.scheduler.begin_now("retain")) == "schedule_unavailable"
    assert rig.begun == other.begun == []


@pytest.mark.rule("H6")
def test_vacuum_begins_on_a_full_disk_and_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise problem("disk_full", "no space is left")

    monkeypatch.setattr(rig.scheduler._lease._store, "put_if_absent", refuse)
    rig.clock.advance(91)
    rig.scheduler.step()
    wait_all(rig)
    rig.scheduler.step()
    assert rig.jobs() == ["vacuum"] and rig.scheduler.holds
    assert code(rig, rig.scheduler.begin_now("retain")) == "schedule_unavailable"
    assert done(rig, rig.scheduler.begin_now("vacuum"))
    wait_all(rig)
    rig.clock.advance(FULL_SECONDS)
    rig.scheduler.step()
    assert rig.jobs() == ["vacuum"] * 3


def test_what_is_off_or_cannot_run_here_is_refused_with_its_reason(rig: Rig) -> None:
    rig.missing["compact"] = "Spark needs Java"
    for job, words in (("audit", "SILT_SCHEDULE_AUDIT"), ("compact", "Spark needs Java")):
        asked = rig.scheduler.begin_now(job)
        assert code(rig, asked) == "job_unavailable"
        assert words in str(asked.exception(0))
    rig.scheduler.reconfigure({})
    rig.scheduler._take_wanted()
    asked = rig.scheduler.begin_now("retain")
    rig.scheduler._refuse()
    assert "schedule" in str(asked.exception(0))
    assert rig.begun == []


@pytest.mark.rule("H15")
def test_a_run_that_is_stopped_is_not_due_again_before_its_next_time(rig: Rig, store: ObjectStore) -> None:
    rig.commands |= {"compact": FOR_EVER, "retain": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}
    rig.files["busy"] = 9_000
    rig.clock.advance(590)
    rig.scheduler.step()
    compacts = [run_id for run_id in rig.triggers if states(store)["compact"].run_id == run_id]
    assert done(rig, rig.scheduler.end_now("compact", compacts[0])) == "interrupted"
    rig.scheduler.step()
    assert rig.jobs().count("compact") == 1, "neither for its time, nor for its files"
    assert states(store)["compact"].run_id is None
    assert ("compact", "interrupted") in rig.outcomes()
    rig.commands["compact"] = ["true"]
    rig.clock.advance(600)
    rig.scheduler.step()
    assert rig.jobs().count("compact") == 2
    retains = states(store)["retain"].run_id
    assert retains is not None
    assert done(rig, rig.scheduler.end_now("retain", retains)) == "interrupted", "it is killed where it does not listen"
    assert done(rig, rig.scheduler.end_now("retain", retains)) is None
    assert done(rig, rig.scheduler.end_now("vacuum", retains)) is None


def test_what_comes_to_its_end_while_it_is_stopped_has_ended_so(rig: Rig) -> None:
    rig.commands["retain"] = ["sh", "-c", "trap 'exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done"]
    run_id = done(rig, rig.scheduler.begin_now("retain"))
    assert wait_for(lambda: rig.begun[0].last_line == "ready")
    assert done(rig, rig.scheduler.end_now("retain", run_id)) == "succeeded"
    assert rig.outcomes() == [("retain", "succeeded")]


def test_a_stop_of_the_runner_ends_what_was_asked_for_and_refuses_what_is_asked(store: ObjectStore) -> None:
    rig = Rig(store, MovedClock(START_US), {"retain": FOR_EVER})
    running = threading.Thread(target=rig.scheduler.run)
    running.start()
    try:
        assert wait_for(lambda: rig.scheduler.holds)
        run_id = rig.scheduler.begin_now("retain").result(WAIT_SECONDS)
    finally:
        rig.scheduler.stop()
        running.join(WAIT_SECONDS)
    assert [(run.run_id, run.outcome, run.trigger) for run in rig.told] == [(run_id, "interrupted", "hand")]
    refused = rig.scheduler.begin_now("retain").exception(0)
    assert isinstance(refused, SiltlogError) and refused.error_code == "shutting_down"
    after = Rig(store, rig.clock, {})
    after.scheduler.step()
    after.settle()
    assert after.jobs() == [], "what was asked for is not due again"


def test_what_nobody_waits_for_any_more_is_not_begun(rig: Rig) -> None:
    given_up = rig.scheduler.begin_now("retain")
    assert given_up.cancel()
    rig.scheduler.step()
    assert rig.begun == []


def test_what_an_act_raises_is_its_askers() -> None:
    woken: list[bool] = []
    asked = Asked(lambda: woken.append(True))

    def fail() -> int:
        raise ValueError("no")

    answers = [asked.put(fail), asked.put(lambda: 2)]
    asked.do()
    assert isinstance(answers[0].exception(0), ValueError) and answers[1].result(0) == 2
    assert woken == [True, True]
