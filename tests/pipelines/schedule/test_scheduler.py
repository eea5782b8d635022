"""The runner of a schedule, with real children, a real store, and a clock that only the test moves."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import alive
from schedule_rig import CRONS, FOR_EVER, START_US, WAIT_SECONDS, MovedClock, Rig, states, wait_for

from siltlog.infra.clock import format_us, parse_us
from siltlog.infra.errors import problem
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.compaction.compact import LIVE_FILES_MAX
from siltlog.pipelines.schedule.crowded import GROWN_FILES, HURRIED_FILES, MOVED_FILES
from siltlog.pipelines.schedule.lease import newest_entry
from siltlog.pipelines.schedule.process import LINE_CHARS_MAX, LINES_MAX, JobProcess
from siltlog.pipelines.schedule.runs import Trigger
from siltlog.pipelines.schedule.scheduler import FULL_SECONDS
from siltlog.pipelines.schedule.under_way import JOB_SECONDS_MAX


@pytest.fixture
def rig(store: ObjectStore) -> Iterator[Rig]:
    made = Rig(store, MovedClock(START_US), {})
    yield made
    for process in made.begun:
        process.stop()
        process.join(0)


@pytest.mark.rule("H3")
def test_jobs_begin_when_they_are_due_and_no_sooner(rig: Rig, store: ObjectStore) -> None:
    assert 0 < rig.scheduler.step() <= 30
    assert rig.begun == []
    rig.clock.advance(589)
    rig.scheduler.step()
    assert rig.begun == []
    rig.clock.advance(1)
    rig.scheduler.step()
    rig.settle()
    assert sorted(rig.jobs()) == ["compact", "retain"]
    assert rig.outcomes() == [("compact", "succeeded"), ("retain", "succeeded")]
    assert {job: state.handled_us for job, state in states(store).items()} == {
        "compact": parse_us("2026-11-21T07:40:00Z"),
        "retain": parse_us("2026-11-21T07:40:00Z"),
        "vacuum": START_US,
    }


def test_one_that_fails_stops_no_other_and_says_why(rig: Rig) -> None:
    rig.commands |= {
        "compact": ["sh", "-c", "echo result; echo no Java here >&2; exit 1"],
        "retain": ["sh", "-c", "kill -9 $$"],
        "vacuum": ["no-such-command"],
    }
    rig.scheduler.step()
    rig.clock.advance(1800)
    rig.scheduler.step()
    rig.settle()
    assert rig.outcomes() == [("compact", "failed"), ("retain", "failed"), ("vacuum", "failed")]
    errors = {run.job: run.error for run in rig.told}
    assert errors["compact"] == "exit status 1: no Java here"
    assert errors["retain"] == "signal 9"
    assert "no-such-command" in str(errors["vacuum"])
    assert ("job says", {"job": "compact", "line": "no Java here"}) in rig.log.said
    rig.commands.clear()
    rig.clock.advance(3600)
    rig.scheduler.step()
    rig.settle()
    assert rig.outcomes()[1::2] == [("compact", "succeeded"), ("retain", "succeeded"), ("vacuum", "succeeded")]


@pytest.mark.rule("H9")
def test_a_long_job_holds_up_no_quick_one_and_does_not_pile_up(rig: Rig) -> None:
    rig.commands["compact"] = FOR_EVER
    rig.scheduler.step()
    for _ in range(3):
        rig.clock.advance(600)
        rig.scheduler.step()
        for process in rig.begun:
            if process.job != "compact":
                process._ended.wait(WAIT_SECONDS)
        rig.scheduler.step()
    assert rig.jobs().count("compact") == 1 and rig.jobs().count("retain") == 3
    rig.clock.advance(JOB_SECONDS_MAX)
    rig.scheduler.step()
    assert not rig.begun[0].running, "it was ended"
    rig.commands.clear()
    rig.settle()
    failed = [run for run in rig.told if run.outcome == "failed"]
    assert [run.job for run in failed] == ["compact"] and "360 minutes" in str(failed[0].error)
    assert rig.jobs().count("compact") == 2, "what was missed meanwhile comes to one run"


@pytest.mark.rule("H3", "H8")
def test_what_was_missed_in_a_stop_is_run_once_and_what_was_stopped_is_run_again(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    first = Rig(store, clock, {"compact": FOR_EVER})
    first.scheduler.step()
    clock.advance(600)
    running = threading.Thread(target=first.scheduler.run)
    running.start()
    try:
        assert wait_for(lambda: "retain" in [run.job for run in first.told] and "compact" in first.jobs())
    finally:
        first.scheduler.stop()
        running.join(WAIT_SECONDS)
    assert not running.is_alive()
    assert first.outcomes() == [("compact", "interrupted"), ("retain", "succeeded")]
    assert not any(process.running for process in first.begun)
    found = newest_entry(store)
    assert found is not None and found[1].holder == ""

    clock.advance(50)
    second = Rig(store, clock, {})
    second.scheduler.step()
    second.settle()
    assert second.jobs() == ["compact"], "it was stopped, so it is due again"
    clock.advance(24 * 3600)
    third = Rig(store, clock, {})
    second.scheduler.step()
    second.settle()
    assert sorted(second.jobs()) == ["compact", "compact", "retain", "vacuum"], "a day comes to one run each"
    third.scheduler.step()
    assert third.begun == []


@pytest.mark.rule("H8")
def test_what_was_missed_waits_until_a_start_is_over(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    before = Rig(store, clock, {})
    before.scheduler.step()
    before.scheduler.stop()
    before.scheduler.run()
    clock.advance(7200)
    after = Rig(store, clock, {})
    after.scheduler._missed_before_us = clock.now_us()
    after.scheduler._settled_at = clock.monotonic() + 60
    after.scheduler.step()
    assert after.begun == []
    clock.advance(60)
    after.scheduler.step()
    after.settle()
    assert sorted(after.jobs()) == ["compact", "retain", "vacuum"]


def test_what_cannot_be_run_here_is_said_once_and_stands_in_the_schedule(rig: Rig, store: ObjectStore) -> None:
    rig.missing["compact"] = "Spark needs Java"
    rig.scheduler.step()
    for _ in range(3):
        rig.clock.advance(600)
        rig.scheduler.step()
        rig.settle()
    assert set(rig.jobs()) == {"retain", "vacuum"}
    assert rig.log.events().count("a job of the schedule is not run") == 1
    assert states(store)["compact"].unavailable == "Spark needs Java"
    rig.missing.clear()
    rig.clock.advance(600)
    rig.scheduler.step()
    rig.settle()
    assert "compact" in rig.jobs() and states(store)["compact"].unavailable is None


def test_who_loses_the_right_ends_its_jobs_and_the_next_begins_them_anew(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    loser = Rig(store, clock, {"compact": FOR_EVER})
    loser.scheduler.step()
    clock.advance(600)
    loser.scheduler.step()
    assert states(store)["compact"].running_since_us == clock.now_us()
    winner = Rig(store, clock, {})
    winner.scheduler.step()
    assert winner.begun == []
    clock.advance(91)
    winner.scheduler.step()
    winner.settle()
    assert "compact" in winner.jobs()
    assert any(process.running for process in loser.begun)
    loser.scheduler.step()
    assert not any(process.running for process in loser.begun)
    stopped = next(run for run in loser.told if run.outcome == "interrupted")
    assert stopped.job == "compact"
    abandoned = next(run for run in winner.told if (run.job, run.outcome) == ("compact", "interrupted"))
    assert abandoned.run_id == stopped.run_id, "whoever tells first is believed"


@pytest.mark.rule("H4")
def test_a_run_that_ended_with_its_runner_is_told_by_the_next(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    killed = Rig(store, clock, {"compact": FOR_EVER}, compact=CRONS["compact"])
    killed.scheduler.step()
    clock.advance(600)
    killed.scheduler.step()
    began_us = clock.now_us()
    [process] = killed.begun
    process.stop()
    process.join(0)
    clock.advance(1)
    after = Rig(store, clock, {}, compact=CRONS["compact"])
    after.scheduler.step()
    clock.advance(91)
    after.scheduler.step()
    after.settle()
    [told] = [run for run in after.told if run.outcome == "interrupted"]
    assert (told.job, told.trigger, told.started_at) == ("compact", "schedule", format_us(began_us))
    assert "gone" in str(told.error)
    assert after.jobs() == ["compact"]
    clock.advance(600)
    after.scheduler.step()
    after.settle()
    assert [run.outcome for run in after.told].count("interrupted") == 1


def test_what_nobody_could_be_told_of_is_told_later(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    first = Rig(store, clock, {"compact": FOR_EVER})
    first.listening = False
    first.scheduler.step()
    clock.advance(600)
    first.scheduler.step()
    retains = [process for process in first.begun if process.job == "retain"]
    retains[0]._ended.wait(WAIT_SECONDS)
    first.scheduler.step()
    assert first.told == []
    first.listening = True
    first.scheduler.step()
    assert first.told == [], "it does not ask all the time"
    clock.advance(60)
    first.scheduler.step()
    assert first.outcomes() == [("retain", "succeeded")]
    first.listening = False
    first.scheduler.stop()
    first.scheduler.run()
    assert first.outcomes() == [("retain", "succeeded")]
    second = Rig(store, clock, {})
    second.scheduler.step()
    second.settle()
    assert ("compact", "interrupted") in second.outcomes(), "it goes with the right to run the schedule"


@pytest.mark.rule("H5")
def test_a_table_with_many_files_does_not_wait_for_the_time_of_compaction(rig: Rig) -> None:
    def compactions(files: int, seconds: float = 5) -> int:
        """After so many seconds with so many files in a table."""
        rig.files["busy"] = files
        rig.clock.advance(seconds)
        rig.scheduler.step()
        rig.settle()
        return rig.jobs().count("compact")

    assert compactions(LIVE_FILES_MAX) == 0
    assert compactions(LIVE_FILES_MAX + 1) == 1
    assert compactions(LIVE_FILES_MAX + GROWN_FILES) == 1, "it changed nothing, and will not"
    assert compactions(LIVE_FILES_MAX + GROWN_FILES + 1) == 2, "so many more are worth another try"
    assert compactions(900) == 2
    assert compactions(LIVE_FILES_MAX + 1) == 3, "the last one got it below, and so will the next"
    rig.files["busy"] = 9_000
    rig.commands["compact"] = ["sh", "-c", "exit 1"]
    assert compactions(9_000) == 4
    assert compactions(20_000) == 4, "one that failed is not repeated before its time"
    rig.commands.clear()
    assert compactions(20_000, 600) == 5
    rig.missing["compact"] = "no Java"
    assert compactions(90_000, 600) == 5
    assert compactions(99_000) == 5
    assert rig.log.events().count("a job of the schedule is not run") == 1


@pytest.mark.rule("H11")
def test_a_compaction_that_gave_way_too_much_is_begun_anew(rig: Rig) -> None:
    rig.commands["compact"] = FOR_EVER
    rig.files["busy"] = 400
    rig.scheduler.step()
    rig.clock.advance(600)
    rig.scheduler.step()
    assert (rig.jobs().count("compact"), rig.niceness["compact"]) == (1, 10)
    rig.files["busy"] = HURRIED_FILES - 1
    rig.scheduler.step()
    assert rig.jobs().count("compact") == 1
    rig.files["busy"] = HURRIED_FILES
    rig.scheduler.step()
    assert (rig.jobs().count("compact"), rig.niceness["compact"]) == (2, 0)
    rig.files["busy"] = 9_000
    rig.scheduler.step()
    assert rig.jobs().count("compact") == 2, "it gives way to nobody"
    assert [outcome for job, outcome in rig.outcomes() if job == "compact"] == ["interrupted"]


def test_a_compaction_that_left_work_is_followed_by_another_at_once(rig: Rig) -> None:
    """A run is bounded; as long as each gets on, the next begins when it ends."""
    rig.files["busy"] = 40_000
    begin = rig._start

    def start(job: str, run_id: str, trigger: Trigger, niceness: int, on_end: Callable[[], None]) -> JobProcess:
        rig.files["busy"] = max(rig.files["busy"] - 9_000, LIVE_FILES_MAX + MOVED_FILES)
        return begin(job, run_id, trigger, niceness, on_end)

    rig.scheduler._start = start
    rig.scheduler.step()
    rig.settle()
    assert rig.jobs() == ["compact"] * 6, "five got on, and the last one did not"


def test_what_somebody_else_had_the_right_to_run_meanwhile_is_ended(store: ObjectStore) -> None:
    clock = MovedClock(START_US)
    slow = Rig(store, clock, {"compact": FOR_EVER})
    slow.scheduler.step()
    clock.advance(600)
    slow.scheduler.step()
    assert slow.jobs().count("compact") == 1 and slow.begun[0].running
    other = Rig(store, clock, {})
    other.scheduler.step()
    clock.advance(91)
    other.scheduler.step()
    other.scheduler.stop()
    other.scheduler.run()
    slow.commands.clear()
    slow.scheduler.step()
    assert not any(process.running for process in slow.begun[:1]), "it may have run beside another"
    slow.settle()


def test_a_store_that_is_away_is_waited_for(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(store, MovedClock(START_US), {})
    with monkeypatch.context() as away:

        def refuse(_: str) -> None:
            raise problem("topic_unavailable", "the store is away")

        away.setattr(store, "list", refuse)
        for _ in range(3):
            assert rig.scheduler.step() > 0
    assert rig.log.events() == ["the schedule waits: its lease cannot be read or written"]
    rig.scheduler.step()
    rig.clock.advance(600)
    rig.scheduler.step()
    rig.settle()
    assert sorted(rig.jobs()) == ["compact", "retain"]


@pytest.mark.rule("H6")
def test_on_a_full_disk_vacuum_makes_room(rig: Rig, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right to run jobs cannot be written there, so nobody would ever get it."""
    rig.commands["compact"] = FOR_EVER
    rig.scheduler.step()
    rig.clock.advance(600)
    rig.scheduler.step()
    rig.commands.clear()
    with monkeypatch.context() as full:

        def refuse(*_: object) -> None:
            raise problem("disk_full", "no space is left")

        full.setattr(store, "put_if_absent", refuse)
        for seconds, vacuums in ((91, 1), (91, 1), (FULL_SECONDS, 2)):
            rig.clock.advance(seconds)
            rig.scheduler.step()
            for process in rig.begun:
                if process.job != "compact":
                    process._ended.wait(WAIT_SECONDS)
            rig.scheduler.step()
            assert rig.jobs() == ["compact", "retain", *["vacuum"] * vacuums]
        assert rig.begun[0].running, "nobody else can have taken the right"
    rig.begun[0].stop()
    rig.begun[0].join(0)
    rig.clock.advance(600)
    rig.scheduler.step()
    rig.settle()
    assert {"compact", "retain"} <= set(rig.jobs()[4:])


