"""`silt consume`."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from siltlog.cli.records.header import Header, header_option
from siltlog.cli.records.place import EARLIEST, LATEST, PLACES, Place, place
from siltlog.cli.records.records import RecordPrinter
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.clock import format_us
from siltlog.infra.errors import problem
from siltlog.infra.records import counted

if TYPE_CHECKING:
    from siltlog.consumers.library.consumer import Consumer
    from siltlog.consumers.library.record import ConsumerRecord
    from siltlog.infra.arrow.record_filter import RecordFilter
    from siltlog.infra.client.admin import Admin

POLL_RECORDS = 100_000
POLL_MS = 1_000
EPILOG = """\b
Examples:
  silt consume events
  silt consume events --from -5
  silt consume events --from 1h --contains error --follow
  silt consume events --group reporting --output json | jq .value
  silt consume events --partition 0 --from 1000 --until 2000 --output value"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.option("--group", "-g", help="Read as a member of this group: go on where it was, and commit what is printed.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this; repeatable.")
@click.option("--key", "-k", help="Only records with this key.")
@click.option("--contains", help="Only records whose value contains this text.")
@header_option
@click.option(
    "--from",
    "start",
    metavar=f"{EARLIEST}|{LATEST}|{PLACES}",
    callback=place(EARLIEST, LATEST),
    default=EARLIEST,
    show_default=True,
    help="Where to begin; -5: so many offsets before the end of each partition; 1h: so long ago. For a group: where it "
    "begins when it is new.",
)
@click.option(
    "--until",
    "end",
    metavar=PLACES,
    callback=place(LATEST),
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
    header: Header | None,
    start: Place | str,
    end: Place | str | None,
    max_records: int | None,
    follow: bool,
) -> None:
    """Print the records of TOPIC, in order within each partition.

    Ends where the partitions ended when it began, unless --follow. With --output json each line is a record as HTTP
    gives it; with --output value it is the bare value, and tombstones are left out.
    """
    if group is not None:
        _check_group(group, partitions, start, end)
    if follow and end is not None:
        raise click.UsageError("--follow never ends, and --until says where to end; choose one")
    if start == LATEST and not follow and group is None:
        raise click.UsageError("nothing comes after the latest record unless you wait for it: add --follow")
    opened = _opened(session, topic, group, partitions, start, end, follow)
    if opened is None:
        session.output.note("There are no such records; --follow waits for some.")
        return
    consumer, ends = opened
    wanted = _filter(key, contains, header)
    printer = RecordPrinter(session.format)
    # What is committed must have been seen, and a follower must see it now; all else is faster in large writes.
    flush_each = follow or group is not None or sys.stdout.isatty()
    count = 0
    with consumer:
        found: Iterator[ConsumerRecord]
        if group is not None:
            found = (record for record in consumer if wanted.takes(record.key, record.value, record.headers))
        else:
            found = _found(consumer, topic, ends, wanted, max_records)
        for count, record in enumerate(found, 1):
            printer.print(record)
            if flush_each:
                printer.flush()
            if count == max_records:
                if group is not None:
                    consumer.commit(record)  # nothing after it is asked for, so it is not yet done
                break
    if not count and group is not None:
        session.output.note(f"The group {group} has read all there is; --follow waits for more.")
    elif not count:
        session.output.note("There are no such records; --follow waits for some.")


def _check_group(group: str, partitions: tuple[int, ...], start: Place | str, end: Place | str | None) -> None:
    given = {"--partition": partitions, "--until": end, "--from": isinstance(start, Place)}
    wrong = " and ".join(name for name, value in given.items() if value)
    if wrong:
        raise click.UsageError(
            f"a group decides what is read and where: leave out {wrong}, or --group; "
            f"`silt group reset {group}` moves where it goes on"
        )


def _filter(key: str | None, contains: str | None, header: Header | None) -> "RecordFilter":
    from siltlog.infra.arrow.record_filter import RecordFilter

    name, value = header or (None, None)
    texts = [None if text is None else text.encode() for text in (key, contains, value)]
    return RecordFilter(texts[0], texts[1], name, texts[2])


