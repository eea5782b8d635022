"""`silt publish`."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.location import checked
from siltlog.cli.output import grid, progress
from siltlog.cli.publish_input import Input, from_arguments, from_file, from_lines, keyed
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import DeliveryFailed

if TYPE_CHECKING:
    from siltlog.infra.client.delivery import Delivery
    from siltlog.infra.client.producer import Producer

STANDARD_INPUT = "-"
INTERRUPTED_CLOSE_MS = 2_000
EPILOG = """\b
Examples:
  silt publish events '{"hello": "world"}' --key greeting
  tail -f app.log | silt publish logs -
  silt publish flights --file flights.csv --key-from carrier
  silt publish events --file events.ndjson --key-from /user/id --rate 1000"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option(
    "--file",
    "-f",
    "file",
    metavar="FILE",
    callback=checked,
    help="Publish the lines of an .ndjson or .jsonl file, or the rows of a .csv or .parquet file as JSON objects: "
    "a path, or a location such as s3://bucket/day.parquet.",
)
@click.option("--key", "-k", help="The key of every record.")
@click.option(
    "--key-from",
    metavar="COLUMN|POINTER",
    help="Take each key from the value: the name of a column or member, or a JSON Pointer such as /user/id.",
)
@click.option("--header", "-H", multiple=True, metavar="NAME=TEXT", help="A header of every record; repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Publish to this partition, whatever the key.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many records a second.")
@client_options
@pass_session
def publish(
    session: Session,
    topic: str,
    values: tuple[str, ...],
    file: str | None,
    key: str | None,
    key_from: str | None,
    header: tuple[str, ...],
    partition: int | None,
    rate: float | None,
) -> None:
    """Publish records to TOPIC: VALUES one each, the lines of standard input with `-`, or a --file.

    Every record is acknowledged, in order and once, before the command ends.
    """
    if key is not None and key_from is not None:
        raise click.UsageError("--key and --key-from exclude each other: is there one key, or one in each value?")
    source = _source(values, file)
    headers = [_header(entry) for entry in header]
    with session.admin() as admin:
        admin.cluster()  # no server: say so now, rather than when the deliveries time out
    tally = Tally()
    records = _paced(keyed(source.values, key, key_from), rate, SystemClock())
    with session.producer() as producer, progress() as bar:
        task = bar.add_task(f"publishing to {topic}", total=source.total)
        try:
            for key_, value in records:
                producer.send(
                    topic, value, key=key_, headers=headers, partition=partition, on_delivery=tally.on_delivery
                )
                if tally.error is not None:
                    break
                bar.update(task, completed=tally.count)
        except KeyboardInterrupt:
            _give_up(producer)
            raise
    _report(session, topic, tally)


class Tally:
    """What was acknowledged, by partition. Its callback runs on one sender thread: a topic has one."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.failed = 0
        self._partitions: dict[int, dict[str, Any]] = {}

    def on_delivery(self, delivery: "Delivery") -> None:
        error = delivery.exception()
        if error is not None:
            self.error = self.error or error
            self.failed += 1
            return
        metadata = delivery.result()
        self.count += 1
        entry = self._partitions.setdefault(
            metadata.partition,
            {"partition": metadata.partition, "first_offset": metadata.offset, "last_offset": None, "count": 0},
        )
        entry["last_offset"] = metadata.offset
        entry["count"] += 1

    def partitions(self) -> list[dict[str, Any]]:
        return [self._partitions[number] for number in sorted(self._partitions)]


def _source(values: tuple[str, ...], file: str | None) -> Input:
    if file is not None:
        if values:
            raise click.UsageError("give values or a --file, not both")
        return from_file(file)
    if not values:
        raise click.UsageError("nothing to publish: give values, `-` for the lines of standard input, or --file")
    if values == (STANDARD_INPUT,):
        return from_lines(sys.stdin.buffer)
    return from_arguments(values)


def _header(entry: str) -> tuple[str, str]:
    name, equals, text = entry.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{entry!r} is not NAME=TEXT, such as source=demo", param_hint="--header")
    return name, text


def _paced(
    records: Iterator[tuple[str | None, bytes]], rate: float | None, clock: Clock
) -> Iterator[tuple[str | None, bytes]]:
    """The records, none earlier than `rate` a second allows."""
    if rate is None:
        yield from records
        return
    started = clock.monotonic()
    for number, record in enumerate(records):
        clock.sleep(max(0.0, started + number / rate - clock.monotonic()))
        yield record


def _give_up(producer: "Producer") -> None:
    """Ctrl-C: what was sent may still be acknowledged, but nobody waits for long."""
    try:
        producer.close(timeout_ms=INTERRUPTED_CLOSE_MS)
    except DeliveryFailed as error:
        click.echo(f"silt: {error.detail}", err=True)


def _report(session: Session, topic: str, tally: Tally) -> None:
    if tally.error is not None:
        if not tally.count:
            raise tally.error
        raise DeliveryFailed(
            f"{tally.count} records were acknowledged and {tally.failed} were not: {tally.error}",
            failures=(tally.error,),
        ) from tally.error
    columns = ("partition", "first_offset", "last_offset", "count")
    session.output.document(
        {"topic": topic, "count": tally.count, "partitions": tally.partitions()},
        value=[tally.count],
        tables=[grid(tally.partitions(), columns, numbers=columns)],
    )
