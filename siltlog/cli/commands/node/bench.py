"""`silt bench`."""

import uuid
from dataclasses import asdict
from typing import Any

import click

from siltlog.cli.output import grid, waiting
from siltlog.cli.session import Session, client_options, pass_session

COLUMNS = ("what", "records_per_second", "mib_per_second", "p50_ms", "p99_ms")


@click.command(epilog="Example:  silt bench --records 500000 --record-bytes 1000")
@click.option("--records", "-n", type=click.IntRange(1), default=200_000, show_default=True, help="To publish, twice.")
@click.option("--record-bytes", type=click.IntRange(16), default=100, show_default=True, help="Of each value.")
@click.option("--partitions", "-p", type=click.IntRange(1), default=4, show_default=True, help="Of the topic.")
@click.option(
    "--acks",
    type=click.Choice(["written", "wal", "object", "table"]),
    default="wal",
    show_default=True,
    help="When a record counts.",
)
@client_options
@pass_session
def bench(session: Session, records: int, record_bytes: int, partitions: int, acks: Any) -> None:
    """Measure the server from here: how fast it is published to and read from, and how soon records arrive.

    Makes a topic for it, reads back and counts what it published, and deletes the topic. One process with the client
    library is the other half of what is measured; several at once load a server more.
    """
    from siltlog.cli.trial import Trial
    from siltlog.infra.clock import SystemClock

    name = f"bench-{uuid.uuid4().hex[:8]}"
    with session.admin() as admin:
        admin.create_topic(name, partitions, {"acks": "object"} if acks == "object" else None)
        try:
            trial = Trial(
                session.url, session.credentials, name, partitions, records, record_bytes, acks, SystemClock()
            )
            with waiting("measuring"):
                rows = [asdict(measured) for measured in trial.run()]
        finally:
            admin.delete_topic(name)
    session.output.document(
        {"records": records, "record_bytes": record_bytes, "partitions": partitions, "acks": acks, "measured": rows},
        value=[f"{row['records_per_second']} {row['what']}" for row in rows],
        tables=[grid(rows, COLUMNS, numbers=COLUMNS[1:])],
    )