@pytest.mark.rule("H13")
def test_a_group_is_killed_while_its_number_is_still_taken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    killpg, taken = os.killpg, []

    def kill(group: int, number: int) -> None:
        taken.append(Path(f"/proc/{group}").exists())
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", kill)
    ended = threading.Event()
    JobProcess("quick", ["true"], {}, rig.log, ended.set)
    assert ended.wait(WAIT_SECONDS)
    assert taken == [True]


@pytest.mark.rule("H13")
def test_nothing_of_a_job_is_left_and_a_flood_of_lines_is_cut(rig: Rig) -> None:
    """What a job started goes with it, whether it ends by itself or does not listen."""
    leaves = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, file=sys.stderr)"
    deaf = "trap '' TERM; echo x >&2; while :; do sleep 1; done"
    loud = "import sys\nprint('y' * int(sys.argv[1]), file=sys.stderr)\n"
    loud += "for n in range(int(sys.argv[2])):\n  print(n, file=sys.stderr)"
    ended = threading.Event()
    left = JobProcess("left", [sys.executable, "-c", leaves], {}, rig.log, ended.set)
    assert ended.wait(WAIT_SECONDS)
    assert left.status == 0
    assert wait_for(lambda: not alive(int(left.last_line)))
    stubborn = JobProcess("deaf", ["sh", "-c", deaf], {}, rig.log, lambda: None)
    assert wait_for(lambda: stubborn.last_line == "x")
    stubborn.stop()
    stubborn.join(0.2)
    assert stubborn.status == -9
    ended.clear()
    command = [sys.executable, "-c", loud, str(2 * LINE_CHARS_MAX), str(2 * LINES_MAX)]
    JobProcess("loud", command, {}, rig.log, ended.set)
    assert ended.wait(WAIT_SECONDS)
    lines = [values["line"] for event, values in rig.log.said if event == "job says" and values["job"] == "loud"]
    assert len(lines) == LINES_MAX and len(lines[0]) == LINE_CHARS_MAX
    assert ("job said more", {"job": "loud", "lines": LINES_MAX + 2}) in rig.log.said


def test_a_job_is_told_to_end_once(rig: Rig) -> None:
    """Again would interrupt what it does to end: Spark that it stops, the server that it tells."""
    # What is printed in a handler that interrupts printing is an error.
    counts = "import os, signal, time\nsignal.signal(15, lambda *_: os.write(2, b'told\\n'))\n"
    counts += "os.write(2, b'x\\n')\nwhile True: time.sleep(1)"
    job = JobProcess("counting", [sys.executable, "-c", counts], {}, rig.log, lambda: None)
    assert wait_for(lambda: job.last_line == "x")
    job.stop()
    assert wait_for(lambda: job.last_line == "told")
    job.stop()
    job.join(0.5)
    assert [values["line"] for event, values in rig.log.said if event == "job says"] == ["x", "told"]
