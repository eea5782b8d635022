"""`silt ping`: how long each server takes to answer."""

from statistics import median
from typing import Any

import click

from siltlog.cli.output import grid
from siltlog.cli.session import EXIT_FAILED, Session, client_options, pass_session

COUNT, COUNT_MAX = 5, 1_000
PAUSE_SECONDS = 0.2
PATH = "/healthz"
TIMEOUT_MS = 5_000


@click.command(epilog="Example:  silt ping --url http://n1:7070,http://n2:7070 --count 20")
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=COUNT,
    show_default=True,
    help="How often each server is asked, five times a second.",
)
@client_options
@pass_session
def ping(session: Session, count: int) -> int:
    """Ask each server of --url whether it is there, and how long that takes: nothing is tried again.

    The first answer of each is told apart: it has the time of connecting in it, and with TLS that of shaking hands.
    Exit status 1 when one did not answer each time.
    """
    from siltlog.infra.client.endpoints import Endpoints
    from siltlog.infra.clock import SystemClock

    clock = SystemClock()
    transport = session.transport()
    try:
        rows = []
        for url in Endpoints(session.url).urls:
            took: list[float] = []
            failed = ""
            for number in range(count):
                if number:
                    clock.sleep(PAUSE_SECONDS)
                began = clock.monotonic()
                failed = _asked(transport, url) or failed
                took.append((clock.monotonic() - began) * 1000)
                if failed:
                    break
            rows.append(_row(url, took[:-1] if failed else took, count, failed))
    finally:
        transport.close()
    session.output.document(
        {"servers": rows},
        value=[row["url"] for row in rows if not row["error"]],
        tables=[grid(rows, _COLUMNS, numbers=_COLUMNS[1:-1])],
    )
    return EXIT_FAILED if any(row["error"] for row in rows) else 0


_COLUMNS = ("url", "answered", "first_ms", "min_ms", "median_ms", "max_ms", "error")


def _asked(transport: Any, url: str) -> str:
    """Asks a server once; why it gave no answer, empty where it did."""
    from siltlog.infra.client.core import ConnectionFailed, Request, connection_error, error_of

    try:
        response = transport.send(url, Request("GET", PATH, read_timeout_ms=TIMEOUT_MS))
    except ConnectionFailed as failed:
        return connection_error(failed, url).detail
    error = error_of(response)
    return "" if error is None else error.detail


def _row(url: str, took_ms: list[float], count: int, error: str) -> dict[str, Any]:
    """The first round trip stands alone; the others, where there are some, have a spread."""
    first, others = took_ms[:1], took_ms[1:]
    return {
        "url": url,
        "asked": count if not error else len(took_ms) + 1,
        "answered": len(took_ms),
        "first_ms": round(first[0], 2) if first else None,
        "min_ms": round(min(others), 2) if others else None,
        "median_ms": round(median(others), 2) if others else None,
        "max_ms": round(max(others), 2) if others else None,
        "error": error,
    }
