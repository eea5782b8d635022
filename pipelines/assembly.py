"""Builds this room on a node: the schedule of its jobs, on a thread of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from siltlog.infra import names
from siltlog.infra.client.endpoints import UNIX
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.schedule.crowded import LiveFiles
from siltlog.pipelines.schedule.opening import ScheduleThread, scheduler
from siltlog.pipelines.schedule.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    part: Part
    schedule: "Schedule"


class Schedule:
    """The runner of a node's jobs, from when there is a schedule on; it stays until the node ends."""

    def __init__(self, settings: ServerSettings, make: Callable[[ServerSettings], Scheduler]) -> None:
        self._make = make
        self._runner: Scheduler | None = None
        self._thread: ScheduleThread | None = None
        self._begun = False
        self.reconfigure(settings)

    def reconfigure(self, settings: ServerSettings) -> None:
        """Jobs run at these times, of which there may be none; a run that is under way ends by itself."""
        crons = settings.crons() if settings.schedule == "on" else {}
        if self._runner is not None:
            self._runner.reconfigure(crons)
        elif settings.schedule == "on":
            self._runner = self._make(settings)
            self._thread = ScheduleThread(self._runner)
            if self._begun:
                self._thread.start()

    def holder(self) -> Scheduler | None:
        """The runner, where it is the one of all runners that runs the jobs now."""
        return self._runner if self._runner is not None and self._runner.holds else None

    def begins(self, holder: str) -> bool:
        """Whether the holder of the lease is of this node, where it does not run the jobs yet."""
        return self._runner is not None and self._runner.is_ours(holder)

    def start(self) -> None:
        self._begun = True
        if self._thread is not None:
            self._thread.start()

    def stopping(self) -> Callable[[], None] | None:
        """What ends the jobs and waits until they have said so, which blocks; None where no schedule runs."""
        return None if self._thread is None else self._thread.stop


def assemble(node: Node, url: str, live_files: Callable[[], LiveFiles]) -> Pipelines:
    """`url` is where jobs tell of their runs; `live_files()` counts the files of the tables."""
    settings = node.settings
    local = settings.data_dir.absolute() / names.SOCKET_FILE
    if local.is_socket():
        # It lets in who may use it, without a token or a certificate.
        url = f"{UNIX}{local}"

    def make(settings: ServerSettings) -> Scheduler:
        return scheduler(
            settings,
            url,
            node.clock,
            node.logger,
            live_files=live_files,
            # The data dir is locked: whoever ran its schedule before is gone.
            holder_file=settings.data_dir / names.SCHEDULE_HOLDER_FILE,
        )

    schedule = Schedule(settings, make)
    return Pipelines(part=Part(start=schedule.start), schedule=schedule)
