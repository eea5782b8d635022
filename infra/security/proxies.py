"""Proxies at which TLS ends, and what they say of the requests they pass on. Pure.

A proxy appends the address it took a request from to `X-Forwarded-For`, so only what trusted proxies appended is known:
the caller is the first address from the right that is none of theirs. Anybody else could have written the rest.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from siltlog.infra.locations import Network, url_prefix

FOR = b"x-forwarded-for"
PROTO = b"x-forwarded-proto"
PREFIX = b"x-forwarded-prefix"


class Forwarded(NamedTuple):
    """Where a request comes from: the caller's address, and the scheme it used."""

    address: str
    scheme: str


class Proxies:
    """The proxies of `SILT_TRUSTED_PROXIES`, and the path of `SILT_PATH_PREFIX` that one leaves before requests."""

    def __init__(self, networks: Iterable[Network], path_prefix: str = "") -> None:
        self._networks: Sequence[Network] = tuple(networks)
        self._path_prefix = path_prefix

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in network for network in self._networks)

    def forwarded(self, address: str, scheme: str, headers: Mapping[bytes, bytes]) -> Forwarded:
        """Reads what the proxy at `address` says; anybody else's fields count for nothing."""
        if not self.trusts(address):
            return Forwarded(address, scheme)
        named = [one.strip() for one in headers.get(FOR, b"").decode("latin-1").split(",") if one.strip()]
        caller = address
        for one in reversed(named):
            caller = one
            if not self.trusts(one):
                break
        said = headers.get(PROTO, b"").decode("latin-1").rpartition(",")[2].strip().lower()
        return Forwarded(caller, said if said in ("http", "https") else scheme)

    def prefix(self, address: str, headers: Mapping[bytes, bytes]) -> str:
        """Gives the path below which browsers find the server: the one that the proxy at `address` says it takes off,
        else the one that it leaves; empty where there is none, or what is said is no path."""
        if PREFIX not in headers or not self.trusts(address):
            return self._path_prefix
        said = headers[PREFIX].decode("latin-1").strip().rstrip("/")
        try:
            return url_prefix(said) or self._path_prefix
        except ValueError:
            return self._path_prefix
