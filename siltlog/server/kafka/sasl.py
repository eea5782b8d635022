"""Logins of Kafka's clients by SASL: API keys by PLAIN (RFC 4616), tokens of a provider by OAUTHBEARER (RFC 7628)."""

import json
import re
from typing import NamedTuple

from siltlog.infra.errors import SiltlogError
from siltlog.infra.security.callers.identification import Identification
from siltlog.infra.security.callers.provider import DISCOVERY_PATH
from siltlog.infra.security.grant import unauthenticated
from siltlog.infra.security.keys import read_key

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_BEARER = re.compile(rb"[ny],(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)*)\x01")
"""For whom, and pairs of names and values."""
_SCHEME = "bearer "


class Said(NamedTuple):
    """A message of a client that logs in. `as_whom` is empty where he does not say whom he takes himself for."""

    token: str
    as_whom: str = ""


class Sasl(NamedTuple):
    """How clients log in. `issuer` is the provider whose tokens count; empty where there is none."""

    identification: Identification
    issuer: str = ""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return (PLAIN, OAUTHBEARER) if self.issuer else (PLAIN,)

    def read(self, mechanism: str, message: bytes) -> Said:
        """Raises Refused `unauthenticated` for what is no message of the mechanism."""
        return read_bearer(message) if mechanism == OAUTHBEARER else read_plain(message)

    def told(self, mechanism: str, refusal: SiltlogError) -> bytes:
        """What a client is told before the login fails, and acknowledges: of OAUTHBEARER where its token does not
        count (RFC 7628, section 3.2.2)."""
        if mechanism != OAUTHBEARER or refusal.error_code != "unauthenticated":
            return b""
        return json.dumps(
            {"status": "invalid_token", "openid-configuration": self.issuer.rstrip("/") + DISCOVERY_PATH}
        ).encode()


def read_plain(message: bytes) -> Said:
    """Takes the id of an API key as the user, and the key as the password. Raises Refused `unauthenticated`."""
    try:
        as_whom, user, password = message.decode().split("\0")
    except ValueError:
        raise unauthenticated(
            "malformed", "the token of SASL PLAIN is not three texts with a zero between them"
        ) from None
    key = read_key(password)
    if key is None or key.key_id != user:
        raise unauthenticated(
            "malformed", "no API key was sent: the user is the id of a key, the password the whole key"
        )
    if as_whom not in ("", user):
        raise unauthenticated("unknown", f"the key is not {as_whom[:100]!r}'s: leave out for whom it is")
    return Said(password)


def read_bearer(message: bytes) -> Said:
    """Raises Refused `unauthenticated`."""
    written = _BEARER.fullmatch(message)
    pairs = [] if written is None else [pair.decode().partition("=") for pair in written[2].split(b"\x01")[:-1]]
    given = [value for name, _, value in pairs if name.lower() == "auth"]
    if written is None or len(given) != 1 or given[0][: len(_SCHEME)].lower() != _SCHEME:
        raise unauthenticated(
            "malformed", "the message of SASL OAUTHBEARER has no token: n,, then a pair auth=Bearer TOKEN (RFC 7628)"
        )
    token = given[0][len(_SCHEME) :].strip()
    return Said(token, (written[1] or b"").decode("utf-8", "replace").replace("=2C", ",").replace("=3D", "="))
