"""`silt health`."""

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session


@click.command(epilog="Example:  silt health && echo ready")
@client_options
@pass_session
def health(session: Session) -> int:
    """Ask whether the server can acknowledge records; exit status 3, with each reason, when it cannot."""
    from siltlog.doctor.readiness import readiness
    from siltlog.infra.client.core import ConnectionFailed, connection_error
    from siltlog.infra.client.endpoints import Endpoints

    url = Endpoints(session.url).current
    transport = session.transport()
    try:
        ready, reasons, warnings, _ = readiness(transport, url)
    except ConnectionFailed as failed:
        raise connection_error(failed, url) from None
    finally:
        transport.close()
    said = [{"what": "not ready", "why": why} for why in reasons] + [
        {"what": "warning", "why": why} for why in warnings
    ]
    session.output.document(
        {"url": url, "ready": ready, "reasons": reasons, "warnings": warnings},
        value=["ready" if ready else "not ready"],
        tables=[
            pairs({"server": url, "ready": "yes" if ready else "no"}),
            *([grid(said, ("what", "why"))] if said else []),
        ],
    )
    return 0 if ready else EXIT_FOUND_WRONG
