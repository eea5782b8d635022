"""`silt group`: list, describe, reset, delete."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.records.place import EARLIEST, LATEST, Place, place
from siltlog.cli.session import Session, client_options, pass_session
from siltlog.infra.client.calls import GroupSort, Order
from siltlog.infra.clock import format_us

RESET_EPILOG = """\b
Examples:
  silt group reset reporting --to earliest
  silt group reset reporting --to earliest --execute
  silt group reset reporting --topic events --to 2026-11-21T07:36:00Z --execute
  silt group reset reporting --partition events:3 --shift -100 --execute"""
PARTITION_COLUMNS = (
    "topic",
    "partition",
    "member_id",
    "offset",
    "log_start_offset",
    "high_watermark",
    "lag",
    "lag_seconds",
)
OF_CLASSIC_GROUPS = {"phase", "protocol_type", "protocol"}
PARTITION_NUMBERS = ("partition", "offset", "log_start_offset", "high_watermark", "lag", "lag_seconds")


@click.group()
def group() -> None:
    """Consumer groups: who reads what, how far behind, and from where they go on."""


@group.command("list", epilog="Example:  silt group list --topic events --sort lag")
@click.option("--topic", metavar="NAME", help="Only groups that have committed offsets of this topic.")
@click.option("--sort", type=click.Choice(get_args(GroupSort)), help="By what.  [default: name]")
@click.option("--order", type=click.Choice(get_args(Order)), help="Default: names rise, all else falls.")
@client_options
@pass_session
def list_(session: Session, topic: str | None, sort: GroupSort | None, order: Order | None) -> None:
    """List the groups."""
    with session.admin() as admin:
        documents = admin.groups(topic=topic, sort=sort, order=order)
    columns: tuple[str, ...] = ("group", "state", "members")
    if any("type" in document for document in documents):
        columns = ("group", "type", "state", "members")
    if any("lag" in document for document in documents):
        columns = (*columns, "lag")
    session.output.document(
        {"groups": documents},
        value=[document["group"] for document in documents],
        tables=[grid(documents, columns, numbers=("members", "lag"))],
    )


@group.command(epilog="Example:  silt group describe reporting")
@click.argument("name")
@client_options
@pass_session
def describe(session: Session, name: str) -> None:
    """Show a group: its state, its members, and per partition where it is and how far behind."""
    with session.admin() as admin:
        document = admin.group(name)
    left_out = set() if document.get("type") == "classic" else OF_CLASSIC_GROUPS
    head = {field: value for field, value in document.items() if not isinstance(value, list) and field not in left_out}
    of_kafka = any(member.get("client_host") for member in document["members"])
    head["lag"] = sum(row["lag"] for row in document["partitions"])
    members = [
        {
            "member_id": member["member_id"],
            "client_id": member["client_id"],
            "instance_id": member["instance_id"],
            "joined_at": member["joined_at"],
            **({"client_host": member["client_host"]} if of_kafka else {}),
            "reads": member["topic_pattern"] or ", ".join(member["topics"]),
            "holds": _held(member["assignment"]),
        }
        for member in document["members"]
    ]
    rows = [row | {"lag_seconds": _seconds(row["lag_seconds"])} for row in document["partitions"]]
    tables = [pairs(head)]
    if members:
        tables.append(grid(members, tuple(members[0]), title="members"))
    if document["moving"]:
        tables.append(grid(document["moving"], ("topic", "partition", "to"), title="moving", numbers=("partition",)))
    if rows:
        tables.append(grid(rows, PARTITION_COLUMNS, title="partitions", numbers=PARTITION_NUMBERS))
    session.output.document(document, value=[document["state"]], tables=tables)


def _partitions(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, int]]:
    return [_topic_partition(value) for value in values]


@group.command(epilog=RESET_EPILOG)
@click.argument("name")
@click.option("--topic", "-t", "topics", multiple=True, help="Every partition of this topic; repeatable.")
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    metavar="TOPIC:N",
    callback=_partitions,
    help="Only this; repeatable.",
)
@click.option(
    "--to",
    "target",
    metavar=f"{EARLIEST}|{LATEST}|OFFSET|TIME|AGO",
    callback=place(EARLIEST, LATEST),
    help="Where to go on. A time, or so long ago (1h): from the first record at or after it.",
)
@click.option("--shift", type=int, help="So many records on from where it is, or back (-100).")
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@client_options
@pass_session
def reset(
    session: Session,
    name: str,
    topics: tuple[str, ...],
    partitions: list[tuple[str, int]],
    target: Place | str | None,
    shift: int | None,
    execute: bool,
) -> None:
    """Move where the group NAME goes on: shows before and after, and does it with --execute.

    Without --topic and --partition in every topic that it has offsets in. Only while nobody consumes in the group.
    Offsets are brought within what the log has.
    """
    if (target is None) == (shift is None):
        raise click.UsageError("say where the group is to go on: --to or --shift, one of them")
    if topics and partitions:
        raise click.UsageError("--topic is for all of a topic's partitions; leave out --topic or --partition")
    with session.admin() as admin:
        from siltlog.infra.client.record import TopicPartition

        asked: dict[str, Any] = {"topics": list(topics)}
        if partitions:
            asked = {"partitions": [TopicPartition(topic, number) for topic, number in partitions]}
        if not topics and not partitions:
            asked["topics"] = sorted({at.topic for at in admin.group_offsets(name)})
            if not asked["topics"]:
                raise click.UsageError(f"the group {name} has no offsets yet: say where with --topic or --partition")
        moved = admin.reset_group(name, **asked, **_target(target, shift), dry_run=not execute)
    session.output.document(
        {"group": name, "executed": execute, "offsets": moved},
        value=[f"{move['topic']} {move['partition']} {move['after']}" for move in moved],
        tables=[grid(moved, ("topic", "partition", "before", "after"), numbers=("partition", "before", "after"))],
    )
    if not execute:
        session.output.note("Nothing was changed. The same with --execute does it.")


@group.command(epilog="Example:  silt group delete reporting")
@click.argument("name")
@client_options
@pass_session
def delete(session: Session, name: str) -> None:
    """Delete a group that has no members, and where it is in its topics."""
    with session.admin() as admin:
        admin.delete_group(name)
    session.output.document({"group": name, "deleted": True}, value=[name], tables=[pairs({"deleted": name})])


def _target(target: Place | str | None, shift: int | None) -> dict[str, Any]:
    if shift is not None:
        return {"to": "shift", "shift": shift}
    if not isinstance(target, Place):
        return {"to": target}
    if target.offset is not None and target.offset < 0:
        raise click.UsageError(
            f"--to {target.offset} would count from the end, which a reset does in two steps: --to latest, and then "
            f"--shift {target.offset}"
        )
    if target.offset is not None:
        return {"to": "offset", "offset": target.offset}
    assert target.time_us is not None
    return {"to": "timestamp", "timestamp": format_us(target.time_us)}


def _topic_partition(text: str) -> tuple[str, int]:
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{text!r} is not TOPIC:N, such as events:0")
    return topic, int(number)


def _held(assignment: Sequence[Mapping[str, Any]]) -> str:
    """`events 0, 2; clicks 1`"""
    numbers: dict[str, list[int]] = {}
    for at in assignment:
        numbers.setdefault(at["topic"], []).append(at["partition"])
    return "; ".join(f"{topic} {', '.join(map(str, sorted(held)))}" for topic, held in sorted(numbers.items()))


def _seconds(lag: float | None) -> str:
    return "" if lag is None else f"{lag:,.1f}"
