"""The last record of the audit log that this data directory wrote, kept in a file: its chain goes on from there."""

from pathlib import Path

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.audit.chain import Anchor, read_anchor, start_of
from siltlog.infra.security.private_file import replace_private


class SeenAnchor:
    """Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Anchor | None:
        """Gives the record that was kept, or None where none was. Raises ConfigError where the file is damaged."""
        try:
            text = self._path.read_text("ascii")
        except FileNotFoundError:
            return None
        chain, _, rest = text.strip().partition(":")
        if rest == "0:":
            return start_of(chain)
        try:
            return read_anchor(text.strip())
        except ValueError as error:
            raise ConfigError(f"{self._path} is damaged: {error}; restore it, or remove it if that is meant") from None

    def keep(self, last: Anchor) -> None:
        """Puts a record in place of the one that was kept, durable on return. Raises OSError."""
        replace_private(self._path, last.text().encode() + b"\n")
