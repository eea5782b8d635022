"""Dissolves a cluster into one server: once every node has stopped, and no disk has what no table has."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.steps import beats_of, delete, newest_view, put_view, taken
from siltlog.infra.cluster.view import ClusterView
from siltlog.infra.errors import UnknownTopic, problem
from siltlog.infra.store.cluster_id import mark_shared
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable, topic_names

TABLES_AT_ONCE = 16
NAMED_MAX = 10


class Dissolved(NamedTuple):
    view: int
    """The last one."""
    topics: int


def dissolve(store: ObjectStore, clock: Clock, *, dry_run: bool = False) -> Dissolved:
    """Writes the view that says that no node shares the root any more; a server that is alone may start then.

    Done again it does nothing. Raises Refused that says what is still to be done, Unavailable.
    """
    view = taken(store, newest_view(0))
    if view is None:
        raise problem("not_found", f"no nodes share {store.root_uri}: it has no {names.VIEWS_FOLDER}")
    _check_stopped(store, view)
    count = _check_released(store, clock, view)
    if not view.dissolved and not dry_run:
        last = replace(
            view,
            number=view.number + 1,
            controller="",
            journal="",
            nonce=str(uuid.uuid4()),
            journal_root="",
            journal_root_id="",
            nodes={},
            topics={},
            wishes={},
            balancing=False,
            dissolved=True,
        )
        if not taken(store, put_view(last)):
            raise problem("invalid_request", "a node has come meanwhile: stop it, and dissolve the cluster again")
        for node in view.nodes:
            delete(names.beat_object(node), store)
        view = last
    if not dry_run:
        mark_shared(store, False)
        if taken(store, newest_view(view.number)) is not None:
            mark_shared(store, True)
            raise problem("invalid_request", "a node has come meanwhile, and the cluster is there again")
    return Dissolved(view.number, count)


def _check_stopped(store: ObjectStore, view: ClusterView) -> None:
    members = dict(view.members())
    beats = taken(store, beats_of(members))
    for node, entry in sorted(members.items()):
        beat = beats.get(node)
        if beat is None or beat.journal != entry.journal or beat.going != "away":
            raise problem(
                "invalid_request",
                f"node {node} at {entry.url} runs, or was killed: stop it (SIGTERM), so that it flushes what it has; "
                "one that was killed has to be started again before",
            )


def _check_released(store: ObjectStore, clock: Clock, view: ClusterView) -> int:
    """How many topics there are, of which all is in their tables."""

    def held(name: str) -> bool | None:
        try:
            snapshot = TopicTable.open(store, name, clock).snapshot
        except UnknownTopic:
            return None
        if snapshot.deleted:
            return None
        return any(epoch and snapshot.released[at] != epoch for at, epoch in snapshot.epochs.items())

    topics = topic_names(store)
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        found = dict(zip(topics, pool.map(held, topics), strict=True))
    if waiting := [_whose(view, name) for name, is_held in sorted(found.items()) if is_held]:
        raise problem(
            "invalid_request",
            f"{len(waiting)} topics are not in their tables whole, such as {', '.join(waiting[:NAMED_MAX])}: start the "
            "nodes again until one owns each of them, and stop them by SIGTERM, the last one alone; `silt topic "
            "abandon` gives up what only a lost disk has",
        )
    return sum(is_held is not None for is_held in found.values())


def _whose(view: ClusterView, name: str) -> str:
    entry = view.topics.get(name)
    return name if entry is None else f"{name} (of node {entry.owner.node})"
