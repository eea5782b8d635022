"""A runner of a schedule whose jobs are the commands of a test, and a clock that tests move."""

import threading
import time
import uuid
from collections.abc import Callable, Mapping

from kept_log import KeptLog

from siltlog.infra.clock import MICROS_PER_SECOND, parse_us
from siltlog.infra.settings.cron import Cron
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.schedule.lease import JobState, ScheduleLease, newest_entry
from siltlog.pipelines.schedule.process import JobProcess
from siltlog.pipelines.schedule.runs import JobRunRequest, Trigger
from siltlog.pipelines.schedule.scheduler import Scheduler

START_US = parse_us("2026-11-21T07:30:10Z")
CRONS = {"compact": Cron("*/10 * * * *"), "retain": Cron("*/10 * * * *"), "vacuum": Cron("0 * * * *")}
FOR_EVER = ["sleep", "600"]
WAIT_SECONDS = 60.0


class MovedClock:
    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._monotonic = 1000.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * MICROS_PER_SECOND)
        self._monotonic += seconds


class Rig:
    """A runner whose jobs are the commands of the test."""

    def __init__(self, store: ObjectStore, clock: MovedClock, commands: Mapping[str, list[str]], **crons: Cron) -> None:
        self.clock = clock
        self.log = KeptLog()
        self.commands = dict(commands)
        self.told: list[JobRunRequest] = []
        self.missing: dict[str, str] = {}
        self.begun: list[JobProcess] = []
        self.niceness: dict[str, int] = {}
        """The niceness of each job's last run."""
        self.triggers: dict[str, Trigger] = {}
        self.ended = threading.Event()
        self.files: dict[str, int] = {}
        self.listening = True
        lease = ScheduleLease(store, str(uuid.uuid4()), "node-0", clock)
        self.scheduler = Scheduler(
            crons or CRONS,
            lease,
            self._start,
            clock,
            self.log,
            new_run_id=lambda: str(uuid.uuid4()),
            unavailable=self.missing.get,
            record=self._record,
            live_files=lambda: self.files,
            settle_seconds=0,
        )

    def _start(self, job: str, run_id: str, trigger: Trigger, niceness: int, on_end: Callable[[], None]) -> JobProcess:
        self.niceness[job] = niceness
        self.triggers[run_id] = trigger
        process = JobProcess(job, self.commands.get(job, ["true"]), {"RUN": run_id}, self.log, on_end)
        self.begun.append(process)
        return process

    def _record(self, run: JobRunRequest) -> bool:
        if self.listening:
            self.told.append(run)
        return self.listening

    def jobs(self) -> list[str]:
        return [process.job for process in self.begun]

    def settle(self) -> None:
        """Everything that was begun ends by itself, and is taken note of."""
        for _ in range(100):
            for process in self.begun:
                if not process.running:
                    continue
                process._ended.wait(WAIT_SECONDS)
                assert not process.running
            before = len(self.begun)
            self.scheduler.step()
            if len(self.begun) == before:
                return
        raise AssertionError("it begins jobs for ever")

    def outcomes(self) -> list[tuple[str, str]]:
        return sorted((run.job, run.outcome) for run in self.told)


def states(store: ObjectStore) -> dict[str, JobState]:
    found = newest_entry(store)
    assert found is not None
    return found[1].jobs


def wait_for(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
