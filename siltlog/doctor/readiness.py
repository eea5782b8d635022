"""Reads what a server says of itself at `/readyz`."""

from typing import NamedTuple

from siltlog.infra.client.core import error_of, json_request
from siltlog.infra.client.transport import Transport

_ANSWERS = (200, 503)


class Readiness(NamedTuple):
    ready: bool
    reasons: list[str]
    """Why it is not."""
    warnings: list[str]
    date: str
    """The server's time as it says it (RFC 9110 section 6.6.1), to the second; empty where it says none."""


def readiness(transport: Transport, url: str) -> Readiness:
    """Raises ConnectionFailed, SiltlogError or ValueError where what answers is no Siltlog server."""
    reply = transport.send(url, json_request("GET", "/readyz"))
    if reply.status not in _ANSWERS and (error := error_of(reply)) is not None:
        raise error
    told = reply.json()
    return Readiness(
        reply.status == 200, told.get("reasons", []), told.get("warnings", []), reply.headers.get("date", "")
    )
