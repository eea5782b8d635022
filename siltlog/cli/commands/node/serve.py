"""`silt serve`."""

from typing import Any

import click

from siltlog.cli.server_options import ServerCommand, take_settings
from siltlog.cli.session import needs
from siltlog.server.process import hide_pandas, keep_freed_memory, no_core_dumps

EPILOG = """\b
Examples:
  silt serve
  silt serve --port 0 --data-dir /var/lib/siltlog
  SILT_ROOT=s3://bucket/prefix silt serve"""


@click.command(cls=ServerCommand, epilog=EPILOG)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take partitions that another write-ahead log held and never released; it is fenced, offsets jump ahead.",
)
@click.option("--accept-loss", is_flag=True, help="Start although acknowledged records are missing; they are named.")
def serve(take_over: bool, accept_loss: bool, **settings: Any) -> int:
    """Run a server until it is told to stop.

    Prints `listening on URL` once it can acknowledge. SIGTERM or Ctrl-C: it finishes what it took, flushes, and ends.
    """
    loaded = take_settings(settings, serves=True)
    no_core_dumps()
    keep_freed_memory()
    hide_pandas()
    with needs("server", "silt serve"):
        from siltlog.server.wiring import serve as run_server
    return run_server(loaded, take_over=take_over, accept_loss=accept_loss)
