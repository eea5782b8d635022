"""`silt group`: list and describe."""

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import Session, client_options, pass_session


@click.group()
def group() -> None:
    """Consumer groups: who reads what, and how far behind."""


@group.command("list", epilog="Example:  silt group list")
@client_options
@pass_session
def list_(session: Session) -> None:
    """List the groups."""
    with session.admin() as admin:
        documents = admin.groups()
    session.output.document(
        {"groups": documents},
        value=[document["group"] for document in documents],
        tables=[grid(documents, tuple(documents[0]) if documents else ("group",))],
    )


@group.command(epilog="Example:  silt group describe reporting")
@click.argument("name")
@client_options
@pass_session
def describe(session: Session, name: str) -> None:
    """Show a group: its state, its members, and per partition where it is and how far behind."""
    with session.admin() as admin:
        document = admin.group(name)
    lists = {field: value for field, value in document.items() if isinstance(value, list)}
    head = {field: value for field, value in document.items() if field not in lists}
    session.output.document(
        document,
        value=[head.get("state", name)],
        tables=[pairs(head), *(grid(rows, tuple(rows[0]), title=field) for field, rows in lists.items() if rows)],
    )
