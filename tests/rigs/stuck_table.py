"""A table at which jobs stay under way until they are stopped."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from siltlog.infra import names
from siltlog.infra.table.entries import LAST_CHECKPOINT


class Stuck:
    """A table that no job ever gets past."""

    def __init__(self, lake: Path) -> None:
        self._folder = lake / names.topic_path("stuck")
        (self._folder / names.DELTA_LOG_FOLDER).mkdir(parents=True)
        self._pipe = self._folder / names.DELTA_LOG_FOLDER / LAST_CHECKPOINT
        os.mkfifo(self._pipe)
        self._writers: list[int] = []

    def reached(self) -> bool:
        """Whether a job has come upon it."""
        try:
            self._writers.append(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for writer in self._writers:
            os.close(writer)
        self._writers = []


@contextmanager
def stuck_in(lake: Path) -> Iterator[Stuck]:
    made = Stuck(lake)
    try:
        yield made
    finally:
        made.clear()
