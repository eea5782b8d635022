"""Keys that were revoked on this node and are still in the access document, in a file of the data directory.

A revocation is never refused: while the object store is away the key counts no more here, also after a restart. What
the disk has no room for holds until the process ends, and is kept as soon as there is room.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.private_file import replace_private

_ids = msgspec.json.Decoder(list[str])


class HeldRevocations:
    """`ids` count no more; `keep` has them outlive the process. Changed on one event loop, kept by one thread."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the file is there and cannot be read: what it held would count again."""
        self._path = path
        try:
            self.ids = frozenset(_ids.decode(path.read_bytes()))
        except FileNotFoundError:
            self.ids = frozenset[str]()
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; restore it, or remove it if that is meant") from None
        self._kept = self.ids
        self.failure = ""
        """Why what is held could not be kept at the last try; empty where it was."""

    @property
    def are_kept(self) -> bool:
        return self.ids == self._kept

    def hold(self, key_ids: Iterable[str]) -> None:
        self.ids = self.ids.union(key_ids)

    def release(self, key_ids: Iterable[str]) -> None:
        self.ids = self.ids.difference(key_ids)

    def keep(self) -> None:
        """Writes what is held, durable on return. Raises OSError."""
        ids = self.ids
        if ids != self._kept:
            try:
                replace_private(self._path, msgspec.json.encode(sorted(ids)))
            except OSError as error:
                self.failure = str(error)
                raise
            self._kept = ids
        self.failure = ""
