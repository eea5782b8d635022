"""`silt import`: many files, each published as `silt publish --file` does one."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import pyarrow as pa

from siltlog.cli.commands.records.publish import producer_of, publication_of, send, shape_of
from siltlog.cli.job_record import recorded
from siltlog.cli.output import grid, publish_progress
from siltlog.cli.records.location import content_mark, files_below, opened, size_of
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.client.rate import Pace
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import problem

if TYPE_CHECKING:
    from siltlog.cli.records.record_shape import RecordShape

FORMATS = ("ndjson", "csv", "parquet")
MARKER, WHOLE = "_export/plan.json", "_export/done.json"
"""Files that `silt export` leaves in a folder: one at its beginning, one at its end."""
DELTA_LOG = "_delta_log/"
COLUMNS = ("file", "rows", "size_bytes", "count", "already_published")
EPILOG = """\b
Examples:
  silt import --topic events backup/events --dry-run
  silt import --topic events backup/events
  silt import --topic events 's3://bucket/events/*.parquet' --lines record
  silt import --topic flights january.csv february.csv.gz --key-from carrier"""


class Found(NamedTuple):
    """A file to import."""

    location: str
    name: str
    """Within what was named: two files of the same content are still two."""
    exported: bool
    partitions: int | None = None
    """How many partitions the topic had that it was exported from, where that is known."""


@dataclass(slots=True)
class Imported:
    """The result of importing a file."""

    file: str
    size_bytes: int
    rows: int = 0
    """Records that it has, as far as it was read."""
    count: int = 0
    """Published by this process."""
    already_published: int = 0


@click.command("import", epilog=EPILOG)
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|PATTERN|URI...")
@click.option("--topic", "-t", required=True, help="The topic to publish to.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="What the files hold, where names do not say.")
@click.option(
    "--lines",
    type=click.Choice(("value", "record")),
    help="What a line or row is: a value, or a record. Default: a record of what silt export wrote, else a value.",
)
@click.option("--by-key", is_flag=True, help="Place records by their keys, whatever partition they say.")
@click.option("--key-from", metavar="COLUMN|POINTER", help="Take each key from the value, as silt publish does.")
@click.option("--value-from", metavar="COLUMN", help="Of CSV and Parquet: publish this column alone, as it is.")
@click.option("--timestamp-from", metavar="COLUMN|POINTER", help="Take each time from the value.")
@click.option("--header", "-H", multiple=True, metavar="NAME=TEXT", help="A header of every record; repeatable.")
@click.option(
    "--acks", type=click.Choice(("written", "wal", "object", "table")), help="When a record counts as published."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many records a second.")
@click.option("--dry-run", is_flag=True, help="Read all of it, say what there is and what is wrong; publish nothing.")
@client_options
@pass_session
def import_files(
    session: Session,
    /,
    sources: tuple[str, ...],
    topic: str,
    kind: Any,
    lines: Any,
    by_key: bool,
    acks: str | None,
    rate: float | None,
    dry_run: bool,
    **shape: Any,
) -> None:
    """Publish the records of files: of folders all of them, in the order of their names.

    They go through the server, each once: an import that was cut short goes on when it is repeated, and files that
    were imported before are passed over.
    """
    found = [one for source in sources for one in _found(source, kind)]
    if not found:
        raise problem("not_found", f"there is nothing to import at {', '.join(sources)}")
    pace = Pace(rate, SystemClock())
    imported: list[Imported] = []
    with recorded(session, None, "import", [topic], dry_run) as recording:
        if not by_key and lines != "value":
            _check_partitions(session, topic, found)
        try:
            for one in found:
                own: Any = lines or ("record" if one.exported else "value")
                wanted = shape_of(**shape, key=None, timestamp_us=None, partition=None, lines=own)
                imported.append(Imported(one.location, size_of(one.location) or 0))
                label = f"{topic} ({len(imported)} of {len(found)})"
                if dry_run:
                    _read(one, kind, wanted, label, imported[-1])
                else:
                    begun = len(imported) > 1
                    _publish(
                        session, topic, one, kind, wanted, acks, pace, label, imported[-1], by_key=by_key, begun=begun
                    )
        finally:
            files = [entry for entry in imported if dry_run or entry.count]
            recording.took(
                topic,
                files=len(files),
                rows=sum(entry.rows if dry_run else entry.count for entry in files),
                size_bytes=sum(entry.size_bytes for entry in files),
            )
    documents = [{name: getattr(entry, name) for name in COLUMNS} for entry in imported]
    document: dict[str, Any] = {"topic": topic, "dry_run": dry_run}
    document |= {name: sum(entry[name] for entry in documents) for name in COLUMNS[1:]}
    document["files"] = documents
    count = document["rows" if dry_run else "count"]
    session.output.document(document, value=[count], tables=[grid(documents, COLUMNS, numbers=COLUMNS[1:])])


def _check_partitions(session: Session, topic: str, found: Sequence[Found]) -> None:
    """Checks, before anything is published, that records of an export can stay in the partitions that they name."""
    counts = {one.partitions for one in found if one.partitions is not None}
    if not counts:
        return
    with session.admin() as admin:
        there = int(admin.topic(topic)["partitions"])
    wanted = max(counts)
    if wanted > there:
        raise problem(
            "invalid_request",
            f"the export is of a topic with {wanted} partitions, and {topic} has {there}; nothing was published: place "
            "its records by their keys (--by-key), or give the topic more partitions",
        )
    if counts != {there}:
        session.output.note(
            f"the export is of a topic with {wanted} partitions, and {topic} has {there}: records keep the partition "
            "that they say, which is not where their keys would be looked for (--by-key)"
        )


def _read(one: Found, kind: Any, wanted: "RecordShape", label: str, entry: Imported) -> None:
    """The file from beginning to end, as it would be published. Raises the error of a record that is none."""
    from siltlog.cli.records.publish_input import BadRecord, from_file, refusal

    source = from_file(one.location, kind, wanted)
    with publish_progress(label, source.total, "reading for") as show:
        try:
            for run in source.runs:
                entry.rows += run.num_rows
                show(entry.rows, 0, source.position())
        except BadRecord as bad:
            raise refusal(source, bad, "nothing was published") from bad


def _publish(
    session: Session,
    topic: str,
    one: Found,
    kind: Any,
    wanted: "RecordShape",
    acks: str | None,
    pace: Pace,
    label: str,
    entry: Imported,
    *,
    by_key: bool,
    begun: bool,
) -> None:
    from siltlog.cli.records.publish_input import from_file

    mark = content_mark(one.location)
    producer_id = None if mark is None else producer_of(mark, one.name, kind, by_key, wanted)
    source = from_file(one.location, kind, wanted)
    if by_key:
        source = replace(source, runs=_without_partitions(source.runs))
    again = f"`silt publish {topic} --file {one.location}` and "
    with publication_of(session, topic, acks, pace, producer_id, begun=begun, stored=one.exported) as publication:
        try:
            with publish_progress(label, source.total) as show:
                send(publication, source, 0, pace, show, gather=mark is None, shape=wanted, again=again)
        finally:
            entry.count, entry.already_published = publication.count, publication.already
            entry.rows = entry.count + entry.already_published


def _found(source: str, kind: str | None) -> Iterator[Found]:
    """Files that `source` names; of a folder those whose names say what they have, or all with a `kind`."""
    below = files_below(source)
    if below is None:
        yield Found(source, source.rpartition("/")[2], exported=False)
        return
    if any(name.startswith(DELTA_LOG) for name in below):
        raise problem(
            "invalid_request",
            f"{source} is a Delta table, whose folder also has files that are no longer part of it; import what was "
            "exported as parquet, ndjson or csv",
        )
    exported = MARKER in below
    if exported and WHOLE not in below:
        raise problem("invalid_request", f"the export in {source} is not whole; repeat it, then import it")
    names: Sequence[str] = sorted(below)
    partitions: int | None = None
    if exported:
        with opened(below[WHOLE]) as stream:
            whole = json.load(stream)
        names, partitions = whole["files"], whole.get("partitions")
    for name in names:
        hidden = any(part.startswith(("_", ".")) for part in name.split("/"))
        if not hidden and (
            kind is not None or any(suffix.lstrip(".") in (*FORMATS, "jsonl") for suffix in _endings(name))
        ):
            yield Found(below[name], name, exported, partitions)


def _endings(name: str) -> list[str]:
    return [suffix.lower() for suffix in Path(name).suffixes]


def _without_partitions(runs: Iterator[pa.Table]) -> Iterator[pa.Table]:
    for run in runs:
        yield run.drop_columns(["partition"]) if "partition" in run.column_names else run
