"""Proxies at which TLS ends, and what they say of the requests they pass on. Pure.

A proxy appends the address it took a request from to `X-Forwarded-For`, so only what trusted proxies appended is known:
the caller is the first address from the right that is none of theirs. Anybody else could have written the rest.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from siltlog.infra.locations import Network

FOR = b"x-forwarded-for"
PROTO = b"x-forwarded-proto"


class Forwarded(NamedTuple):
    """Where a request comes from: the caller's address, and the scheme it used."""

    address: str
    scheme: str


class Proxies:
    """The proxies of `SILT_TRUSTED_PROXIES`."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks: Sequence[Network] = tuple(networks)

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
