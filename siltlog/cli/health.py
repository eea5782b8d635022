"""`silt health`."""

from typing import Any

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError


@click.command(epilog="Example:  silt health && echo ready")
@client_options
@pass_session
def health(session: Session) -> int:
    """Ask whether the server can acknowledge records; exit status 3, with each reason, when it cannot."""
    from siltlog.infra.client.core import Endpoints, json_request
    from siltlog.infra.client.transport import Caller, HttpTransport

    caller = Caller(Endpoints(session.url), HttpTransport(), SystemClock(), retry_timeout_ms=0)
    reasons: list[Any] = []
    try:
        caller.call(json_request("GET", "/readyz"))
    except SiltlogError as error:
        if error.status is None:
            raise
        reasons = error.members.get("reasons") or [error.detail]
    document = {"url": session.url, "ready": not reasons, "reasons": reasons}
    session.output.document(
        document,
        value=["ready" if not reasons else "not ready"],
        tables=[
            pairs({"server": session.url, "ready": "yes" if not reasons else "no"}),
            *([grid([{"reason": reason} for reason in reasons], ("reason",))] if reasons else []),
        ],
    )
    return EXIT_FOUND_WRONG if reasons else 0
