"""The names by which a server may be called, and the origins whose pages may call it.

So no page of a browser reaches it that rebinds its own name to the server's address, and none of another site."""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.security.grant import Caller

HOSTS_KNOWN_MAX = 1_000
HOST_BYTES_MAX = 300
"""A longer one is not remembered: no name of a host with its port is (RFC 1035, section 2.3.4), but a stranger may send
one as long as a head.
"""
_OWN_HEADERS = sorted(value for name, value in vars(names).items() if name.startswith("HEADER_"))
_EXPOSED = ", ".join(
    (*(name for name in _OWN_HEADERS if name.startswith("Silt-") and not name.endswith("-")), "Retry-After")
).encode()


class Admission(NamedTuple):
    """A caller that was let in; `fields` go with the answer, so that its page may read it."""

    fields: tuple[tuple[bytes, bytes], ...] = ()


_PLAIN = Admission()


class Origins:
    """Remembers by which names it was called."""

    def __init__(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """`hosts` are names (without port) by which the server may be called besides loopback."""
        self.reconfigure(hosts, origins)

    def reconfigure(self, hosts: Iterable[str], origins: Iterable[str]) -> None:
        """The next request is asked by these names, and answered to pages of these origins."""
        self._hosts = {host.lower() for host in hosts}
        self._origins = set(origins)
        self._known: dict[bytes, bool] = {}

    def known(self, host: bytes) -> Admission | None:
        """The admission of a caller with this `Host` and no origin, where `admit` has allowed it before; else None."""
        return _PLAIN if self._known.get(host) else None

    def admit(self, caller: Caller) -> Admission:
        """Raises Refused `unknown_host` or `origin_not_allowed`."""
        if caller.local:
            # No page of a browser reaches the socket, and by which name it was called there means nothing.
            return _PLAIN
        host = caller.host
        allowed = self._known.get(host)
        if allowed is None:
            allowed = self._may_be_called(host.decode("latin-1"))
            if len(host) <= HOST_BYTES_MAX:
                if len(self._known) >= HOSTS_KNOWN_MAX:
                    self._known.clear()
                self._known[host] = allowed
        if not allowed:
            raise problem(
                "unknown_host",
                f"this server is not called {host.decode('latin-1')[:200]!r}; add the name to SILT_HOSTS if it is",
            )
        if caller.origin is None:
            return _PLAIN
        origin = caller.origin.decode("latin-1")
        if origin not in self._origins and not caller.has_own_origin:
            raise problem(
                "origin_not_allowed", f"pages of {origin[:200]!r} may not call this server; see SILT_CORS_ORIGINS"
            )
        return Admission(self.fields(caller))

    def fields(self, caller: Caller) -> tuple[tuple[bytes, bytes], ...]:
        """Gives what lets a page read the answer, a refusal too; nothing for one that may not."""
        origin = caller.origin
        if origin is None or origin.decode("latin-1") not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def _may_be_called(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name = (parts.hostname or "").lower()
            # Asked for because it raises where more follows than a port.
            _ = parts.port
        except ValueError:
            return False
        if parts.netloc != host or "@" in host:
            return False
        if name in ("localhost", "") or name in self._hosts:
            # HTTP/1.0 has no Host; a browser always sends one.
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A page that rebinds its own name to this address still sends that name, never an address.
        return address.is_loopback or name in self._hosts or bool(self._hosts & {"0.0.0.0", "::"})  # noqa: S104
