"""The secret of a cluster, and the keys made of it: each for one purpose, so that none says anything of another.

Who can write the bucket cannot grant himself anything: what is kept there is sealed with a key that is not.
"""

import os
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.secret_file import read_secret_line

SECRET_BYTES_MIN = 32
_KEY_BYTES = 32

PURPOSE_KEYS = "keys"
PURPOSE_ACCESS = "access"
PURPOSE_HOPS = "hops"


class Secret:
    """The bytes of one line of the secret file. Nothing prints them."""

    def __init__(self, content: bytes) -> None:
        """Raises ValueError when it has fewer than SECRET_BYTES_MIN."""
        if len(content) < SECRET_BYTES_MIN:
            raise ValueError(f"it has {len(content)} bytes, and needs {SECRET_BYTES_MIN}")
        self._content = content

    def key(self, purpose: str) -> bytes:
        """Derives 32 bytes for `purpose` (HKDF, RFC 5869)."""
        return HKDF(SHA256(), _KEY_BYTES, salt=None, info=f"siltlog {purpose}".encode()).derive(self._content)

    def __repr__(self) -> str:
        return "Secret(***)"


def read_secret(path: Path) -> Secret:
    """Reads the first line of a secret file. Raises ConfigError where it cannot be used, or others may read it."""
    try:
        content = read_secret_line(path)
    except ValueError as error:
        raise ConfigError(f"the secret file {path} cannot be used: {error}") from None
    try:
        return Secret(content)
    except ValueError as error:
        raise ConfigError(f"the first line of the secret file {path} is too short: {error}") from None


def make_secret(path: Path) -> bool:
    """Makes a secret file where there is none, durable and for its owner alone; False where there is one."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_urlsafe(_KEY_BYTES).encode() + b"\n")
        file.flush()
        os.fsync(descriptor)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True
