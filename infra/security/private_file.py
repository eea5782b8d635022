"""Writes files of the data directory that only its owner may read, whole or not at all."""

from pathlib import Path

from siltlog.infra.whole_file import replace_whole


def replace_private(path: Path, content: bytes) -> None:
    """Puts `content` in place of what is there, durable on return."""
    replace_whole(path, content, 0o600)
