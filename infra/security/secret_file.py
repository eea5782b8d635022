"""Files that hold one secret: as Kubernetes mounts them, or as a person writes them with mode 600."""

import os
import stat
from pathlib import Path

SECRET_BYTES_MAX = 64 * 1024


def read_secret_line(path: Path) -> bytes:
    """Reads the first line. Raises ValueError, with a sentence, where it cannot be read, or others may read it."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.readline(SECRET_BYTES_MAX)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    problem = open_to_others(status)
    if problem:
        raise ValueError(f"{problem}: chmod 600 {path}")
    return content.strip()


def read_secret(path: Path) -> str:
    """Reads the first line as text. Raises ValueError, with a sentence."""
    try:
        secret = read_secret_line(path).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError("its first line is not UTF-8") from None
    if not secret:
        raise ValueError("its first line is empty")
    return secret


def open_to_others(status: os.stat_result) -> str:
    """Says who may read a file besides its owner; nothing where nobody may.

    A group may read what belongs to root: so Kubernetes gives secrets to a pod that is not root.
    """
    if status.st_mode & stat.S_IRWXO:
        return "every user of this machine may read it"
    if status.st_mode & stat.S_IRWXG and status.st_uid != 0:
        return "its group may read it"
    return ""
