"""`silt consume`."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from siltlog.cli.place import EARLIEST, LATEST, Place, place
from siltlog.cli.records import RecordPrinter
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.clock import format_us
from siltlog.infra.errors import problem

if TYPE_CHECKING:
    from siltlog.consumers.consumer import Consumer
    from siltlog.consumers.record import ConsumerRecord
    from siltlog.infra.client.admin import Admin

EPILOG = """\b
Examples:
  silt consume events
  silt consume events --from 2026-11-21T07:36:00Z --contains error --follow
  silt consume events --group reporting --output json | jq .value
  silt consume events --partition 0 --from 1000 --until 2000 --output value"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.option("--group", "-g", help="Read as a member of this group: go on where it was, and commit what is printed.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this; repeatable.")
@click.option("--key", "-k", help="Only records with this key.")
@click.option("--contains", help="Only records whose value contains this text.")
@click.option(
    "--from",
    "start",
    metavar=f"{EARLIEST}|{LATEST}|OFFSET|TIME",
    callback=place(EARLIEST, LATEST),
    default=EARLIEST,
    show_default=True,
    help="Where to begin. For a group: where it begins when it is new.",
)
@click.option(
    "--until",
    "end",
    metavar="OFFSET|TIME",
    callback=place(),
    help="Stop before this offset of each partition, or this time.",
)
@click.option("--max-records", "-n", type=click.IntRange(1), help="Stop after so many.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is published from now on, until Ctrl-C.")
@client_options
@pass_session
def consume(
    session: Session,
    topic: str,
    group: str | None,
    partitions: tuple[int, ...],
    key: str | None,
    contains: str | None,
    start: Place | str,
    end: Place | None,
    max_records: int | None,
    follow: bool,
) -> None:
    """Print the records of TOPIC, in order within each partition.

    Ends where the partitions ended when it began, unless --follow. With --output json each line is a record as HTTP
    gives it; with --output value it is the bare value, and tombstones are left out.
    """
    if group is not None and (partitions or end is not None or isinstance(start, Place)):
        raise click.UsageError(
            "a group decides what is read and where; leave out --partition, --until and --from PLACE"
        )
    if follow and end is not None:
        raise click.UsageError("--follow never ends, and --until says where to end; choose one")
    if start == LATEST and not follow and group is None:
        raise click.UsageError("nothing comes after the latest record unless you wait for it: add --follow")
    consumer, ends = _opened(session, topic, group, partitions, start, end, follow)
    if consumer is None:
        return
    printer = RecordPrinter(session.format)
    # What is committed must have been seen, and a follower must see it now; all else is faster in large writes.
    flush_each = follow or group is not None or sys.stdout.isatty()
    with consumer:
        wanted = _matching(_before(consumer, ends), key, contains)
        for count, record in enumerate(wanted, 1):
            printer.print(record)
            if flush_each:
                printer.flush()
            if count == max_records:
                if group is not None:
                    consumer.commit(record)  # nothing after it is asked for, so it is not yet done
                break


def _opened(
    session: Session,
    topic: str,
    group: str | None,
    chosen: tuple[int, ...],
    start: Place | str,
    end: Place | None,
    follow: bool,
) -> "tuple[Consumer | None, Mapping[int, int] | None]":
    """The consumer at its places, and where each partition ends if that was said; None: nothing to read."""
    from siltlog.infra.client.record import TopicPartition

    with session.admin() as admin:
        bounds = {entry["partition"]: entry for entry in admin.offsets(topic)}
        unknown = sorted(set(chosen) - bounds.keys())
        if unknown:
            raise problem(
                "unknown_partition", f"{topic} has no partition {unknown[0]}; it has {len(bounds)}, numbered from 0"
            )
        stop_at = None if follow else "latest"
        if group is not None:
            return session.consumer(group=group, topics=[topic], auto_offset_reset=start, stop_at=stop_at), None
        places = {partition: bounds[partition] for partition in sorted(set(chosen)) or bounds}
        starts = {} if isinstance(start, str) else _offsets(admin, topic, start)
        ends = None if end is None else _offsets(admin, topic, end)
    if ends is not None:
        places = {
            partition: bound
            for partition, bound in places.items()
            if max(starts.get(partition, 0), bound["log_start_offset"]) < ends[partition]
        }
    if not places:
        return None, ends
    assign = [TopicPartition(topic, partition) for partition in places]
    reset = start if isinstance(start, str) else EARLIEST
    consumer = session.consumer(assign=assign, auto_offset_reset=reset, stop_at=stop_at)
    for partition, bound in places.items():
        if partition in starts:
            offset = min(max(starts[partition], bound["log_start_offset"]), bound["high_watermark"])
            consumer.seek(topic, partition, offset=offset)
    return consumer, ends if ends is None else {partition: ends[partition] for partition in places}


def _offsets(admin: "Admin", topic: str, place: Place) -> dict[int, int]:
    """Of each partition the offset that `place` is."""
    if place.time_us is None:
        assert place.offset is not None
        return {entry["partition"]: place.offset for entry in admin.offsets(topic)}
    return {entry["partition"]: entry["offset"] for entry in admin.offsets(topic, format_us(place.time_us))}


def _before(consumer: "Consumer", ends: Mapping[int, int] | None) -> "Iterator[ConsumerRecord]":
    """The records below the end of their partition, until every partition is there."""
    if ends is None:
        yield from consumer
        return
    left = set(ends)
    for record in consumer:
        if record.offset < ends[record.partition]:
            yield record
        if record.offset >= ends[record.partition] - 1:
            left.discard(record.partition)
            if not left:
                return


def _matching(records: "Iterator[ConsumerRecord]", key: str | None, contains: str | None) -> "Iterator[ConsumerRecord]":
    wanted_key = None if key is None else key.encode()
    wanted_text = None if contains is None else contains.encode()
    for record in records:
        if wanted_key is not None and record.key != wanted_key:
            continue
        if wanted_text is not None and (record.value is None or wanted_text not in record.value):
            continue
        yield record
