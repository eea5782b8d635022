"""Seals a value into the text of a cookie: whoever has it can neither read nor change it (JWE, RFC 7516)."""

from typing import Generic, TypeVar

import msgspec
from joserfc.errors import JoseError
from joserfc.jwe import decrypt_compact, encrypt_compact
from joserfc.jwk import OctKey

T = TypeVar("T", bound=msgspec.Struct)

SEALED_CHARS_MAX = 3_800
"""Browsers keep cookies of 4,096 bytes, name and attributes included."""
_ALGORITHMS = ["dir", "A256GCM"]
_HEADER = {"alg": "dir", "enc": "A256GCM"}


class Sealing(Generic[T]):
    """Seals and opens values of one kind with one key."""

    def __init__(self, key: bytes, kind: type[T]) -> None:
        """`key` has 32 bytes."""
        self._key = OctKey.import_key(key)
        self._decoder = msgspec.json.Decoder(kind)

    def seal(self, value: T) -> str:
        """Raises ValueError for one that no browser would keep."""
        sealed = encrypt_compact(dict(_HEADER), msgspec.json.encode(value), self._key, algorithms=_ALGORITHMS)
        if len(sealed) > SEALED_CHARS_MAX:
            raise ValueError(f"it takes {len(sealed)} characters, and a cookie has room for {SEALED_CHARS_MAX}")
        return sealed

    def open(self, sealed: str) -> T:
        """Raises ValueError for what was not sealed with this key."""
        if len(sealed) > SEALED_CHARS_MAX:
            raise ValueError("it is too long")
        try:
            content = decrypt_compact(sealed, self._key, algorithms=_ALGORITHMS).plaintext or b""
        except (JoseError, ValueError, TypeError, KeyError, RecursionError):
            raise ValueError("it is not sealed with the key of this cluster") from None
        try:
            return self._decoder.decode(content)
        except msgspec.DecodeError:
            raise ValueError("it is of another release") from None
