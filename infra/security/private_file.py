"""Writes files of the data directory that only its owner may read, whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def replace_private(path: Path, content: bytes) -> None:
    """Puts `content` in place of what is there, durable on return."""
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
