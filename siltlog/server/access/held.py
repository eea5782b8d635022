"""Keys that were revoked on this node and are still in the access document, in a file of the data directory.

A revocation is never refused: while the object store is away the key counts no more here, also after a restart.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.private_file import replace_private

_ids = msgspec.json.Decoder(list[str])


class HeldRevocations:
    """Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when the file is there and cannot be read: what it held would count again."""
        self._path = path
        try:
            self.ids = frozenset(_ids.decode(path.read_bytes()))
        except FileNotFoundError:
            self.ids = frozenset()
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; restore it, or remove it if that is meant") from None

    def hold(self, key_id: str) -> None:
        """Keeps it, durable on return."""
        self._write(self.ids | {key_id})

    def release(self, key_ids: Iterable[str]) -> None:
        self._write(self.ids.difference(key_ids))

    def _write(self, ids: frozenset[str]) -> None:
        if ids != self.ids:
            replace_private(self._path, msgspec.json.encode(sorted(ids)))
            self.ids = ids
