"""`silt doctor`."""

import click

from siltlog.cli.output import grid, waiting
from siltlog.cli.server_options import take_settings
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, needs, pass_session


@click.command(epilog="Example:  silt doctor --output value   (only what is wrong)")
@client_options
@pass_session
def doctor(session: Session) -> int:
    """Look for what is wrong, and say what mends it; exit status 3 when something is.

    Looks at the data directory and its disk, Redis, the object store, clocks, Java and Spark, as a server started here
    would find them, and asks the server that runs.
    """
    settings = take_settings({}).settings
    with needs("server", "silt doctor"):
        from siltlog.doctor import examine
        from siltlog.infra.clock import SystemClock
    with waiting("looking"):
        found = [
            {"check": one.check, "state": one.state, "detail": one.detail, "mend": one.mend}
            for one in examine(settings, session.url, SystemClock())
        ]
    wrong = [one for one in found if one["state"] == "wrong"]
    session.output.document(
        {"ok": not wrong, "findings": found},
        value=[f"{one['check']}: {one['detail']}" for one in wrong],
        tables=[grid(found, ("check", "state", "detail", "mend"))],
    )
    return EXIT_FOUND_WRONG if wrong else 0