def _opened(
    session: Session,
    topic: str,
    group: str | None,
    chosen: tuple[int, ...],
    start: Place | str,
    end: Place | str | None,
    follow: bool,
) -> "tuple[Consumer, Mapping[int, int] | None] | None":
    """The consumer at its places, and where each partition ends, where this says it; None: nothing to read."""
    from siltlog.infra.client.record import TopicPartition

    with session.admin() as admin:
        bounds = {entry["partition"]: entry for entry in admin.offsets(topic)}
        unknown = sorted(set(chosen) - bounds.keys())
        if unknown:
            raise problem(
                "unknown_partition", f"{topic} has no partition {unknown[0]}; it has {len(bounds)}, numbered from 0"
            )
        if group is not None:
            stop_at = None if follow else LATEST
            return session.consumer(group=group, topics=[topic], auto_offset_reset=start, stop_at=stop_at), None
        places = {partition: bounds[partition] for partition in sorted(set(chosen)) or bounds}
        starts = _offsets(admin, topic, start, places)
        if isinstance(start, Place) and start.offset is not None:
            _note_offset_beyond(session, start.offset, max(bound["high_watermark"] for bound in places.values()))
        untils = _offsets(admin, topic, end, places)
    ends = None
    if not follow:
        ends = {p: min(untils.get(p, bound["high_watermark"]), bound["high_watermark"]) for p, bound in places.items()}
        ends = {p: at for p, at in ends.items() if max(starts.get(p, 0), places[p]["log_start_offset"]) < at}
        places = {partition: places[partition] for partition in ends}
    if not places:
        return None
    assign = [TopicPartition(topic, partition) for partition in places]
    reset = start if isinstance(start, str) else EARLIEST
    consumer = session.consumer(assign=assign, auto_offset_reset=reset)
    for partition, bound in places.items():
        if partition in starts:
            offset = min(max(starts[partition], bound["log_start_offset"]), bound["high_watermark"])
            consumer.seek(topic, partition, offset=offset)
    return consumer, ends


def _note_offset_beyond(session: Session, offset: int, end: int) -> None:
    if offset > end:
        session.output.note(f"No partition has an offset {offset} yet, the longest ends at {end}.")


def _offsets(
    admin: "Admin", topic: str, place: Place | str | None, bounds: Mapping[int, Mapping[str, int]]
) -> dict[int, int]:
    """Finds the offset that `place` means in each partition of `bounds`; none for a word."""
    if not isinstance(place, Place):
        return {}
    if place.time_us is not None:
        return {entry["partition"]: entry["offset"] for entry in admin.offsets(topic, format_us(place.time_us))}
    assert place.offset is not None
    return {partition: counted(place.offset, bound["high_watermark"]) for partition, bound in bounds.items()}


def _found(
    consumer: "Consumer", topic: str, ends: Mapping[int, int] | None, wanted: "RecordFilter", max_records: int | None
) -> "Iterator[ConsumerRecord]":
    """The wanted records below the ends, until every partition is there; without ends for ever."""
    import numpy as np
    import pyarrow as pa

    from siltlog.consumers.library.record import records_of
    from siltlog.infra.arrow.arrays import numbers_of

    # What is looked through comes in large pieces.
    at_once = max_records if max_records is not None and not wanted else POLL_RECORDS
    while ends is None or any(consumer.position(topic, partition) < end for partition, end in ends.items()):
        # Each of these batches is of one partition.
        for batch in consumer.poll_arrow(min(at_once, POLL_RECORDS), POLL_MS).to_batches():
            partition = batch.column("partition")[0].as_py()
            if ends is not None:
                offsets = numbers_of(batch.column("offset"), np.int64)
                batch = batch.slice(0, int(np.searchsorted(offsets, ends[partition])))
            yield from records_of(topic, partition, pa.Table.from_batches([wanted.of(batch)]))
