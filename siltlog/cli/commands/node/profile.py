"""`silt profile`."""

from pathlib import Path
from typing import Literal

import click

from siltlog.cli.output import pairs
from siltlog.cli.session import Session, client_options, pass_session

EPILOG = """\b
Examples:
  silt profile cpu --seconds 20      then drop the file on https://www.speedscope.app
  silt profile tasks --file -        what its tasks wait for, at once"""


@click.command(epilog=EPILOG)
@click.argument("kind", type=click.Choice(("cpu", "memory", "tasks")))
@click.option(
    "--seconds", type=click.FloatRange(0.1, 60), default=10.0, show_default=True, help="How long; tasks looks once."
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Where to write it; - is standard output. Default: silt-profile-KIND.json",
)
@client_options
@pass_session
def profile(session: Session, kind: Literal["cpu", "memory", "tasks"], seconds: float, path: str | None) -> None:
    """Ask a server what it is at: where its threads are, what its memory grows by, or what its tasks wait for.

    The server must have been started with SILT_DEBUG=on; who asks needs admin on the cluster.
    """
    import msgspec

    with session.admin() as admin:
        document = admin.profile(kind, seconds)
    text = msgspec.json.format(msgspec.json.encode(document), indent=-1 if kind == "cpu" else 1)
    if path == "-":
        click.echo(text.decode())
        return
    file = Path(path or f"silt-profile-{kind}.json")
    file.write_bytes(text)
    session.output.document(
        {"file": str(file), "kind": kind}, value=[str(file)], tables=[pairs({"file": str(file), "kind": kind})]
    )
