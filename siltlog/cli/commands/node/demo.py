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
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="The server's port, or the first of three; default: free."
)
@click.option(
    "--records",
    type=click.IntRange(1_000, FLIGHTS),
    default=FLIGHTS,
    show_default=True,
    help="How many flights; fewer are quicker.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Three nodes: the owner of the busiest topic is killed and loses its disk, then the controller.",
)
@output_option
@pass_session
def demo(session: Session, data_dir: Path, port: int, records: int, cluster: bool) -> int:
    """Send a year of real flights through the whole system, and kill the server in the middle.

    Publishes over HTTP, reads with a consumer group, settles into a Delta table, counts, compacts and queries that
    with Spark; then says whether anything was lost. Exit status 1 when a check fails.

    With --cluster three nodes share a root and need no Java; two of them are killed, lose their disks and come back.
    """
    with needs("demo", "silt demo"):
        from siltlog.demo.cluster.run import ClusterPlan
        from siltlog.demo.cluster.run import run as run_cluster
        from siltlog.demo.cluster.summary import summary as of_cluster
        from siltlog.demo.run import Plan, run
        from siltlog.demo.stage import Stage
        from siltlog.demo.summary import summary

    clock = SystemClock()
    stage = Stage(error_console(), clock)
    folder = data_dir.absolute()
    if cluster:
        nodes = run_cluster(ClusterPlan(folder, records, port), stage, clock)
        ok, ending, document = nodes.ok, of_cluster(nodes), nodes.document()
    else:
        result = run(Plan(folder, records, port), stage, clock)
        ok, ending, document = result.ok, summary(result), result.document()
    if session.format == "table":
        show(ending)
    else:
        session.output.document(document, value=["ok" if ok else "failed"])
    sys.stdout.flush()
    return 0 if ok else EXIT_FAILED
