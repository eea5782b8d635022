"""API keys: how one is written, and what of it is kept. Pure but for the randomness that is given.

A key is `silt_` + id (12) + `_` + secret (43) + checksum (6), in base 62: the checksum tells a mistyped or truncated
key from a wrong one, and lets programs that look for leaked secrets be sure. The secret has 256 random bits, so one
keyed hash keeps it; a slow hash is for what people choose.
"""

import hashlib
import hmac
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_CHARS = 12
SECRET_CHARS = 43
SUM_CHARS = 6
SECRET_BYTES = 32
HASH_BYTES = 32
PREFIX = "silt_"
_WRITTEN = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{ID_CHARS}}})_([0-9A-Za-z]{{{SECRET_CHARS}}})([0-9A-Za-z]{{{SUM_CHARS}}})", re.ASCII
)
_BASE = len(_ALPHABET)
assert _BASE**SECRET_CHARS >= 256**SECRET_BYTES
assert _BASE**SUM_CHARS >= 2**32


class ApiKey(NamedTuple):
    """The two parts of a key. Only `text()` shows the secret; it is written nowhere else."""

    key_id: str
    secret: str

    def text(self) -> str:
        body = f"{PREFIX}{self.key_id}_{self.secret}"
        return body + _checksum(body)

    def __repr__(self) -> str:
        return f"ApiKey(key_id={self.key_id!r})"


def make_key(random_bytes: Callable[[int], bytes]) -> ApiKey:
    key_id = _written(int.from_bytes(random_bytes(16)) % _BASE**ID_CHARS, ID_CHARS)
    return ApiKey(key_id, _written(int.from_bytes(random_bytes(SECRET_BYTES)), SECRET_CHARS))


def read_key(text: str) -> ApiKey | None:
    """Takes a key apart; None for what is none, or is not whole."""
    found = _WRITTEN.fullmatch(text)
    if found is None or _checksum(text[:-SUM_CHARS]) != found[3]:
        return None
    return ApiKey(found[1], found[2])


def hash_of(key: ApiKey, hash_key: bytes) -> bytes:
    """What is kept of a key: who reads it learns nothing of the secret, and cannot make one that fits."""
    return hashlib.blake2b(key.secret.encode(), key=hash_key, digest_size=HASH_BYTES, person=b"silt-api-key").digest()


def fits(key: ApiKey, kept: bytes, hash_key: bytes) -> bool:
    """Takes the same time wherever the first difference is."""
    return hmac.compare_digest(hash_of(key, hash_key), kept)


def _checksum(body: str) -> str:
    return _written(zlib.crc32(body.encode()), SUM_CHARS)


def _written(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, _BASE)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
