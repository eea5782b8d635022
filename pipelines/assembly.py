"""Builds this room on a node: the schedule of its jobs, on a thread of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from siltlog.infra import names
from siltlog.infra.client.core import UNIX
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.pipelines.schedule.crowded import LiveFiles
from siltlog.pipelines.schedule.opening import ScheduleThread, scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    part: Part
    stop: Callable[[], None] | None
    """Ends the jobs and waits until they have said so, which blocks; None where no schedule runs."""


def assemble(node: Node, url: str, live_files: Callable[[], LiveFiles]) -> Pipelines:
    """`url` is where jobs tell of their runs; `live_files()` counts the files of the tables."""
    settings = node.settings
    local = settings.data_dir.absolute() / names.SOCKET_FILE
    if local.is_socket():
        # It lets in who may use it, without a token or a certificate.
        url = f"{UNIX}{local}"
    if settings.schedule != "on":
        return Pipelines(part=Part(), stop=None)
    runner = scheduler(
        settings,
        url,
        node.clock,
        node.logger,
        live_files=live_files,
        # The data dir is locked: whoever ran its schedule before is gone.
        holder_file=settings.data_dir / names.SCHEDULE_HOLDER_FILE,
    )
    thread = ScheduleThread(runner)
    return Pipelines(part=Part(start=thread.start), stop=thread.stop)
