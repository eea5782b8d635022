"""`silt health`."""

from typing import Any

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session
from siltlog.infra.errors import SiltlogError


@click.command(epilog="Example:  silt health && echo ready")
@client_options
@pass_session
def health(session: Session) -> int:
    """Ask each server of --url whether it can acknowledge records; exit status 3, with each reason, when none can."""
    from siltlog.infra.client.endpoints import Endpoints

    transport = session.transport()
    servers: list[dict[str, Any]] = []
    silent: list[SiltlogError] = []
    try:
        for url in Endpoints(session.url).urls:
            try:
                servers.append(_asked(transport, url))
            except SiltlogError as error:
                silent.append(error)
                servers.append({"url": url, "ready": False, "reasons": [error.detail], "warnings": []})
    finally:
        transport.close()
    if len(silent) == len(servers):
        raise silent[0]
    ready = [one for one in servers if one["ready"]]
    said = [
        {"server": one["url"], "what": what, "why": why}
        for one in servers
        for what, why in [*(("not ready", why) for why in one["reasons"]), *(("warning", w) for w in one["warnings"])]
    ]
    columns = ("server", "what", "why") if len(servers) > 1 else ("what", "why")
    session.output.document(
        {**(ready or servers)[0], "servers": servers},
        value=["ready" if ready else "not ready"],
        tables=[
            *(pairs({"server": one["url"], "ready": "yes" if one["ready"] else "no"}) for one in servers),
            *([grid(said, columns)] if said else []),
        ],
    )
    return 0 if ready else EXIT_FOUND_WRONG


def _asked(transport: Any, url: str) -> dict[str, Any]:
    """What a server says of itself. Raises SiltlogError where none answers there."""
    from siltlog.doctor.readiness import readiness
    from siltlog.infra.client.core import ConnectionFailed, connection_error

    try:
        ready, reasons, warnings, _ = readiness(transport, url)
    except ConnectionFailed as failed:
        raise connection_error(failed, url) from None
    return {"url": url, "ready": ready, "reasons": reasons, "warnings": warnings}
