"""Puts a file in place of another, whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def replace_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Puts `content` in place of what is there, durable on return. Raises OSError."""
    fresh = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        fresh.unlink()
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
