"""`silt cluster`: nodes that share a root, as a whole."""

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session

NODE_COLUMNS = ("id", "state", "topics", "since", "url")
MOVE_COLUMNS = ("topic", "from", "to")


@click.group()
def cluster() -> None:
    """Nodes that share a root, as a whole: how it is, and balance."""


@cluster.command(epilog="Example:  silt cluster status")
@client_options
@pass_session
def status(session: Session) -> int:
    """Show the newest view and its nodes; exit status 3 when one of them is away or drains by itself."""
    with session.admin() as admin:
        document, nodes = admin.cluster(), admin.nodes()
    wrong = [one for one in nodes if one["state"] == "away" or one["reason"] == "unready"]
    told = {name: document[name] for name in ("cluster_id", "view", "controller")}
    session.output.document(
        {**told, "nodes": nodes},
        value=[one["id"] for one in wrong],
        tables=[pairs(told), grid(nodes, NODE_COLUMNS, title="\nNodes", numbers=("topics",))],
    )
    return EXIT_FOUND_WRONG if wrong else 0


@cluster.command(epilog="Example:  silt cluster balance --dry-run")
@click.option("--dry-run", is_flag=True, help="Move nothing; say what would move.")
@client_options
@pass_session
def balance(session: Session, dry_run: bool) -> None:
    """Have topics move until no node has two more than another."""
    with session.admin() as admin:
        moves = admin.balance(dry_run=dry_run)
    session.output.document(
        {"moves": moves, "dry_run": dry_run},
        value=[move["topic"] for move in moves],
        tables=[grid(moves, MOVE_COLUMNS)],
    )
