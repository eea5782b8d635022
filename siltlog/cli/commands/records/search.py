"""`silt search`."""

from typing import Any

import click
import msgspec

from siltlog.cli.records.header import Header, header_option
from siltlog.cli.records.place import EARLIEST, LATEST, PLACES, Place, place
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.clock import format_us

SLICE_MS = 1_000
"""How long one request searches; progress is told after each, and another node may take the next."""
SLICE_RECORDS = 1_000
RETRY_MS = 30_000
"""Others who search make room within so long."""
EPILOG = """\b
Examples:
  silt search orders --contains tea
  silt search orders --path /user/id --equals 7 --from 1d
  silt search orders --key ada --partition 0 --from 1000 --until 2000 --output json | jq .value
  silt search orders --producer-id etl-7 --output json | jq .producer.sequence"""


@click.command(epilog=EPILOG)
@click.argument("topic")
@click.option("--key", "-k", help="Only records with this key.")
@click.option("--contains", help="Only records whose value contains this text.")
@header_option
@click.option("--producer-id", help="Only records that this producer published.")
@click.option("--path", metavar="POINTER", help="A JSON Pointer such as /user/id: only values with --equals there.")
@click.option("--equals", metavar="JSON", help="The JSON value at --path; what is no JSON is a text.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="Only this; repeatable.")
@click.option(
    "--from",
    "start",
    metavar=f"{EARLIEST}|{LATEST}|{PLACES}",
    callback=place(EARLIEST, LATEST),
    default=EARLIEST,
    show_default=True,
    help="Where to begin; -5: so many offsets before the end of each partition; 1h: so long ago.",
)
@click.option(
    "--until",
    "end",
    metavar=PLACES,
    callback=place(LATEST),
    help="Stop before this offset of each partition, or this time.",
)
@click.option("--max-records", "-n", type=click.IntRange(1), help="Stop after so many.")
@click.option("--producers", is_flag=True, help="With --output json: say who published each record.")
@client_options
@pass_session
def search(
    session: Session,
    topic: str,
    key: str | None,
    contains: str | None,
    header: Header | None,
    producer_id: str | None,
    path: str | None,
    equals: str | None,
    partitions: tuple[int, ...],
    start: Place | str,
    end: Place | str | None,
    max_records: int | None,
    producers: bool,
) -> None:
    """Find records of TOPIC by key, text, header, producer or member of JSON values; the server looks through them.

    Those that are found are in order within each partition. It ends where the partitions ended when it began. With
    --output json each line is a record as HTTP gives it, and says with --producers or --producer-id who published it;
    with --output value it is the bare value, and tombstones are left out.
    """
    if (path is None) != (equals is None):
        raise click.UsageError("--path says where in the value, and --equals what is there: give both, or neither")
    if producers and session.format != "json":
        raise click.UsageError("--producers says who published each record, and only --output json shows it: add that")
    from siltlog.cli.output import progress
    from siltlog.cli.records.record_lines import consumer_record
    from siltlog.cli.records.records import RecordPrinter
    from siltlog.infra.client import calls

    header_name, header_value = header or (None, None)
    asked: dict[str, Any] = {"key": key, "contains": contains, "path": path}
    asked |= {"header": header_name, "header_value": header_value, "producer_id": producer_id}
    asked = {name: value for name, value in asked.items() if value is not None}
    if producers:
        asked["producers"] = True
    if equals is not None:
        asked["equals"] = _json(equals)
    within: dict[str, Any] = {"from": _place(start)}
    if end is not None:
        within["to"] = _place(end)
    if partitions:
        within["partitions"] = sorted(set(partitions))
    printer = RecordPrinter(session.format)
    count = looked_at = 0
    with progress() as bar:
        task = bar.add_task(f"searching {topic}", total=None)
        while True:
            limit = SLICE_RECORDS if max_records is None else min(SLICE_RECORDS, max_records - count)
            found = session.call(calls.search(topic, {**asked, **within, "limit": limit}, SLICE_MS), RETRY_MS)
            for line in found.records:
                printer.print(consumer_record(topic, line), _producer(line))
            printer.flush()
            count += len(found.records)
            done = found.done
            bar.update(task, completed=looked_at + done["looked_at"], total=looked_at + done["of"])
            looked_at += done["looked_at"]
            if done["next"] is None or count == max_records:
                break
            within = {"from": {"cursor": done["next"]}}
    records = "1 record" if count == 1 else f"{count:,} records"
    session.output.note(f"Looked at {looked_at:,} offsets, found {records}.")


def _producer(line: msgspec.Raw) -> dict[str, Any]:
    """What the record says of its producer, if anything."""
    return {name: value for name, value in msgspec.json.decode(line).items() if name == "producer"}


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _place(said: Place | str) -> dict[str, Any]:
    """The place as HTTP has it."""
    if isinstance(said, str):
        return {"offset": said}
    return {"offset": said.offset} if said.time_us is None else {"timestamp": format_us(said.time_us)}
