"""`silt demo`."""

import sys
from pathlib import Path

import click

from siltlog.cli.output import error_console, show
from siltlog.cli.session import EXIT_FAILED, Session, needs, output_option, pass_session
from siltlog.infra.clock import SystemClock

FLIGHTS = 336_776


@click.command(epilog="Example:  silt demo --data-dir ./silt-demo")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("silt-demo"),
    show_default=True,
    help="Where the demo's server keeps everything; made anew each time, and kept for you to look at.",
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The server's port; default: a free one.")
@click.option(
    "--records",
    type=click.IntRange(1_000, FLIGHTS),
    default=FLIGHTS,
    show_default=True,
    help="How many flights; fewer are quicker.",
)
@output_option
@pass_session
def demo(session: Session, data_dir: Path, port: int, records: int) -> int:
    """Send a year of real flights through the whole system, and kill the server in the middle.

    Publishes over HTTP, reads with a consumer group, settles into a Delta table, counts, compacts and queries that
    with Spark; then says whether anything was lost. Exit status 1 when a check fails.
    """
    with needs("demo", "silt demo"):
        from siltlog.demo.run import Plan, run
        from siltlog.demo.stage import Stage
        from siltlog.demo.summary import summary

    clock = SystemClock()
    stage = Stage(error_console(), clock)

    result = run(Plan(data_dir.absolute(), records, port), stage, clock)
    if session.format == "table":
        show(summary(result))
    else:
        session.output.document(result.document(), value=["ok" if result.ok else "failed"])
    sys.stdout.flush()
    return 0 if result.ok else EXIT_FAILED
