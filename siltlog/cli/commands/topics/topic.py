"""`silt topic`: create, list, describe, move, abandon, alter, delete; and delete records of one."""

from typing import Any, get_args

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import Session, client_options, on_terminal, pass_session
from siltlog.infra.client.calls import Order, TopicSort
from siltlog.infra.settings.units import in_unit_of

OFFSET_COLUMNS = ("log_start_offset", "table_offset", "high_watermark")
KEPT_COLUMNS = ("bytes", "files", "head_start_offset", "head_bytes", "wal_segments", "wal_bytes")
"""The topic's owner tells those of the head and the WAL."""


@click.group()
def topic() -> None:
    """Create, list, describe, change and delete topics."""


@topic.command(epilog="Example:  silt topic create events --partitions 4 --config retention.ms=7d")
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="How many partitions.  [default: the server's]")
@click.option(
    "--config",
    "-c",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the topic, such as retention.ms=7d or retention.bytes=4GB; repeatable.",
)
@click.option(
    "--if-not-exists",
    is_flag=True,
    help="Succeed when the topic is there already, with as many partitions as are asked for.",
)
@client_options
@pass_session
def create(session: Session, name: str, partitions: int | None, config: tuple[str, ...], if_not_exists: bool) -> None:
    """Create a topic: an empty Delta table that can be published to."""
    settings = dict(_setting(entry) for entry in config)
    with session.admin() as admin:
        document = admin.create_topic(name, partitions=partitions, config=settings, exist_ok=if_not_exists)
    _print_changed(session, document)


@topic.command("list", epilog="Example:  silt topic list --sort rate")
@click.option(
    "--sort",
    type=click.Choice(get_args(TopicSort)),
    help="By what: rate is records a second of late, lag that of the group furthest behind.  [default: name]",
)
@click.option("--order", type=click.Choice(get_args(Order)), help="Default: names rise, all else falls.")
@client_options
@pass_session
def list_(session: Session, sort: TopicSort | None, order: Order | None) -> None:
    """List the topics."""
    with session.admin() as admin:
        documents = admin.topics(sort=sort, order=order)
    columns: tuple[str, ...] = ("name", "partitions", "records", "bytes", "files", "created_at")
    if sort in ("rate", "lag"):
        columns = (*columns, sort)
        documents = [{**document, sort: document["sort_value"]} for document in documents]
    session.output.document(
        {"topics": documents},
        value=[document["name"] for document in documents],
        tables=[grid(documents, columns, numbers=("partitions", "records", "bytes", "files", "rate", "lag"))],
    )


@topic.command(epilog="Example:  silt topic describe events --partitions")
@click.argument("name")
@click.option("--partitions", is_flag=True, help="Only its partitions, each with its bytes, its head and its WAL.")
@client_options
@pass_session
def describe(session: Session, name: str, partitions: bool) -> None:
    """Show a topic: its table, its settings, and the offsets of every partition."""
    with session.admin() as admin:
        document = admin.topic(name)
    if not partitions:
        _print_topic(session, document)
        return
    columns = ("partition", *OFFSET_COLUMNS, *(name for name in KEPT_COLUMNS if name in document["offsets"][0]))
    session.output.document(
        {"topic": name, "partitions": document["offsets"]},
        value=[row["partition"] for row in document["offsets"]],
        tables=[grid(document["offsets"], columns, numbers=columns)],
    )


@topic.command(epilog="Example:  silt topic move events --to node-2")
@click.argument("name")
@click.option("--to", "node", metavar="NODE", help="Where to. Default: the node with the fewest topics, of the others.")
@client_options
@pass_session
def move(session: Session, name: str, node: str | None) -> None:
    """Have another node of the cluster own a topic, and its dead letters; nobody who uses it notices."""
    with session.admin() as admin:
        document = admin.move_topic(name, node)
    session.output.document(document, value=[document["to"]], tables=[pairs(document)])


@topic.command(epilog="Example:  silt topic abandon events --yes")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@pass_session
def abandon(session: Session, name: str, yes: bool) -> None:
    """Give up what only the disk of a lost node has of a topic, so that it goes on without.

    For a topic with acks=wal whose node never comes back: stop that node first.
    """
    with session.admin() as admin:
        for node in (node for node in admin.nodes() if name in node["awaited_by"]):
            count = f"{node['unflushed_records']} unflushed records of all its topics"
            click.echo(f"node {node['id']}: away since {node['since']}, with {count}", err=True)
        if not yes:
            if not on_terminal():
                raise click.UsageError(f"giving up records of {name} is for good and cannot ask here; say --yes")
            click.confirm(f"Give up what only a lost disk has of the topic {name}?", abort=True, err=True)
        document = admin.abandon_topic(name)
    session.output.document(document, value=[document["node"]], tables=[pairs(document)])


