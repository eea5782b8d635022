"""The token that requests carry now, and when the next is due. Pure."""

import binascii
import math
from base64 import urlsafe_b64decode

import msgspec

from siltlog.infra.client.credentials.credentials import check_token

EARLY_SECONDS = 60.0
"""A token is renewed so long before it expires; one that lives shorter at half of what is left of it."""
AGAIN_SECONDS = 5.0
"""How long after a failed renewal the next one is tried, while the present token holds."""
PARTS = 3
"""The parts of a JWT: header, claims, signature (RFC 7515 section 7.1)."""


class _Claims(msgspec.Struct):
    exp: float | None = None


class Bearer:
    """One token at a time; `header` is empty before the first. Nothing prints it."""

    def __init__(self) -> None:
        self.header = ""
        self._expires = math.inf
        self._due = math.inf

    def take(self, token: object, now: float) -> None:
        """Takes a new token at `now`, in seconds since 1970. Raises ConfigError for what is none."""
        text = check_token(token)
        self.header = f"Bearer {text}"
        self._expires = expires_at(text)
        left = max(0.0, self._expires - now)
        self._due = now + max(left - EARLY_SECONDS, left / 2, 1.0)

    def is_due(self, now: float) -> bool:
        return now >= self._due

    def holds(self, now: float) -> bool:
        """Whether it can be used although it could not be renewed; that is tried again later."""
        if not self.header or now >= self._expires:
            return False
        self._due = now + AGAIN_SECONDS
        return True


def expires_at(token: str) -> float:
    """Reads `exp` of a JWT, in seconds since 1970, as its sender says it; endless for any other token."""
    parts = token.split(".")
    if len(parts) != PARTS:
        return math.inf
    try:
        claims = urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        said = msgspec.json.decode(claims, type=_Claims).exp
    except (binascii.Error, ValueError):
        return math.inf
    return math.inf if said is None else said
