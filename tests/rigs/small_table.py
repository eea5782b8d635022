"""The table of a topic, in the small: numbered entries that are put only where none is, as seen by one process.

Its turns are steps, as those of a member: each yields one call of the store, so anything may happen between two.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from siltlog.infra.cluster import steps
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.ownership.rules import Facts

_Answer = TypeVar("_Answer")
Steps = Generator[Callable[[ObjectStore], Any] | float, Any, _Answer]
"""Steps that may also rest, for so many seconds."""
SETTLE_SECONDS = 0.5


PutBy = Callable[[ObjectStore, str, bytes], Put]


def put_once(store: ObjectStore, path: str, content: bytes) -> Put:
    return store.put_if_absent(path, content)


class Lost(Exception):
    """Somebody else has the table, or it is not as it was."""


class Unknown(Exception):
    """Whether the commit landed cannot be told."""


class SmallTable:
    def __init__(self, name: str) -> None:
        self.name = name
        self.version = -1
        self.epoch = 0
        self.released = -1
        self.shipped = 0
        self.journals: tuple[tuple[int, str], ...] = ()
        """Each with the epoch under which it has records that may be in no table."""
        self.rows: list[str] = []
        self.places: dict[str, int] = {}
        self.ids: set[str] = set()

    @property
    def offset(self) -> int:
        return len(self.rows)

    @property
    def decided_on(self) -> tuple[int, int, int]:
        """What a claim is compared with."""
        return self.epoch, self.released, self.shipped

    def facts(self) -> Facts:
        return Facts({0: self.epoch}, {0: self.released}, {0: self.shipped})

    def path(self, version: int) -> str:
        return f"topics/{self.name}/{version:020d}"

    def apply(self, content: bytes) -> None:
        entry = msgspec.json.decode(content)
        for value in entry.pop("add"):
            self.places[value] = len(self.rows)
            self.rows.append(value)
        self.ids.add(entry.pop("id"))
        if "journals" in entry:
            self.journals = tuple((epoch, journal) for epoch, journal in entry.pop("journals"))
        for key, number in entry.items():
            setattr(self, key, number)
        self.version += 1

    def refresh(self) -> Steps[None]:
        while (content := (yield steps.found(self.path(version := self.version + 1)))) is not None:
            if self.version + 1 == version:
                self.apply(content)

    def commit(
        self, commit_id: str, change: Callable[["SmallTable"], Mapping[str, Any]], put_by: PutBy = put_once
    ) -> Steps[None]:
        """Raises Lost as `change` does, Unknown; SiltlogError where nothing was sent."""
        while True:
            yield from self.refresh()
            if commit_id in self.ids:
                return
            version = self.version
            content = msgspec.json.encode({"add": [], **change(self), "id": commit_id})
            path = self.path(version + 1)
            put = yield lambda store, path=path, content=content: put_by(store, path, content)
            try:
                yield from self.refresh()
            except SiltlogError:
                raise Unknown from None
            if commit_id in self.ids:
                return
            if put is Put.UNKNOWN and self.version == version:
                raise Unknown

    def outcome(self, commit_id: str) -> Steps[bool]:
        """Whether it landed; one that did not is shut out. Raises SiltlogError, Unknown while that cannot be told."""
        yield from self.refresh()
        if commit_id not in self.ids:
            yield from self.commit(f"after {commit_id} {self.version}", lambda table: {})
        return commit_id in self.ids

    def asked_after(self, commit_id: str) -> Steps[bool]:
        """Whether it landed, once that is known."""
        while True:
            try:
                return (yield from self.outcome(commit_id))
            except (SiltlogError, Unknown):
                yield SETTLE_SECONDS
