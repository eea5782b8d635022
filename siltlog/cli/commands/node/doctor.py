"""`silt doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from siltlog.cli.commands.jobs.pipelines import location_options, named_settings
from siltlog.cli.output import grid, waiting
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, needs, pass_session
from siltlog.infra.errors import ConfigError

if TYPE_CHECKING:
    from siltlog.infra.settings.settings import ServerSettings

EPILOG = """\b
Examples:
  silt doctor --output value                   only what is wrong
  silt doctor --bundle help.zip                and a file for whoever you ask for help
  silt doctor --data-dir /var/lib/siltlog --url http://silt:7070"""


@click.command(epilog=EPILOG)
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a zip of what was found, settings, versions, state and the end of logs: no secret, no record.",
)
@location_options
@client_options
@pass_session
def doctor(session: Session, bundle: Path | None, root: str | None, data_dir: Path | None) -> int:
    """Look for what is wrong, and say what mends it; exit status 3 when something is.

    Looks at the data directory and its disk, Redis, the object store, clocks, Java and Spark, as a server started here
    would find them, and asks the server that runs. Where only the client is installed, it asks the server.
    """
    settings = _settings(root, data_dir)
    with needs("server", "silt doctor"):
        from siltlog.doctor import examine
        from siltlog.doctor.bundle import write_bundle
        from siltlog.infra.clock import SystemClock
    with waiting("looking"):
        findings = list(examine(settings, session.url, SystemClock(), session.credentials))
    if bundle is not None:
        write_bundle(bundle, findings, settings, session.url, SystemClock(), session.credentials)
        session.output.note(f"{bundle} has names of topics, groups and hosts; look into it before you give it away")
    found = [{"check": one.check, "state": one.state, "detail": one.detail, "mend": one.mend} for one in findings]
    wrong = [one for one in found if one["state"] == "wrong"]
    session.output.document(
        {"ok": not wrong, "findings": found},
        value=[f"{one['check']}: {one['detail']}" for one in wrong],
        tables=[grid(found, ("check", "state", "detail", "mend"))],
    )
    return EXIT_FOUND_WRONG if wrong else 0


def _settings(root: str | None, data_dir: Path | None) -> "ServerSettings | None":
    """Reads the settings of a server started here; None where none is installed and no option names a part of one."""
    try:
        return named_settings(root, data_dir)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError) and root is None and data_dir is None:
            return None
        raise
