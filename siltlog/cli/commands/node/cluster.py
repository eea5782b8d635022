"""`silt cluster`: nodes that share a root, as a whole."""

from pathlib import Path

import click

from siltlog.cli.commands.jobs.pipelines import place_options, place_settings
from siltlog.cli.output import grid, pairs
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, pass_session
from siltlog.infra.clock import SystemClock

NODE_COLUMNS = ("id", "state", "topics", "since", "url")
MOVE_COLUMNS = ("topic", "from", "to")


@click.group()
def cluster() -> None:
    """Nodes that share a root, as a whole: how it is, balance, and its end."""


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


@cluster.command(epilog="Example:  silt cluster dissolve --root s3://bucket/log")
@click.option("--dry-run", is_flag=True, help="Change nothing; say whether it can be done.")
@place_options
@pass_session
def dissolve(session: Session, dry_run: bool, root: str | None, data_dir: Path | None) -> None:
    """Go back to one server: once all nodes have stopped, so that one with SILT_CLUSTER=off may start.

    It needs no server. Refused while a node runs, and while a topic has records that its table has not.
    """
    from siltlog.infra.store.store import open_store
    from siltlog.server.cluster.dissolving import dissolve as dissolved

    settings = place_settings(root, data_dir)
    store = open_store(settings.root_uri, **settings.s3_options())
    done = dissolved(store, SystemClock(), dry_run=dry_run)
    document = {"root": store.root_uri, "view": done.view, "topics": done.topics, "dry_run": dry_run}
    session.output.document(document, value=[done.view], tables=[pairs(document)])


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