@topic.command(epilog="Example:  silt topic alter events --partitions 8 --config retention.ms=7d --unset flush.ms")
@click.argument("name")
@click.option("--partitions", "-p", type=click.IntRange(1), help="How many partitions from now on; they only grow.")
@click.option(
    "--config",
    "-c",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the topic, such as retention.ms=7d or retention.bytes=4GB; repeatable.",
)
@click.option("--unset", "-u", multiple=True, metavar="NAME", help="A setting to put back to its default; repeatable.")
@client_options
@pass_session
def alter(session: Session, name: str, partitions: int | None, config: tuple[str, ...], unset: tuple[str, ...]) -> None:
    """Change a topic's settings or give it more partitions, while it is used."""
    settings: dict[str, int | str | None] = dict(_setting(entry) for entry in config)
    both = sorted(settings.keys() & set(unset))
    if both:
        raise click.UsageError(f"{both[0]} is both set and put back; say one of --config and --unset")
    settings |= dict.fromkeys(unset)
    if partitions is None and not settings:
        raise click.UsageError("say what to change: --partitions, --config or --unset")
    with session.admin() as admin:
        document = admin.alter_topic(name, partitions=partitions, config=settings)
    _print_changed(session, document)


@topic.command(epilog="Example:  silt topic delete events --yes")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@pass_session
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete a topic and everything in it."""
    if not yes:
        if not on_terminal():
            raise click.UsageError(f"deleting {name} destroys its records and cannot ask here; say so with --yes")
        click.confirm(f"Delete the topic {name} and all its records?", abort=True, err=True)
    with session.admin() as admin:
        admin.delete_topic(name)
    session.output.document({"name": name, "deleted": True}, value=[name], tables=[pairs({"deleted": name})])


@topic.command("delete-records", epilog="Example:  silt topic delete-records events --partition 0 --before 1000 --yes")
@click.argument("name")
@click.option("--partition", "-p", type=click.IntRange(0), required=True, help="The partition.")
@click.option("--before", metavar="OFFSET|latest", required=True, help="The first offset to keep; latest: keep none.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
@pass_session
def delete_records(session: Session, name: str, partition: int, before: str, yes: bool) -> None:
    """Delete the records of a partition below an offset, for good: its log start moves there."""
    if before != "latest" and not (before.isascii() and before.isdigit()):
        raise click.BadParameter(f"{before!r} is no offset; a whole number, or latest", param_hint="--before")
    if not yes:
        if not on_terminal():
            raise click.UsageError(f"deleting records of {name} is for good and cannot ask here; say so with --yes")
        what = "all records" if before == "latest" else f"the records below offset {before}"
        click.confirm(f"Delete {what} of topic {name}, partition {partition}?", abort=True, err=True)
    with session.admin() as admin:
        document = admin.delete_records(name, partition, "latest" if before == "latest" else int(before))
    session.output.document(document, value=[document["log_start_offset"]], tables=[pairs(document)])


def _setting(entry: str) -> tuple[str, int | str]:
    """`retention.ms=7d` as name and value; whole numbers and amounts become numbers, as the server expects them."""
    name, equals, text = entry.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{entry!r} is not NAME=VALUE, such as retention.ms=7d", param_hint="--config")
    number = text.removeprefix("-")
    if number.isascii() and number.isdigit():
        return name, int(text)
    try:
        amount = in_unit_of(name, text)
    except ValueError as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="--config") from None
    return name, text if amount is None else amount


def _print_changed(session: Session, document: dict[str, Any]) -> None:
    """Prints for people only that the topic is there, and what was set; `describe` has the rest."""
    head = {name: document[name] for name in ("name", "partitions", "table_uri")}
    own = {name: str(entry["value"]) for name, entry in document["config"].items() if entry["source"] == "topic"}
    session.output.document(document, value=[document["name"]], tables=[pairs(head | own)])


def _print_topic(session: Session, document: dict[str, Any]) -> None:
    """`document` is the topic as `GET /v1/topics/{topic}` gives it."""
    offsets = document["offsets"]
    settings = [
        {"setting": name, "value": str(entry["value"]), "source": entry["source"]}
        for name, entry in document["config"].items()
    ]
    session.output.document(
        document,
        value=[document["name"]],
        tables=[
            pairs({name: value for name, value in document.items() if name not in ("config", "offsets")}),
            grid(offsets, ("partition", *OFFSET_COLUMNS), numbers=("partition", *OFFSET_COLUMNS)),
            grid(settings, ("setting", "value", "source")),
        ],
    )
