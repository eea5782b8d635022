"""Decides which worker runs which files of tests, and in what order."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SESSION = "files that share a Spark session"
HEAVY = ("client", "slow", "spark", "timeout")
"""Marks of tests that take long."""
_ASKS_FOR_SESSION = re.compile(r"^def \w+\([^)]*\bspark: Any\b", re.MULTILINE)


class FilesAtOnce(LoadFileScheduling):
    """A file's tests stay together, and so do all files that use the fixture `spark`: only one JVM has to get warm.

    Half of the workers begin with what takes long, which is mostly work, and half with the rest, much of which waits:
    so processors have something to do all the time, and not twice as much as they can in the first half.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.nodes.index(node) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return SESSION if _uses_session(self.config.rootpath / file) else file


@cache
def _uses_session(file: Path) -> bool:
    return _ASKS_FOR_SESSION.search(file.read_text("utf-8")) is not None


def heavy_first(items: list[pytest.Item]) -> None:
    """Sorts them, file by file, so that no file of long tests is left for one worker when the others have ended."""
    run = [item for item in items if not item.get_closest_marker("skip")]
    marks = Counter(item.path for item in run for name in HEAVY if item.get_closest_marker(name))
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (-marks[item.path], -sizes[item.path], str(item.path)))
