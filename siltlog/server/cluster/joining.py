"""How a node joins the cluster of its root, or makes sure that there is none."""

import asyncio
import os
import platform
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import Report
from siltlog.infra.cluster.identity import Identity, Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.refusals import Refusals
from siltlog.infra.cluster.reports import Reports
from siltlog.infra.cluster.steps import newest_view, taken
from siltlog.infra.cluster.survey import NOTHING_FOUND, Found
from siltlog.infra.cluster.view import TERM_SHIFT, NodeState
from siltlog.infra.errors import ConfigError, SiltlogError, Unavailable
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.peers.knocking import refuses
from siltlog.infra.security.secret import PURPOSE_HOPS, read_secret
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.cluster_id import journal_root_id, mark_shared
from siltlog.infra.store.probe import check_shared_root
from siltlog.infra.store.store import ObjectStore, open_store
from siltlog.infra.table.table import TopicTable, topic_names
from siltlog.ingest.log.log import Log

UNABLE = frozenset(("disk_full", "wal_full"))
"""Reasons of a node that cannot acknowledge, whatever the topic."""
PATIENCES_A_LEASE = 3
"""After so long a beat or a look is given up: the next one comes while others wait for it still."""
TABLES_AT_ONCE = 16
LEAVING_PART = 0.5
"""The share of the time to drain in which topics are handed over."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class KeptIdentity(msgspec.Struct, frozen=True):
    """What a data directory says of itself, from its first start in a cluster on."""

    data_dir: str
    node: str


def kept_identity(folder: Path) -> KeptIdentity:
    """Reads who the node of this data directory is, and makes that up at its first start. Raises ConfigError."""
    path = folder / names.NODE_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptIdentity)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); it says which node this data directory is of: bring it back from a copy"
        ) from None
    made = KeptIdentity(str(uuid.uuid4()), f"node-{uuid.uuid4().hex[:8]}")
    pending = path.with_name(f"{path.name}.pending")
    with pending.open("wb") as file:
        file.write(msgspec.json.encode(made) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    pending.replace(path)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return made


def settings_of(settings: ServerSettings, folder: Path) -> ServerSettings:
    """In a cluster a node that was given no name has a random one, which its data directory keeps; and topics that are
    made outlive the disk of their node unless somebody says otherwise."""
    if settings.cluster == "off":
        return settings
    given = settings.model_fields_set
    changes: dict[str, str] = {} if "acks" in given else {"acks": "object"}
    if "node_id" not in given:
        changes["node_id"] = kept_identity(folder).node
    return settings.model_copy(update=changes)


def place_of(folder: Path) -> str:
    """Where a data directory is: this start of this machine, and the file that its one process has locked."""
    try:
        boot = BOOT_ID.read_text("ascii").strip()
    except OSError:
        boot = platform.node()
    lock = (folder / names.LOCK_FILE).stat()
    return f"{boot}/{lock.st_dev}/{lock.st_ino}"


def check_alone(store: ObjectStore) -> None:
    """Raises ConfigError where nodes share the root: a server that knows of no others would go past what they have."""
    view = taken(store, newest_view(0))
    if view is not None and not view.dissolved:
        raise ConfigError(
            f"nodes of a cluster share {store.root_uri} (it has {names.VIEWS_FOLDER}): set SILT_CLUSTER=on, and "
            "SILT_ADVERTISE_URL to where the others reach this node; or stop all of them, and `silt cluster dissolve`"
        )


class Joined(NamedTuple):
    membership: Membership
    reports: Reports
    key: bytes
    """Nodes prove by it to each other who they are; it is empty where none has a secret."""


async def joined(
    node: Node, folder: Path, *, take_over: bool, on_fatal: Callable[[ConfigError], None], kafka: str = ""
) -> Joined | None:
    """The node as a member; None where the cluster is off. `kafka` is where Kafka's clients call it, empty for nowhere.

    Raises ConfigError where it may not be what it is to be.
    """
    settings = node.settings
    if settings.cluster == "off":
        await asyncio.to_thread(check_alone, node.store)
        return None
    if take_over:
        raise ConfigError(
            "--take-over is for a server that is alone: in a cluster what a node had goes to the others by itself, or "
            "by `silt topic abandon`"
        )
    await asyncio.to_thread(check_shared_root, node.store, uuid.uuid4().hex)
    is_apart = node.journals is not node.store
    if is_apart:
        await asyncio.to_thread(check_shared_root, node.journals, uuid.uuid4().hex)
    kept = await asyncio.to_thread(kept_identity, folder)
    identity = Identity(
        cluster_id=node.cluster_id,
        node=settings.node_id,
        data_dir=kept.data_dir,
        place=place_of(folder),
        url=settings.advertise_url,
        zone=settings.zone,
        version=version("siltlog"),
        journal_root=settings.journal_root_uri if is_apart else "",
        journal_root_id=await asyncio.to_thread(journal_root_id, node.journals) if is_apart else "",
        kafka=kafka,
    )
    timing = Timing(settings.lease_ms, settings.heartbeat_ms)
    reports = Reports()

    def ids() -> str:
        return str(uuid.uuid4())

    # Without authentication and without a secret nothing is proven: then everybody may do everything.
    key = read_secret(Path(settings.secret_file)).key(PURPOSE_HOPS) if settings.secret_file else b""
    addresses = Addresses(key, node.cluster_id)
    refusals = Refusals(refuses)
    tables = partial(_tables, node.clock)
    found = await asyncio.to_thread(_found_before, node.store, node.clock)
    member = Member(identity, timing, node.clock, reports, ids, tables, addresses, refusals.journals, found)
    prompt = open_store(
        settings.root_uri,
        **settings.s3_options(),
        patience_ms=settings.lease_ms // PATIENCES_A_LEASE,
        observe=node.metrics.asked_store,
    )
    membership = Membership(member, prompt, timing, node.clock, ids, node.logger, on_fatal, refusals)
    await asyncio.to_thread(mark_shared, node.store, True)
    await membership.join()
    # Once more: who dissolved the cluster before this node came may have said the contrary meanwhile.
    await asyncio.to_thread(mark_shared, node.store, True)
    return Joined(membership, reports, key)


def _found_before(store: ObjectStore, clock: Clock) -> Found:
    """Reads what the first view goes by: all topics that have a table; nothing where nodes share the root already.

    Raises Unavailable where one cannot be read now.
    """
    view = taken(store, newest_view(0))
    if view is not None and not view.dissolved:
        return NOTHING_FOUND
    tables = _tables_of(store, clock, topic_names(store), patient=False)
    topics = {name: table.topic_id for name, table in tables.items() if table.topic_id}
    return Found(topics, max((table.term for table in tables.values()), default=0))


def _tables(clock: Clock, known: Collection[str], again: Collection[str]) -> Callable[[ObjectStore], dict[str, str]]:
    """Finds the topics that have a table and are none of `known`, or some that are to be looked at `again`, with their
    ids."""

    def ids(store: ObjectStore) -> dict[str, str]:
        listed = topic_names(store)
        tables = _tables_of(store, clock, [name for name in listed if name not in known or name in again], patient=True)
        gone = dict.fromkeys(set(again) - set(listed), "")
        return gone | {name: table.topic_id for name, table in tables.items()}

    return ids


class _Table(NamedTuple):
    """What is kept of a table that was read: all files of all tables would not fit in memory."""

    topic_id: str
    """Empty where the topic was deleted."""
    term: int
    """The highest that an epoch has."""


def _tables_of(store: ObjectStore, clock: Clock, topics: Sequence[str], *, patient: bool) -> dict[str, _Table]:
    """Reads the tables of topics, by name. One that is damaged must not keep the others from being found; so it is with
    one that the store does not show now where that can wait."""

    def table(name: str) -> _Table | None:
        try:
            snapshot = TopicTable.open(store, name, clock).snapshot
        except Unavailable:
            if not patient:
                raise
            return None
        except SiltlogError:
            return None  # it is being made, or damaged
        term = max((epoch >> TERM_SHIFT for epoch in snapshot.epochs.values()), default=0)
        return _Table("" if snapshot.deleted else snapshot.topic_id, term)

    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        read = dict(zip(topics, pool.map(table, topics), strict=True))
    return {name: found for name, found in read.items() if found is not None}


def reported(log: Log, report: Report) -> Report:
    """What the log says in a beat. A topic that another has taken is no reason to take the others away, too."""
    offsets = (partition.offsets for partition in log.topic_logs.partitions())
    return replace(
        report,
        ready=report.ready and UNABLE.isdisjoint(log.admission.not_ready()),
        unlanded_ms=int(log.journal.stalled_seconds * 1000),
        unflushed_records=sum(max(0, each.shown - each.table) for each in offsets),
    )


async def leave(membership: Membership, seconds_max: float, hurry: asyncio.Event) -> None:
    """Hands over what there is to be handed over, unless somebody is in a hurry."""
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(membership.leave(seconds_max)),
        asyncio.create_task(hurry.wait()),
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def show(membership: Membership, metrics: Metrics) -> None:
    def nodes() -> list[tuple[tuple[str], float]]:
        states = Counter(entry.state for entry in membership.view.nodes.values())
        return [((state,), states[state]) for state in get_args(NodeState)]

    metrics.gauges(catalogue.CLUSTER_NODES, nodes)
    metrics.gauge(catalogue.CLUSTER_VIEW, lambda: membership.view.number)
    metrics.gauge(catalogue.CLUSTER_CONTROLLER, lambda: membership.view.controller == membership.node)
    metrics.gauge(catalogue.CLUSTER_SILENT_SECONDS, lambda: membership.silent_s)
