"""`silt top`."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.activity import Look, cost_of, group_rows, topic_rows
from siltlog.cli.output import grid
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.client import calls
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.costs import Asked, asked

if TYPE_CHECKING:
    from rich.table import Table

    from siltlog.infra.client.admin import Admin
    from siltlog.infra.clock import Clock

TOPIC_COLUMNS = ("topic", "records_per_second", "records", "bytes", "files", "behind_table")
GROUP_COLUMNS = ("group", "state", "members", "records_per_second", "lag", "lag_seconds")
COST_COLUMNS = (
    "writes_per_second",
    "reads_per_second",
    "requests_dollars_per_month",
    "storage_dollars_per_month",
)
EPILOG = """\b
Examples:
  silt top
  silt top --count 2 --output json | jq '.topics[] | {topic, records_per_second}'"""


@click.command(epilog=EPILOG)
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option(
    "--count", "-n", type=click.IntRange(1), help="End after so many looks. Default: never; 2 where nobody watches."
)
@client_options
@pass_session
def top(session: Session, interval: float, count: int | None) -> None:
    """Watch what is published and consumed: rates, files, what tables do not have yet, how far groups are behind.

    The last line says what S3 takes a month for requests at the present rate, of the server that is asked, and for the
    files of all tables.

    On a terminal it is drawn anew at each look; elsewhere each look is printed. The first knows no rates.
    """
    from siltlog.infra.clock import SystemClock

    watched = session.format == "table" and sys.stdout.isatty()
    count = count if count is not None or watched else 2
    with session.admin() as admin, _screen(watched) as screen:
        for topics, groups, cost in _looks(session, admin, SystemClock(), interval, count):
            if screen is not None:
                screen.update(_drawn(topics, groups, cost), refresh=True)
                continue
            session.output.document(
                {"topics": topics, "groups": groups, "cost": cost},
                value=[f"{row['topic']} {row['records_per_second'] or 0}" for row in topics],
                tables=_tables(topics, groups, cost),
            )


def _looks(
    session: Session, admin: "Admin", clock: "Clock", interval: float, count: int | None
) -> Iterator[tuple[Any, Any, Any]]:
    before: Look | None = None
    looks = 0
    while True:
        groups = []
        for listed in admin.groups():
            try:
                groups.append(admin.group(listed["group"]))
            except SiltlogError as error:
                # Ended between the two questions.
                if error.error_code != "unknown_group":
                    raise
        now = Look(clock.monotonic(), admin.topics(), groups, _asked(session))
        yield topic_rows(before, now), group_rows(before, now), cost_of(before, now)
        before, looks = now, looks + 1
        if looks == count:
            return
        clock.sleep(interval)


def _asked(session: Session) -> Asked | None:
    try:
        return asked(session.call(calls.metrics()))
    except SiltlogError:
        # Not everybody who may list topics may see them.
        return None


def _screen(watched: bool) -> Any:
    if not watched:
        return nullcontext()
    from rich.live import Live

    return Live(screen=True, auto_refresh=False)


def _drawn(topics: list[dict[str, Any]], groups: list[dict[str, Any]], cost: dict[str, Any]) -> Any:
    from rich.console import Group

    return Group(*_tables(topics, groups, cost))


def _tables(topics: list[dict[str, Any]], groups: list[dict[str, Any]], cost: dict[str, Any]) -> "list[Table]":
    return [
        grid(topics, TOPIC_COLUMNS, numbers=TOPIC_COLUMNS[1:]),
        grid(groups, GROUP_COLUMNS, title="", numbers=GROUP_COLUMNS[2:]),
        grid([cost], COST_COLUMNS, title="", numbers=COST_COLUMNS),
    ]
