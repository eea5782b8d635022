"""Audit records that could not be written yet, in a file of the data directory: they are due also after a kill."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.audit.chain import Audited
from siltlog.infra.security.private_file import replace_private


class Owed(msgspec.Struct, frozen=True):
    """What happened, and when in microseconds."""

    time_us: int
    audited: Audited


_decode = msgspec.json.Decoder(list[Owed]).decode


class OwedRecords:
    """Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: list[Owed] | None = None
        """What the file has; None until it was read."""
        self._untaken: list[Owed] = []

    def take(self) -> list[Owed]:
        """Gives, once, what was owed when the last process ended. Raises ConfigError where that cannot be told."""
        self._read()
        taken, self._untaken = self._untaken, []
        return taken

    def keep(self, owed: Iterable[Owed]) -> None:
        """Has these be owed, and what nobody has taken yet, durable on return. Raises OSError, and as `take` does."""
        kept, wanted = self._read(), [*self._untaken, *owed]
        if wanted != kept:
            replace_private(self._path, msgspec.json.encode(wanted))
            self._kept = wanted

    def _read(self) -> list[Owed]:
        if self._kept is None:
            try:
                self._kept = _decode(self._path.read_bytes())
            except FileNotFoundError:
                self._kept = []
            except (OSError, msgspec.DecodeError) as error:
                raise ConfigError(
                    f"{self._path} cannot be read: {error}; restore it, or remove it if that is meant"
                ) from None
            self._untaken = list(self._kept)
        return self._kept
