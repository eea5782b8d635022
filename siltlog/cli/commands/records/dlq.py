"""`silt dlq`: the dead letters of topics: list, show, replay, discard, purge, export."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from siltlog.cli.output import emit, grid, pairs
from siltlog.cli.session import Session, client_options, on_terminal, pass_session
from siltlog.infra import names
from siltlog.infra.errors import Refused, UnknownTopic, problem

if TYPE_CHECKING:
    from siltlog.infra.client.admin import Admin

LIST_MAX = 100
LIST_COLUMNS = ("position", "came_from", "group", "attempts", "failed_at", "key", "error")
_POSITION = re.compile(r"(\d{1,10}):(\d{1,16})")
_OFFSET = re.compile(r"\d{1,16}")
Position = tuple[int, int]
Span = tuple[int, int, int | None]
"""Partition, offset, and the last offset where it is more than one."""
REPLAY_EPILOG = """\b
Examples:
  silt dlq replay flights
  silt dlq replay flights 0:3 0:4
  silt dlq replay flights --replay-id incident-7"""
DISCARD_EPILOG = """\b
Examples:
  silt dlq discard flights 0:3 0:4 --reason "test flights"
  silt dlq discard flights 0:10-25"""
EXPORT_EPILOG = """\b
Examples:
  silt dlq export flights | jq .dead_letter.error
  silt dlq export flights --file dead.ndjson
  silt dlq export flights --format json --file dead.json"""


def _position(_: click.Context, __: click.Parameter, value: str | tuple[str, ...]) -> Position | list[Position]:
    return _parsed(value) if isinstance(value, str) else [_parsed(one) for one in value]


def _parsed(text: str) -> Position:
    found = _POSITION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:17, as `silt dlq list` shows it")
    return int(found[1]), int(found[2])


def _spans(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[Span]:
    spans = []
    for text in value:
        start, dash, last = text.partition("-")
        partition, first = _parsed(start)
        if dash and (not _OFFSET.fullmatch(last) or int(last) < first):
            raise click.BadParameter(f"{text!r} is not PARTITION:FIRST-LAST, such as 0:17-21; it takes in both")
        spans.append((partition, first, int(last) if dash else None))
    return spans


@click.group()
def dlq() -> None:
    """Dead letters: records that a group gave up on, each with where it was and why."""


@dlq.command("list", epilog="Example:  silt dlq list flights")
@click.argument("topic", required=False)
@click.option("--group", "-g", help="Only what this group gave up.")
@click.option(
    "--max-records", "-n", type=click.IntRange(1), default=LIST_MAX, show_default=True, help="At most so many."
)
@client_options
@pass_session
def list_(session: Session, topic: str | None, group: str | None, max_records: int) -> None:
    """List the dead letters of TOPIC, the newest first; without one the topics that have some."""
    if topic is None:
        if group is not None:
            raise click.UsageError("--group is for the dead letters of one topic; say which: silt dlq list TOPIC")
        _list_topics(session)
        return
    documents = list(islice(_dead_letters(session, topic, group), max_records))
    session.output.document(
        {"topic": topic, "dead_letters": documents},
        value=[f"{document['partition']}:{document['offset']}" for document in documents],
        tables=[grid([_row(document) for document in documents], LIST_COLUMNS, numbers=("attempts",))],
    )


@dlq.command(epilog="Example:  silt dlq show flights 0:3")
@click.argument("topic")
@click.argument("position", metavar="PARTITION:OFFSET", callback=_position)
@client_options
@pass_session
def show(session: Session, topic: str, position: Position) -> None:
    """Show one dead letter of TOPIC: what it was, where it came from, and why it was given up."""
    partition, offset = position
    with session.admin() as admin:
        page = admin.dead_letters(topic, after=f"{partition}:{offset + 1}", limit=1)
    [document] = page["dead_letters"] or [{}]
    if (document.get("partition"), document.get("offset")) != position:
        raise problem("not_found", f"there is no dead letter {partition}:{offset} of {topic}")
    said = {name: value for name, value in (document["dead_letter"] or {}).items() if name != "topic"}
    content = {name: document[name] for name in document if name.startswith(("key", "value"))}
    headers = [
        {"header": one["key"], "value": one.get("value", one.get("value_base64"))} for one in document["headers"]
    ]
    own = headers[: len(headers) - len(document["dead_letter"] or {})]
    session.output.document(
        document,
        value=[document.get("value", document.get("value_base64"))],
        tables=[pairs({**said, **content}), *([grid(own, ("header", "value"), title="headers")] if own else [])],
    )


@dlq.command(epilog=REPLAY_EPILOG)
@click.argument("topic")
@click.argument("positions", metavar="[PARTITION:OFFSET]...", nargs=-1, callback=_position)
@click.option("--replay-id", help="Names this replay: repeated under it nothing goes back twice. Default: a new one.")
@client_options
@pass_session
def replay(session: Session, topic: str, positions: list[Position], replay_id: str | None) -> None:
    """Publish dead letters to TOPIC again, as they were: all, or those at PARTITION:OFFSET.

    They stay in the dead letters until they are discarded or purged.
    """
    replay_id = replay_id or str(uuid4())
    session.output.note(f"If this is cut short, repeat it with --replay-id {replay_id}")
    with session.admin() as admin:
        document = admin.replay_dead_letters(topic, replay_id, positions or None)
    session.output.document(document, value=[document["replayed"]], tables=[pairs(document)])


@dlq.command(epilog=DISCARD_EPILOG)
@click.argument("topic")
@click.argument("positions", metavar="PARTITION:OFFSET[-LAST]...", nargs=-1, required=True, callback=_spans)
@click.option("--reason", default="", help="Why; it is kept with what was discarded.")
@client_options
@pass_session
def discard(session: Session, topic: str, positions: list[Span], reason: str) -> None:
    """Discard dead letters of TOPIC for good: those at PARTITION:OFFSET, or all from one offset to another.

    They are shown, exported and replayed no more. One that is gone already is no error.
    """
    offsets = [(partition, first) for partition, first, last in positions if last is None]
    ranges = [(partition, first, last) for partition, first, last in positions if last is not None]
    with session.admin() as admin:
        document = admin.discard_dead_letters(topic, offsets, ranges=ranges, reason=reason)
    counts = {name: document[name] for name in ("topic", "discarded", "duplicates")}
    session.output.document(document, value=[document["discarded"]], tables=[pairs(counts)])


@dlq.command(epilog="Example:  silt dlq purge flights --yes")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@pass_session
def purge(session: Session, topic: str, yes: bool) -> None:
    """Delete the dead letters of TOPIC that are there now, for good."""
    with session.admin() as admin:
        bounds = _require(admin, topic)
        count = _count(admin, topic, bounds)
        if count and not yes:
            if not on_terminal():
                raise click.UsageError(
                    f"purging the dead letters of {topic} is for good and cannot ask here; say --yes"
                )
            click.confirm(f"Delete the {count} dead letters of {topic}?", abort=True, err=True)
        for entry in bounds:
            # No more than what was asked about.
            if entry["high_watermark"] > entry["log_start_offset"]:
                admin.delete_records(names.dead_letter_topic(topic), entry["partition"], entry["high_watermark"])
    document = {"topic": topic, "purged": count}
    session.output.document(document, value=[count], tables=[pairs(document)])


@dlq.command(epilog=EXPORT_EPILOG)
@click.argument("topic")
@click.option(
    "--file",
    "-f",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="Where to; - is standard output.",
)
@click.option("--format", "form", type=click.Choice(("ndjson", "json")), default="ndjson", show_default=True)
@client_options
@pass_session
def export(session: Session, topic: str, file: str, form: str) -> None:
    """Write the dead letters of TOPIC, the newest first, each as HTTP gives a record, with `dead_letter` for what is
    said about it.

    A file is there once it is whole.
    """
    lines = (json.dumps(document, ensure_ascii=False) for document in _dead_letters(session, topic))
    with _written(file) as write:
        if form == "ndjson":
            for line in lines:
                write(line)
            return
        write("[")
        held = None
        for line in lines:
            if held is not None:
                write(held + ",")
            held = line
        if held is not None:
            write(held)
        write("]")


@contextmanager
def _written(file: str) -> Iterator[Callable[[str], object]]:
    """Gives what writes a line. The file is replaced at the end, unless it came to none."""
    if file == "-":
        yield emit
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=Path(file).parent, delete=False) as out:
        try:
            yield lambda line: out.write(line + "\n")
            out.flush()
            Path(out.name).replace(file)
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise


def _list_topics(session: Session) -> None:
    with session.admin() as admin:
        dead = [one for one in admin.topics() if one["name"].endswith(names.DEAD_LETTER_SUFFIX)]
        rows = []
        for one in dead:
            bounds = admin.offsets(one["name"])
            topic = one["name"].removesuffix(names.DEAD_LETTER_SUFFIX)
            rows.append({"topic": topic, "dead_letters": _count(admin, topic, bounds)})
    session.output.document(
        {"topics": rows},
        value=[row["topic"] for row in rows if row["dead_letters"]],
        tables=[grid(rows, ("topic", "dead_letters"), numbers=("dead_letters",))],
    )


def _require(admin: "Admin", topic: str) -> list[dict[str, Any]]:
    """The bounds of its dead letters, none where it never had any. Raises UnknownTopic when there is no such topic."""
    admin.offsets(topic)
    try:
        return admin.offsets(names.dead_letter_topic(topic))
    except UnknownTopic:
        return []


def _count(admin: "Admin", topic: str, bounds: list[dict[str, Any]]) -> int:
    """How many dead letters there are; to who may not read them, how many records those are stored as."""
    try:
        count: int = admin.dead_letters(topic, limit=1)["count"]
    except Refused as error:
        if error.error_code not in ("forbidden", "unknown_topic"):
            raise
        return sum(entry["high_watermark"] - entry["log_start_offset"] for entry in bounds)
    return count


def _dead_letters(session: Session, topic: str, group: str | None = None) -> Iterator[dict[str, Any]]:
    """Yields the dead letters that are there, the newest first."""
    after = None
    with session.admin() as admin:
        while True:
            page = admin.dead_letters(topic, group=group, after=after, limit=LIST_MAX)
            yield from page["dead_letters"]
            after = page["next"]
            if after is None:
                return


def _row(document: dict[str, Any]) -> dict[str, Any]:
    said = document["dead_letter"] or {}
    return {
        "position": f"{document['partition']}:{document['offset']}",
        "came_from": f"{said.get('partition')}:{said.get('offset')}",
        "group": said.get("group"),
        "attempts": said.get("attempts"),
        "failed_at": said.get("failed_at"),
        "key": document.get("key", document.get("key_base64")),
        "error": said.get("error"),
    }
