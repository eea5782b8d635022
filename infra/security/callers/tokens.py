"""Access tokens of an identity provider: JSON Web Tokens (RFC 7519), verified against the provider's keys. Pure.

A token chooses nothing: neither its algorithm, which is one of four and fits the key, nor its key, which is one that
the provider publishes. `verify` does signature and claims, so that nobody takes the one for the other. It checks what
RFC 8725 and RFC 9068 ask for, but that a token without a type passes as one of type `JWT`: some providers write none.
"""

import binascii
import hashlib
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact

from siltlog.infra.clock import MICROS_PER_SECOND, TIME_MAX_US
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import Identity

TOKEN_CHARS_MAX = 8 * 1024
SKEW_SECONDS = 30
"""The provider's clock may differ from this server's by so much."""
GROUPS_MAX = 200
NAME_CHARS_MAX = 256
"""The most characters of a principal or group."""
KEYS_MAX = 100
RSA_BITS_MIN = 2048
USER_PREFIX = "user:"
JWT_PREFIX = "jwt:"
"""Begins the credential that is a token; the mark of the key that signed it follows, and the token's own name."""
REASONS = Literal["malformed", "expired", "unknown"]

_FITTING: Mapping[str, tuple[str, str]] = {
    "RS256": ("RSA", ""),
    "PS256": ("RSA", ""),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Algorithm -> type and curve of the keys that fit it; no other algorithm is ever used."""
_READ: Mapping[str, tuple[Callable[[Any], Key], tuple[str, ...]]] = {
    "RSA": (RSAKey.import_key, ("n", "e")),
    "EC": (ECKey.import_key, ("crv", "x", "y")),
    "OKP": (OKPKey.import_key, ("crv", "x")),
}
"""Type -> what reads a key, and the members it is read from: a private part that slipped into the set is left there."""
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_WRITTEN = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+", re.ASCII)
_ID_TOKEN = frozenset({"nonce", "at_hash", "c_hash", "s_hash"})
"""Claims that only tokens for a page have, which says with them who logged in: they are no key to an API."""
_SECONDS_MAX = TIME_MAX_US // MICROS_PER_SECOND
_OTHER_KINDS = frozenset({"ID", "Refresh", "Offline", "Logout"})
"""What Keycloak writes into the claim `typ` of its other tokens, all of which it signs with the same keys."""


class Expected(NamedTuple):
    """What a token must say, and where it says who has it."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    groups_claim: str = "groups"
    client_id: str = ""
    """The provider's name for the page's login; its tokens are for the page alone."""


class TokenRefused(Exception):
    """The token is not taken. No text of it is in the message."""

    def __init__(self, reason: REASONS, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class UnknownSigningKey(TokenRefused):
    """The token is by a key that the set has not: a newer set might."""

    def __init__(self) -> None:
        super().__init__("unknown", "it is not signed by a key that its issuer publishes")


class SigningKey(NamedTuple):
    """A public key; `mark` tells it from every other (RFC 7638)."""

    key: Key
    mark: str


class SigningKeys:
    """The keys that a provider signs with."""

    def __init__(self, keys: Mapping[str, tuple[SigningKey, ...]]) -> None:
        """`keys` are by their id; those without one by the empty string."""
        self._keys = keys
        self.marks = frozenset(one.mark for several in keys.values() for one in several)

    def find(self, key_id: str | None, algorithm: str) -> SigningKey:
        """Raises UnknownSigningKey. A token that names no key has one where only one fits."""
        every = (one for several in self._keys.values() for one in several)
        among = every if key_id is None else self._keys.get(key_id, ())
        fitting = [one for one in among if _fits(one.key, algorithm)]
        if not fitting or (key_id is None and len(fitting) > 1):
            raise UnknownSigningKey
        return fitting[0]


def read_keys(content: bytes) -> SigningKeys:
    """Reads a JSON Web Key Set (RFC 7517). Keys that cannot verify an allowed signature are passed over.

    Raises ValueError when none is left.
    """
    try:
        listed = json.loads(content)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is no JSON Web Key Set") from None
    if not isinstance(listed, list):
        raise ValueError("it is no JSON Web Key Set: `keys` is no array")
    found: dict[str, tuple[SigningKey, ...]] = {}
    for given in listed[:KEYS_MAX]:
        key = _read_key(given) if isinstance(given, dict) else None
        if key is not None:
            key_id = given.get("kid", "")
            found[key_id] = (*found.get(key_id, ()), SigningKey(key, key.thumbprint()))
    if not found:
        raise ValueError(f"it has no key for any of {', '.join(_FITTING)}")
    return SigningKeys(found)


def verify(token: str, keys: SigningKeys, expected: Expected, now_us: int) -> Identity:
    """Checks all of a token: its form, its signature, and what it claims. Raises TokenRefused.

    Its end has SKEW_SECONDS added, as the clock here may be ahead.
    """
    claims, mark = _signed(token, keys)
    until_us = _checked(claims, expected, now_us)
    subject = subject_of(claims, expected)
    return Identity(subject, f"{JWT_PREFIX}{mark}:{_name_of(token, claims)}", until_us)


def verify_id_token(
    token: str, keys: SigningKeys, expected: Expected, nonce: str | None, now_us: int
) -> tuple[Identity, str]:
    """Checks what tells the page who logged in (OpenID Connect Core 1.0, section 3.1.3.7), and gives him and his `sub`.

    `nonce` is what the login asked for; None where it asked for none. Raises TokenRefused.
    """
    claims, mark = _signed(token, keys)
    if claims.get("iss") != expected.issuer:
        raise TokenRefused("unknown", "its `iss` is not the issuer that this server trusts")
    audiences = _texts(claims.get("aud"))
    by = claims.get("azp", expected.client_id if audiences == [expected.client_id] else None)
    if not expected.client_id or audiences is None or expected.client_id not in audiences or by != expected.client_id:
        raise TokenRefused("unknown", "it is not for the login of this page (`aud`, `azp`)")
    if str(claims.get("typ", "ID")) in _OTHER_KINDS - {"ID"} or not _is_name(claims.get("sub")):
        raise TokenRefused("unknown", "it is a token of another kind")
    if nonce is not None and claims.get("nonce") != nonce:
        raise TokenRefused("unknown", "it is of another login (`nonce`)")
    until_us = _in_time(claims, now_us)
    identity = Identity(subject_of(claims, expected), f"{JWT_PREFIX}{mark}:{_name_of(token, claims)}", until_us)
    return identity, str(claims["sub"])


def subject_of(claims: Mapping[str, Any], expected: Expected) -> Subject:
    """Whom verified claims name. Raises TokenRefused."""
    return Subject(USER_PREFIX + _principal(claims, expected), _groups(claims, expected))


def _signed(token: str, keys: SigningKeys) -> tuple[dict[str, Any], str]:
    """Gives what a token claims, and the mark of the key that signed it. Raises TokenRefused."""
    if len(token) > TOKEN_CHARS_MAX:
        raise TokenRefused("malformed", f"it has more than {TOKEN_CHARS_MAX} characters")
    written = _WRITTEN.fullmatch(token)
    if written is None:
        raise TokenRefused("malformed", "it is not three parts in base64url with dots between them")
    header = _members(written[1])
    claims = _members(written[2])
    algorithm, key_id = _choice(header)
    signer = keys.find(key_id, algorithm)
    try:
        deserialize_compact(token, signer.key, registry=_REGISTRY)
    except (JoseError, ValueError):
        if key_id is None:
            raise UnknownSigningKey from None
        raise TokenRefused("unknown", "its signature is not that of its issuer's key") from None
    return claims, signer.mark


def mark_of(credential: str) -> str:
    """Gives the mark of the key that signed a token, by the credential that `verify` made of it."""
    return credential.removeprefix(JWT_PREFIX).partition(":")[0]


def _choice(header: Mapping[str, Any]) -> tuple[str, str | None]:
    """Gives the algorithm, and the id of the key, that a token asks for. Raises TokenRefused."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _FITTING:
        raise TokenRefused("malformed", f"its algorithm is none of {', '.join(_FITTING)}")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("malformed", "its kid is no text")
    if {"crit", "b64"} & header.keys():
        raise TokenRefused("malformed", "it asks for extensions of its signature (`crit`, `b64`), and none is known")
    named = header.get("typ", "JWT")
    if not isinstance(named, str) or named.lower() not in _TYPES:
        raise TokenRefused("malformed", "its header does not say that it is an access token (`typ`: at+jwt or JWT)")
    return algorithm, key_id


class _Registry(JWSRegistry):
    """The library's own would look for any algorithm it knows, and warn of EdDSA's name."""

    max_header_length = TOKEN_CHARS_MAX
    max_signature_length = TOKEN_CHARS_MAX

    def get_alg(self, name: str) -> Any:
        if name not in _FITTING:
            raise UnsupportedAlgorithmError
        return self.algorithms[name]


_REGISTRY = _Registry(strict_check_header=False)


def _checked(claims: Mapping[str, Any], expected: Expected, now_us: int) -> int:
    """Gives when the token ends. Raises TokenRefused."""
    if claims.get("iss") != expected.issuer:
        raise TokenRefused("unknown", "its `iss` is not the issuer that this server trusts")
    audiences = _texts(claims.get("aud"))
    if audiences is None or expected.audience not in audiences:
        raise TokenRefused("unknown", "its `aud` does not name this server")
    if expected.client_id in audiences or _ID_TOKEN & claims.keys() or str(claims.get("typ")) in _OTHER_KINDS:
        raise TokenRefused("unknown", "it is a token of another kind, such as an id token: send the access token")
    if "cnf" in claims:
        raise TokenRefused("unknown", "it is bound to a key of its owner (`cnf`), which is not looked at here")
    return _in_time(claims, now_us)


def _in_time(claims: Mapping[str, Any], now_us: int) -> int:
    """Gives when a token ends. Raises TokenRefused for one that has ended, or has not begun."""
    until_us = _time_us(claims, "exp") + SKEW_SECONDS * MICROS_PER_SECOND
    if now_us >= until_us:
        raise TokenRefused("expired", "it has expired")
    if "nbf" in claims and _time_us(claims, "nbf") > now_us + SKEW_SECONDS * MICROS_PER_SECOND:
        raise TokenRefused("unknown", "it is not valid yet (`nbf`)")
    return until_us


def _principal(claims: Mapping[str, Any], expected: Expected) -> str:
    claim = expected.principal_claim
    principal = claims.get(claim)
    if not _is_name(principal):
        raise TokenRefused("unknown", f"its claim {claim!r} names nobody")
    if claim == "email" and claims.get("email_verified", True) is not True:
        raise TokenRefused("unknown", "its `email` was not verified by its issuer")
    return str(principal)


def _groups(claims: Mapping[str, Any], expected: Expected) -> tuple[str, ...]:
    """What cannot be read whole is refused: without one of its groups a caller might pass by an entry that denies."""
    claim = expected.groups_claim
    elsewhere = claims.get("_claim_names")
    if claims.get("hasgroups") is True or (isinstance(elsewhere, dict) and claim in elsewhere):
        raise TokenRefused("unknown", "its groups are too many for it, so its issuer keeps them elsewhere")
    groups = _texts(claims.get(claim, []))
    if groups is None or not all(map(_is_name, groups)):
        raise TokenRefused("unknown", f"its claim {claim!r} is no list of names")
    if len(groups) > GROUPS_MAX:
        raise TokenRefused("unknown", f"it has more than {GROUPS_MAX} groups in {claim!r}")
    return tuple(groups)


def _name_of(token: str, claims: Mapping[str, Any]) -> str:
    token_id = claims.get("jti")
    return str(token_id) if _is_name(token_id) else hashlib.sha256(token.encode()).hexdigest()[:16]


def _time_us(claims: Mapping[str, Any], claim: str) -> int:
    seconds = claims.get(claim)
    # What is not a number has no place between these two either.
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _SECONDS_MAX:
        return int(seconds * MICROS_PER_SECOND)
    raise TokenRefused("malformed", f"its claim {claim!r} is no time in seconds")


def _texts(value: Any) -> list[str] | None:
    """Gives what is one text, or a list of them; None for anything else."""
    texts = [value] if isinstance(value, str) else value
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return texts if is_list else None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARS_MAX and value.isprintable()


def _fits(key: Key, algorithm: str) -> bool:
    key_type, curve = _FITTING[algorithm]
    return key.key_type == key_type and key.get("crv", "") == curve and key.alg in (None, algorithm)


def _read_key(given: Mapping[str, Any]) -> Key | None:
    """Reads one key; None for what cannot verify a signature of an allowed algorithm."""
    kind = str(given.get("kty"))
    operations = given.get("key_ops", ["verify"])
    is_for_signatures = given.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    if kind not in _READ or not is_for_signatures or not isinstance(given.get("kid", ""), str):
        return None
    read, members = _READ[kind]
    wanted = {name: given[name] for name in (*members, "alg") if name in given}
    try:
        if kind == "RSA" and int.from_bytes(_bytes(given["n"])).bit_length() < RSA_BITS_MIN:
            return None
        key = read({"kty": kind, **wanted})
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if any(_fits(key, algorithm) for algorithm in _FITTING) else None


def _members(part: str) -> dict[str, Any]:
    """Reads a part that is a JSON object, in which no member comes twice. Raises TokenRefused."""
    try:
        found = json.loads(_bytes(part).decode(), object_pairs_hook=_told_apart, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused("malformed", "one of its parts is no JSON object, or one that says a thing twice") from None
    if not isinstance(found, dict):
        raise TokenRefused("malformed", "one of its parts is no JSON object")
    return found


def _told_apart(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _no_number(text: str) -> float:
    raise ValueError(text)


def _bytes(part: str) -> bytes:
    """Decodes base64url without padding (RFC 7515, section 2)."""
    if len(part) % 4 == 1:
        raise binascii.Error
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
