"""The other end of a connection: where it is, how it came, and what it proved while it shook hands."""

import asyncio
import os
import socket
import struct
from typing import Any, NamedTuple

from siltlog.infra.errors import problem
from siltlog.infra.security.certificates import ClientCertificate, client_certificate
from siltlog.infra.security.exposure import is_loopback
from siltlog.infra.security.proxies import Proxies

PEER = "silt.peer"
"""The key of the state of a request's scope that has the peer of its connection."""
KNOWN = "silt.known"
"""The key of that state that has what is called once the request has said who sends it."""
_CREDENTIALS = struct.Struct("3i")
"""What Linux tells of the other end of a Unix socket: process, user, group (unix(7), SO_PEERCRED)."""
_ROOT = 0
_MAPPED = "::ffff:"
"""Begins an address of IPv4 that is written as one of IPv6 (RFC 4291, section 2.5.5.2)."""


class Peer(NamedTuple):
    address: str = ""
    """Empty where there is none: on the socket in the data directory."""
    scheme: str = "http"
    local: bool = False
    """It came by the socket in the data directory, as the user of the server or as root."""
    certificate: ClientCertificate | None = None
    is_proxy: bool = False
    """What it says in X-Forwarded-* counts."""
    in_clear: bool = False
    """Nobody has protected the connection, so that a request counts only where a proxy says it came by https."""


class Peers:
    """Tells who is at the other end. `needs_tls` says that requests in clear text count from this machine only."""

    def __init__(self, proxies: Proxies, *, needs_tls: bool) -> None:
        self.proxies = proxies
        self._needs_tls = needs_tls

    def of(self, transport: asyncio.BaseTransport) -> Peer:
        """Raises Refused `forbidden` for another user of this machine."""
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family == socket.AF_UNIX:
            _check_user(connected)
            return Peer(local=True)
        address = _address(transport)
        is_proxy = bool(self.proxies) and self.proxies.trusts(address)
        handshake = transport.get_extra_info("ssl_object")
        if handshake is None:
            in_clear = self._needs_tls and (is_proxy or not is_loopback(address))
            return Peer(address, is_proxy=is_proxy, in_clear=in_clear)
        shown = handshake.getpeercert(True)
        certificate = client_certificate(shown, handshake.context) if shown else None
        return Peer(address, "https", certificate=certificate, is_proxy=is_proxy)


def _address(transport: asyncio.BaseTransport) -> str:
    named = transport.get_extra_info("peername")
    if not isinstance(named, tuple):
        return ""
    address = str(named[0])
    # On a socket of both families.
    return address.removeprefix(_MAPPED) if "." in address else address


def _check_user(connected: Any) -> None:
    """The socket's mode lets in nobody else; this holds where a mode of sockets does not count."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return
    _, user, _ = _CREDENTIALS.unpack(connected.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    if user not in (os.getuid(), _ROOT):
        raise problem("forbidden", "this socket is for the user that runs the server, and for root")
