"""`silt publish`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
import xxhash

from siltlog.cli.output import grid, publish_progress
from siltlog.cli.records.location import checked, content_mark
from siltlog.cli.records.record_shape import RecordShape
from siltlog.cli.session import RETRY_MS, Session, client_options, pass_session
from siltlog.infra.client.bodies.json_rows import pointer_parts
from siltlog.infra.client.rate import Pace
from siltlog.infra.clock import SystemClock, parse_us
from siltlog.infra.errors import SiltlogError, of_the_record

if TYPE_CHECKING:
    from siltlog.cli.records.publish_input import Input
    from siltlog.infra.client.resumable import Publication

STANDARD_INPUT = "-"
KINDS = ("ndjson", "csv", "parquet", "lines")
EPILOG = """\b
Examples:
  silt publish events '{"hello": "world"}' --key greeting
  tail -f app.log | silt publish logs -
  silt publish flights --file flights.csv.gz --key-from carrier
  silt publish events --file events.ndjson --key-from /user/id --timestamp-from /at
  silt publish events --file s3://bucket/day.parquet --value-from body --key-from id
  silt consume events -o json | silt publish copy - --lines record"""


def _time(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_us(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
    "a path, or a location such as s3://bucket/day.parquet. gzip and zstd are inflated.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(KINDS),
    help="What a file or standard input holds, where its name does not say.",
)
@click.option("--lines", type=click.Choice(("value", "record")), help="What a line or row is: a value, or a record.")
@click.option("--key", "-k", help="The key of every record.")
@click.option(
    "--key-from",
    metavar="COLUMN|POINTER",
    help="Take each key from the value: the name of a column or member, or a JSON Pointer such as /user/id.",
)
@click.option("--value-from", metavar="COLUMN", help="Of CSV and Parquet: publish this column alone, as it is.")
@click.option("--timestamp", "timestamp_us", metavar="TIME", callback=_time, help="The time of every record.")
@click.option("--timestamp-from", metavar="COLUMN|POINTER", help="Take each time from the value, as --key-from does.")
@click.option("--header", "-H", multiple=True, metavar="NAME=TEXT", help="A header of every record; repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Publish to this partition, whatever the key.")
@click.option(
    "--acks",
    type=click.Choice(("written", "wal", "object", "table")),
    help="When a record counts as published; else the topic's.",
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many records a second.")
@click.option(
    "--skip", type=click.IntRange(0), default=0, metavar="RECORDS", help="Leave out so many at the beginning."
)
@click.option(
    "--resume/--no-resume",
    default=True,
    help="Go on where an earlier run with this file stopped (default), or publish all of it again.",
)
@client_options
@pass_session
def publish(
    session: Session,
    /,
    topic: str,
    values: tuple[str, ...],
    file: str | None,
    kind: str | None,
    acks: str | None,
    rate: float | None,
    skip: int,
    resume: bool,
    **shape: Any,
) -> None:
    """Publish records to TOPIC: VALUES one each, the lines of standard input with `-`, or a --file.

    Every record is acknowledged, in order and once, before the command ends. A --file that was interrupted goes on
    where it stopped when the same command is run again.
    """
    wanted = shape_of(**shape)
    source = _source(values, file, kind, wanted)
    mark = content_mark(file) if file is not None and resume else None
    producer_id = None if mark is None else producer_of(mark, kind, skip, wanted)
    clock = SystemClock()
    started = clock.monotonic()
    pace = Pace(rate, clock)
    with publication_of(session, topic, acks, pace, producer_id) as publication:
        try:
            with publish_progress(topic, source.total) as show:
                send(publication, source, skip, pace, show, gather=mark is None, shape=wanted)
        except KeyboardInterrupt:
            if mark is not None:
                before = publication.count + publication.already
                session.output.note(f"\ninterrupted after {before} records; the same command goes on where it stopped")
            raise
        _report(session, publication, source, skip, clock.monotonic() - started)


def shape_of(header: tuple[str, ...], lines: Literal["value", "record"] | None, **options: Any) -> RecordShape:
    for one, other in (("key", "key_from"), ("timestamp_us", "timestamp_from")):
        if options[one] is not None and options[other] is not None:
            name = one.removesuffix("_us")
            raise click.UsageError(
                f"--{name} and --{name}-from exclude each other: is there one {name}, or one in each value?"
            )
    if lines == "record":
        for name in ("key", "key_from", "value_from", "timestamp_us", "timestamp_from"):
            if options[name] is not None:
                flag = name.removesuffix("_us").replace("_", "-")
                raise click.UsageError(f"with --lines record each record says that itself; leave out --{flag}")
    for name in ("key_from", "timestamp_from"):
        options[name] = None if options[name] is None else tuple(pointer_parts(options[name]))
    return RecordShape(headers=tuple(_header(entry) for entry in header), lines=lines or "value", **options)


def _source(values: tuple[str, ...], file: str | None, kind: Any, shape: RecordShape) -> "Input":
    from siltlog.cli.records.publish_input import from_arguments, from_file, from_stream

    if file is not None:
        if values:
            raise click.UsageError("give values or a --file, not both")
        return from_file(file, kind, shape)
    if not values:
        raise click.UsageError("nothing to publish: give values, `-` for the lines of standard input, or --file")
    if values == (STANDARD_INPUT,):
        # Not sys.stdin's own buffer: the interpreter could not end while a thread waits in it.
        stream = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115
        return from_stream(stream, kind or "lines", shape)
    if kind is not None:
        raise click.UsageError("--format is for a --file or standard input")
    return from_arguments(values, shape)


def _header(entry: str) -> tuple[str, str]:
    name, equals, text = entry.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{entry!r} is not NAME=TEXT, such as source=demo", param_hint="--header")
    return name, text


def producer_of(mark: str, *made: Any) -> str:
    """The same for the same content of which the same records are made."""
    what = msgspec.json.encode([mark, *made])
    return f"file-{xxhash.xxh3_128_hexdigest(what)}"


@contextmanager
def publication_of(
    session: Session,
    topic: str,
    acks: str | None,
    pace: Pace,
    producer_id: str | None,
    *,
    begun: bool = False,
    stored: bool = False,
) -> "Iterator[Publication]":
    """`begun`: the server was there before, so it is waited for from the beginning. `stored`: the records come from a
    log, whose times are what they are."""
    from siltlog.infra.client import resumable
    from siltlog.infra.client.bodies.arrow_body import compression_for
    from siltlog.infra.client.endpoints import Endpoints
    from siltlog.infra.client.transport import Caller

    # No server: say so now, rather than when the time for retries is over.
    with session.admin(resumable.RETRY_MS if begun else RETRY_MS) as admin:
        limits = admin.cluster()["limits"]
    endpoints = Endpoints(session.url)
    options = resumable.Options(
        acks,
        compression_for(endpoints, "auto"),
        request_bytes=int(limits["request_bytes"] * 0.9),
        records_max=pace.records_max,
        stored=stored,
    )
    with closing(session.transport()) as transport:
        yield resumable.Publication(
            Caller(endpoints, transport, SystemClock(), retry_timeout_ms=resumable.RETRY_MS),
            topic,
            options,
            producer_id,
        )


def send(
    publication: "Publication",
    source: "Input",
    skip: int,
    pace: Pace,
    show: Callable[[int, int, int], None],
    *,
    gather: bool,
    shape: RecordShape,
    again: str = "",
) -> None:
    """All of the source. Raises the error of the record that was refused, which says what became of the others.

    `again` is the command that goes on behind it with --skip, where that is not the one that ran.
    """
    from siltlog.cli.records.publish_input import NUMBER, BadRecord, refusal
    from siltlog.infra.client.bodies.chunks import ReadAhead, chunked, skipped
    from siltlog.infra.client.resumable import Stopped

    runs = skipped(source.runs, skip)
    ahead = ReadAhead(runs if gather else chunked(runs), source.position)
    try:
        for chunk in ahead.chunks(gather=gather):
            try:
                for records in publication.publish(chunk.table):
                    pace.wait(records)
                    show(publication.count, publication.already, chunk.position)
            except Stopped as stopped:
                number = chunk.table[NUMBER][stopped.row].as_py()
                refused = refusal(
                    source,
                    BadRecord(number, shape.in_words(of_the_record(stopped.error))),
                    _rest(publication, skip, again),
                )
                refused.error_code, refused.request_id = stopped.error.error_code, stopped.error.request_id
                raise refused from stopped
            show(publication.count, publication.already, chunk.position)
    except BadRecord as bad:
        raise refusal(source, bad, _rest(publication, skip, again, placed=bad.number is not None)) from bad
    except SiltlogError as error:
        if error.error_code == "fenced_producer":
            error.detail = "another run of the same command has taken over, and goes on with it"
        raise
    finally:
        ahead.stop()


def _rest(publication: "Publication", skip: int, again: str, *, placed: bool = True) -> str:
    """`placed`: the bad record is the next one; else it is somewhere after those that are published."""
    before = publication.count + publication.already
    if not before:
        return "nothing was published"
    if placed:
        came = "the one before it is" if before == 1 else f"the {before} before it are"
    else:
        came = "one before it is" if before == 1 else f"{before} before it are"
    return f"{came} published, none after it; mend it and go on with {again}--skip {skip + before}"


def _report(session: Session, publication: "Publication", source: "Input", skip: int, seconds: float) -> None:
    if publication.already:
        session.output.note(
            f"{publication.already} records of {source.name} had been published by an earlier run; "
            "--no-resume publishes them again"
        )
    elif not publication.count:
        session.output.note(f"{source.name} has no {f'more than {skip} ' if skip else ''}records")
    columns = ("partition", "first_offset", "last_offset", "count")
    partitions = [asdict(publication.landed[number]) for number in sorted(publication.landed)]
    session.output.document(
        {
            "topic": publication.topic,
            "count": publication.count,
            "already_published": publication.already,
            "seconds": round(seconds, 3),
            "partitions": partitions,
        },
        value=[publication.count],
        tables=[grid(partitions, columns, numbers=columns)],
    )
