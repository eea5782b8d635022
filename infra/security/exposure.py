"""How far a server may be reached before it refuses to start. Pure.

What only this machine can reach may stand open; anything else needs TLS and authentication, or its owner's word, by
name, that it does without (`SILT_INSECURE`). A word for the one never permits the other.
"""

import ipaddress
from collections.abc import Iterable

from siltlog.infra.errors import ConfigError
from siltlog.infra.locations import listed

NO_TLS = "no-tls"
NO_AUTH = "no-auth"
WORDS = (NO_TLS, NO_AUTH)
_WAYS_OUT = {
    NO_TLS: "set SILT_TLS_CERT and SILT_TLS_KEY, or name the proxies at which TLS ends in SILT_TRUSTED_PROXIES",
    NO_AUTH: "set SILT_AUTH=on",
}
_MISSING = {NO_TLS: "without TLS", NO_AUTH: "without authentication"}


def insecure_words(text: str) -> frozenset[str]:
    """Reads `SILT_INSECURE`. Raises ValueError for a word that is none of WORDS."""
    given = listed(text)
    for word in given:
        if word not in WORDS:
            raise ValueError(f"{word!r} is none of its words: {', '.join(WORDS)}")
    return frozenset(given)


def is_loopback(host: str) -> bool:
    """Says whether only this machine reaches what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def missing(host: str, *, tls: bool, auth: bool) -> list[str]:
    """Lists what of WORDS a server that listens on `host` would have to be waived."""
    if is_loopback(host):
        return []
    return [word for word, has in ((NO_TLS, tls), (NO_AUTH, auth)) if not has]


def check_exposure(host: str, lacks: Iterable[str], waived: Iterable[str]) -> None:
    """Raises ConfigError where something is missing that was not waived; it says each way out."""
    open_doors = [word for word in lacks if word not in waived]
    if not open_doors:
        return
    without = " and ".join(_MISSING[word] for word in open_doors)
    words = ",".join(word for word in WORDS if word in {*open_doors, *waived})
    ways = "; ".join(_WAYS_OUT[word] for word in open_doors)
    raise ConfigError(
        f"{host} can be reached from other machines, {without}: {ways}. Or listen on 127.0.0.1, or, where the network "
        f"itself keeps strangers out, set SILT_INSECURE={words}"
    )
