"""`silt node`: the nodes that share a root."""

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import Session, client_options, pass_session

COLUMNS = ("id", "state", "reason", "since", "controller", "topics", "unflushed_records", "url", "zone", "version")


@click.group()
def node() -> None:
    """The nodes that share a root: list them, drain one, take one out of the list."""


@node.command("list", epilog="Example:  silt node list --output json")
@client_options
@pass_session
def list_(session: Session) -> None:
    """List the nodes: which are up, draining or away and since when, and how many topics each owns."""
    with session.admin() as admin:
        documents = admin.nodes()
    session.output.document(
        {"nodes": documents},
        value=[document["id"] for document in documents],
        tables=[grid(documents, COLUMNS, numbers=("topics", "unflushed_records"))],
    )


@node.command(epilog="Example:  silt node drain node-1")
@click.argument("name")
@client_options
@pass_session
def drain(session: Session, name: str) -> None:
    """Have a node hand over its topics, as before an upgrade; its next start gets topics again."""
    with session.admin() as admin:
        admin.drain_node(name)
    session.output.document({"draining": name}, value=[name], tables=[pairs({"draining": name})])


@node.command(epilog="Example:  silt node remove node-1")
@click.argument("name")
@client_options
@pass_session
def remove(session: Session, name: str) -> None:
    """Take a node that is away out of the list."""
    with session.admin() as admin:
        admin.remove_node(name)
    session.output.document({"removed": name}, value=[name], tables=[pairs({"removed": name})])
