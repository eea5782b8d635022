"""Tokens and key sets as an issuer makes them, and as nobody should."""

import base64
import json
import warnings
from collections.abc import Mapping
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from siltlog.infra.security.callers.tokens import Expected, SigningKeys, read_keys

ISSUER = "https://id.example/realms/data"
NOW_S = 1_790_000_000
NOW_US = NOW_S * 1_000_000
EXPECTED = Expected(ISSUER, "siltlog", client_id="siltlog-page")
CLAIMS: Mapping[str, Any] = {
    "iss": ISSUER,
    "aud": ["account", "siltlog"],
    "sub": "ada",
    "exp": NOW_S + 300,
    "nbf": NOW_S,
    "iat": NOW_S,
    "jti": "7f2c",
    "groups": ["flights", "ops"],
}

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGE = RSAKey.generate_key(2048, {"kid": "rsa"})
SIGNERS: dict[str, tuple[str, Key]] = {
    "RS256": ("rsa", RSA),
    "PS256": ("rsa", RSA),
    "ES256": ("ec", EC),
    "EdDSA": ("ed", ED),
}


def key_set(*keys: Mapping[str, Any]) -> SigningKeys:
    return read_keys(json.dumps({"keys": keys}).encode())


def public(key: Key, **members: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **members}


KEYS = key_set(public(RSA, use="sig"), public(EC), public(ED))


def part(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(header: Any, claims: Any, algorithm: str, key: Key) -> str:
    """Signs whatever header and claims are given, as only the owner of `key` can."""
    text = f"{part(header)}.{part(claims)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = jws.JWSRegistry.algorithms[algorithm]
    return f"{text}.{part(model.sign(text.encode(), key))}"


def token(algorithm: str = "RS256", header: Mapping[str, Any] | None = None, **claims: Any) -> str:
    """A good token, but for what is given; a claim that is None is left out."""
    kid, key = SIGNERS[algorithm]
    whole = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return signed({"alg": algorithm, "kid": kid, "typ": "at+jwt", **(header or {})}, whole, algorithm, key)
