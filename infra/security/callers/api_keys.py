"""Verifies API keys against what the access document keeps of them."""

from collections.abc import Mapping

from siltlog.infra.clock import Clock
from siltlog.infra.security.access import Subject
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.grant import Identity, unauthenticated
from siltlog.infra.security.keys import HASH_BYTES, PREFIX, fits, read_key

KEY_PREFIX = "key:"
_NO_HASH = bytes(HASH_BYTES)
"""Stands for what is kept of a key that there is not: it takes as long to look at as another."""


class ApiKeys:
    """Used on one event loop. Holds no secret but the key of the hashes."""

    principals = KEY_PREFIX

    def __init__(self, hash_key: bytes, clock: Clock) -> None:
        self._hash_key = hash_key
        self._clock = clock
        self._kept: Mapping[str, KeptKey] = {}

    def keep(self, kept: Mapping[str, KeptKey]) -> None:
        """Has only these keys count from now on, by their ids."""
        self._kept = kept

    def takes(self, token: str) -> bool:
        return token.startswith(PREFIX)

    def known(self, token: str) -> Identity | None:
        found = self._identity(token)
        return found if isinstance(found, Identity) else None

    def verify(self, token: str, *, aside: bool) -> Identity:
        """Raises Refused `unauthenticated`. `aside` does not matter: a key costs less than what would hand it on."""
        found = self._identity(token)
        if isinstance(found, Identity):
            return found
        if found == "malformed":
            raise unauthenticated("malformed", "the API key is not whole: its checksum does not fit; copy all of it")
        if found == "expired":
            raise unauthenticated("expired", "the API key has expired; use another")
        raise unauthenticated("unknown", "there is no such API key, or it was revoked")

    def check(self, identity: Identity) -> None:
        """Raises Refused `unauthenticated` when the key that the caller had is there no more, or has ended since."""
        kept = self._kept.get(identity.credential_id)
        if kept is None:
            raise unauthenticated("unknown", "the API key was revoked")
        if kept.expires_us is not None and self._clock.now_us() >= kept.expires_us:
            raise unauthenticated("expired", "the API key has expired; use another")

    def until_us(self, identity: Identity) -> int | None:
        """When an identity that it gave ends, by what is kept of its key now: one that was rotated away ends sooner."""
        kept = self._kept.get(identity.credential_id)
        expires_us = None if kept is None else kept.expires_us
        ends = [each for each in (identity.until_us, expires_us) if each is not None]
        return min(ends, default=None)

    def _identity(self, token: str) -> Identity | str:
        key = read_key(token)
        if key is None:
            return "malformed"
        kept = self._kept.get(key.key_id)
        if not fits(key, _NO_HASH if kept is None else kept.hash, self._hash_key) or kept is None:
            return "unknown"
        if kept.expires_us is not None and self._clock.now_us() >= kept.expires_us:
            return "expired"
        return Identity(Subject(KEY_PREFIX + kept.name), key.key_id, kept.expires_us)
