"""`silt drain`."""

from typing import Any

import click

from siltlog.cli.output import pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session
from siltlog.infra.clock import SystemClock

LOOK_SECONDS = 0.5
_COUNTS = ("in_flight", "unflushed_bytes", "topics_to_move", "groups")


@click.command(epilog="Example:  silt drain --wait && systemctl stop siltlog")
@click.option("--wait", is_flag=True, help="Return once nothing is under way, and all records are in tables.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds to wait; then the exit status is 3.",
)
@click.option("--end", is_flag=True, help="Have the server take publishes again.")
@click.option("--status", is_flag=True, help="Only say how far it is.")
@client_options
@pass_session
def drain(session: Session, wait: bool, seconds: float, end: bool, status: bool) -> int:
    """Have the server that is asked take no publishes and flush, as before an upgrade; its next start takes them again.

    In a cluster it hands over its topics to other nodes. Readers and groups go on. It does not stop the process.
    """
    if end + status + wait > 1:
        raise click.UsageError("--wait, --end and --status exclude each other")
    clock = SystemClock()
    with session.admin() as admin:
        if end:
            state = admin.end_drain()
        elif status:
            state = admin.drain_state()
        else:
            state = admin.drain()
        until = clock.monotonic() + seconds
        while wait and _left(state) and clock.monotonic() < until:
            clock.sleep(LOOK_SECONDS)
            state = admin.drain_state()
    session.output.document(
        state,
        value=["draining" if state["draining"] else "not draining"],
        tables=[pairs({"draining": "yes" if state["draining"] else "no", **{n: state[n] for n in _COUNTS}})],
    )
    return EXIT_FOUND_WRONG if wait and _left(state) else 0


def _left(state: dict[str, Any]) -> int:
    """Counts what there is still to do before the process may stop."""
    left: int = state["in_flight"] + state["unflushed_bytes"] + state["topics_to_move"]
    return left
