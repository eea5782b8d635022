"""What others ask of a schedule while it runs: asked on any thread, done on the schedule's own, in its turn."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from siltlog.infra.clock import format_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.pipelines.schedule.runs import CATALOG, command_of
from siltlog.pipelines.schedule.under_way import Run

T = TypeVar("T")


class _Wish(NamedTuple):
    act: Callable[[], Any]
    answer: Future[Any]


class Asked:
    """What waits for its turn. What is cancelled before that is never done."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` has the thread of the schedule look."""
        self._wake = wake
        self._waiting: deque[_Wish] = deque()
        self._closed = False

    def put(self, act: Callable[[], T]) -> Future[T]:
        """What `act` returns, or raises, once it was its turn; `shutting_down` where that never comes."""
        answer: Future[T] = Future()
        self._waiting.append(_Wish(act, answer))
        if self._closed:
            # It may have been closed just now, and nobody would look any more.
            self.close()
        self._wake()
        return answer

    def do(self) -> None:
        """Does what waits."""
        while self._waiting:
            wish = self._waiting.popleft()
            if wish.answer.set_running_or_notify_cancel():
                _answer(wish)

    def close(self) -> None:
        """Refuses what waits, and whatever is asked from now on."""
        self._closed = True
        while self._waiting:
            try:
                wish = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            if wish.answer.set_running_or_notify_cancel():
                wish.answer.set_exception(shutting_down())


def _answer(wish: _Wish) -> None:
    try:
        result = wish.act()
    except Exception as error:  # it is the asker's, and ends no schedule
        wish.answer.set_exception(error)
    else:
        wish.answer.set_result(result)


def shutting_down() -> SiltlogError:
    return problem("shutting_down", "what runs the schedule is shutting down; ask again in a moment")


def not_run_here(job: str) -> SiltlogError:
    """What is told where nobody has the right to run a job now."""
    return problem(
        "schedule_unavailable",
        f"nobody runs the schedule now, so {job} cannot begin: ask again in a moment; where every server has "
        f"SILT_SCHEDULE=off, begin `silt schedule`, or run `silt {' '.join(command_of(job))}`",
        job=job,
    )


def off(job: str) -> SiltlogError:
    """What is told of a job that is not in the schedule."""
    if job == CATALOG:
        return problem(
            "job_unavailable",
            "catalog is off in the schedule: name a catalog (SILT_CATALOG_GLUE, or SILT_CATALOG_UNITY and "
            "SILT_CATALOG_SCHEMA) and leave it a time (SILT_SCHEDULE_CATALOG), or run it by `silt catalog register`",
            job=job,
        )
    return problem(
        "job_unavailable",
        f"{job} is off in the schedule: give it a time ([schedule] in siltlog.toml, SILT_SCHEDULE_{job.upper()}), or "
        f"run it by `silt {job}`",
        job=job,
    )


def in_the_way(job: str, other: Run) -> SiltlogError:
    """What is told where a run has the lane that a job needs."""
    does = "runs already" if other.due.job == job else f"waits for {other.due.job}, which runs"
    return problem(
        "job_running",
        f"{job} {does}, since {format_us(other.started_us)}, as the run {other.run_id}: ask again once it has ended, "
        "or stop it",
        job=other.due.job,
        run_id=other.run_id,
    )
