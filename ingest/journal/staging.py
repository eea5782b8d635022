"""Writes the object of a group commit beside that one's sync, under a name that nobody sees: putting it takes less.

An object is only ever put once its group commit is synced. What turns out to be no object of the journal is removed;
what a process that was killed leaves goes with vacuum, as any object does that is half written.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from operator import is_
from typing import NamedTuple

from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import StagedObject
from siltlog.ingest.journal.codec import Object, path_of
from siltlog.ingest.journal.writer import Foretold
from siltlog.ingest.wal.codec import Frame

Stage = Callable[[str, bytes], StagedObject]
"""Writes an object for the path under which it is to be put later."""


class Written(NamedTuple):
    made: Object
    staged: StagedObject


class _Begun(NamedTuple):
    journal: str
    foretold: Foretold
    frames: Sequence[Frame]
    written: Future[Written]


class Staging:
    """Used on the log's event loop; objects are made and written by `threads`. One is begun at a time."""

    def __init__(self, stage: Stage, threads: Executor) -> None:
        self._stage = stage
        self._threads = threads
        self._begun: _Begun | None = None

    def begin(self, journal: str, foretold: Foretold, frames: Sequence[Frame], make: Callable[[], Object]) -> None:
        self._drop()
        written = self._threads.submit(self._write, path_of(journal, foretold.number), make)
        self._begun = _Begun(journal, foretold, frames, written)

    def _write(self, path: str, make: Callable[[], Object]) -> Written:
        made = make()
        return Written(made, self._stage(path, made.data))

    def taken(self, journal: str, wanted: Foretold, frames: Sequence[Frame]) -> Future[Written] | None:
        """What was begun, if it is the object that is wanted, to the same frames; else it is dropped."""
        begun = self._begun
        if begun is not None and begun[:2] == (journal, wanted) and _are(begun.frames, frames):
            self._begun = None
            return begun.written
        self._drop()
        return None

    def _drop(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            self._threads.submit(_discard, begun.written)


def written_of(written: Future[Written]) -> Written | None:
    """Waits for what was begun, on a thread; None where it could not be written: whoever puts it then says why."""
    try:
        return written.result()
    except SiltlogError:
        return None


def _are(some: Sequence[Frame], others: Sequence[Frame]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _discard(written: Future[Written]) -> None:
    with suppress(SiltlogError, OSError, CancelledError):
        written.result().staged.discard()
