"""`silt stop`."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from siltlog.cli.output import pairs, waiting
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, output_option, pass_session
from siltlog.infra import names
from siltlog.infra.clock import SystemClock

if TYPE_CHECKING:
    from siltlog.cli.running import Running

LOOK_SECONDS = 0.05
EPILOG = """\b
Examples:
  silt stop
  silt stop --data-dir /var/lib/siltlog --timeout 60
  silt stop --url http://localhost:7070"""


@click.command(epilog=EPILOG)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help=f"The server's data directory; whatever --url says.  [{names.ENV_PREFIX}DATA_DIR]",
)
@click.option("--url", envvar=names.ENV_URL, show_envvar=True, help="Where the server listens, on this machine.")
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds to wait; then the exit status is 3, and the server goes on ending.",
)
@output_option
@pass_session
def stop(session: Session, data_dir: Path | None, url: str | None, seconds: float) -> int:
    """Stop the server of a data directory of this machine, and wait until it has ended.

    It finishes what it took, flushes, and hands over its topics in a cluster, as after SIGTERM. A server that something
    starts again, such as systemd, is stopped by that.
    """
    from siltlog.ingest.data_dir import holder_of

    running = _running(data_dir, url)
    clock = SystemClock()
    began = clock.monotonic()
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(running.pid, signal.SIGTERM)
    with waiting("stopping"):
        while True:
            holder = holder_of(running.data_dir)
            stopped = holder is None or holder.pid != running.pid
            took = clock.monotonic() - began
            if stopped or took >= seconds:
                break
            clock.sleep(LOOK_SECONDS)
    told = {"data_dir": str(running.data_dir), "pid": running.pid, "url": running.url or None, "stopped": stopped}
    session.output.document(
        {**told, "seconds": round(took, 3)},
        value=["stopped" if stopped else "stopping"],
        tables=[pairs({**told, "stopped": "yes" if stopped else "not yet", "seconds": f"{took:.1f}"})],
    )
    if holder is not None and holder.pid != running.pid:
        session.output.note(f"process {holder.pid} uses {running.data_dir} now: something has started the server again")
    return 0 if stopped else EXIT_FOUND_WRONG


def _running(data_dir: Path | None, url: str | None) -> "Running":
    from siltlog.cli.running import server_at, server_of

    if data_dir is not None:
        return server_of(data_dir.absolute())
    if url is not None:
        return server_at(url)
    from siltlog.cli.server_options import take_settings

    return server_of(take_settings({}).settings.data_dir)
