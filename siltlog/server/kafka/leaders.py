"""Tells Kafka's clients who leads the partitions of a topic: this node, or where several share a root its owner.

A leader epoch is the term of the owner.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from siltlog.infra import names
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.router import Here, There, Unknown
from siltlog.infra.cluster.routes import ViewRoutes
from siltlog.infra.cluster.view import ClusterView
from siltlog.infra.locations import listening_at

ALONE = 1
"""The number of a node that shares its root with no other."""
NOBODY = -1
NO_EPOCH = -1
Address = tuple[str, int]


class Broker(NamedTuple):
    """A node as Kafka's clients know it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Leader(NamedTuple):
    """`node_id` is `NOBODY` while nobody leads whom clients can call."""

    node_id: int = NOBODY
    epoch: int = NO_EPOCH


class Leaders(Protocol):
    """Used on one event loop."""

    def brokers(self, reached: Address) -> Sequence[Broker]:
        """All that clients can call, by rising numbers; `reached` is the address that this one has reached."""

    def own_id(self) -> int:
        """The number of this node; `NOBODY` while it has none."""

    def leader(self, topic: str) -> Leader:
        """Tells who leads the partitions of a topic that there is."""

    def replica(self, topic: str) -> int:
        """The number of the node that has the topic, whether or not it can be called; `NOBODY` where none is known."""

    def node(self, number: int) -> str:
        """The name of one of the `brokers`, by which nodes know it; empty where there is only this one."""

    def going_to(self, topic: str) -> int:
        """The number of the node that is about to have the topic; `NOBODY` while it stays where it is."""

    def leads(self, topic: str, *, reads: bool = False) -> bool:
        """Whether this node answers for a topic, or says that there is none; what `reads` needs an owner that nobody
        takes for gone."""


class LeadsAlone:
    """Satisfies Leaders where no other node shares the root."""

    def __init__(self, leader_epoch: Callable[[str], int], advertised: Address | None) -> None:
        """`advertised` is the address by which clients reach it; None: the one that each has reached."""
        self._leader_epoch = leader_epoch
        self._advertised = advertised

    def brokers(self, reached: Address) -> Sequence[Broker]:
        return [Broker(ALONE, *(self._advertised or reached))]

    def own_id(self) -> int:
        return ALONE

    def leader(self, topic: str) -> Leader:
        return Leader(ALONE, self._leader_epoch(topic))

    def replica(self, topic: str) -> int:
        return ALONE

    def node(self, number: int) -> str:
        return ""

    def going_to(self, topic: str) -> int:
        return NOBODY

    def leads(self, topic: str, *, reads: bool = False) -> bool:
        return True


class OwnersLead:
    """Satisfies Leaders where nodes share the root: each leads what it owns."""

    def __init__(
        self,
        node: str,
        routes: ViewRoutes,
        view: Callable[[], ClusterView],
        addresses: Addresses,
        leader_epoch: Callable[[str], int],
    ) -> None:
        """`node` is the name of this one; `leader_epoch(topic)` is of what it owns."""
        self._node = node
        self._routes = routes
        self._view = view
        self._addresses = addresses
        self._leader_epoch = leader_epoch
        self._known: tuple[ClusterView | None, Mapping[str, Broker]] = (None, {})
        """The brokers of a view, by the names of their nodes."""

    def brokers(self, reached: Address) -> Sequence[Broker]:
        return sorted(self._brokers().values())

    def own_id(self) -> int:
        own = self._brokers().get(self._node)
        return NOBODY if own is None else own.node_id

    def leader(self, topic: str) -> Leader:
        # Who may still append leads, also while others may take it for gone: a producer has nobody else to go to.
        match self._routes.where(topic, decides=False):
            case Here():
                return self._of(self._node, self._leader_epoch(topic))
            case There(member):
                return self._of(member.node, self._term(topic, member.journal))
        return Leader()

    def replica(self, topic: str) -> int:
        entry = self._view().topics.get(topic)
        node = None if entry is None else self._view().nodes.get(entry.owner.node)
        return node.number if node is not None and node.number else self.own_id()

    def node(self, number: int) -> str:
        return next(name for name, broker in self._brokers().items() if broker.node_id == number)

    def going_to(self, topic: str) -> int:
        entry = self._view().topics.get(topic)
        node = None if entry is None or entry.to is None else self._view().nodes.get(entry.to.node)
        return node.number if node is not None and node.number else NOBODY

    def leads(self, topic: str, *, reads: bool = False) -> bool:
        return isinstance(self._routes.where(topic, decides=reads), Here | Unknown)

    def _of(self, node: str, epoch: int) -> Leader:
        broker = self._brokers().get(node)
        return Leader() if broker is None else Leader(broker.node_id, epoch)

    def _term(self, topic: str, journal: str) -> int:
        entry = self._view().topics.get(topic)
        term = None if entry is None else entry.entitled(journal)
        return NO_EPOCH if term is None else term.term

    def _brokers(self) -> Mapping[str, Broker]:
        view = self._view()
        if self._known[0] is not view:
            found = {}
            for name, entry in view.members():
                address = self._addresses.kafka(name, entry)
                if entry.number and address:
                    found[name] = Broker(entry.number, *listening_at(address), entry.zone or None)
            self._known = view, found
        return self._known[1]


def numbers(leaders: Leaders, reached: Address) -> set[int]:
    """The numbers of the nodes that clients can call."""
    return {broker.node_id for broker in leaders.brokers(reached)}


def destined(leaders: Leaders, topic: str) -> int:
    """The number of the node that has a topic, or is about to have it."""
    to = leaders.going_to(topic)
    return leaders.replica(topic) if to == NOBODY else to


def find_broker(leaders: Leaders, topic: str, reached: Address) -> Broker | None:
    """The node that owns a topic, as Kafka's clients call it; None while nobody does whom they can call."""
    node_id = leaders.leader(topic).node_id
    return next((broker for broker in leaders.brokers(reached) if broker.node_id == node_id), None)


def find_coordinator(leaders: Leaders, reached: Address) -> Broker | None:
    """The node that clients are sent to for groups: who owns the topic of their offsets, and so hears first of what
    changes in them.

    Any node answers for any group. So while nobody owns that topic, or it was not made yet, all nodes name the one with
    the lowest number. None where no node can be called.
    """
    return find_broker(leaders, names.OFFSETS_TOPIC, reached) or next(iter(leaders.brokers(reached)), None)


def current_leader(leaders: Leaders, topic: str) -> Mapping[str, Any]:
    """What an answer that this node does not lead a partition says of who does; nothing where that is not known."""
    leader = leaders.leader(topic)
    if leader.node_id in (NOBODY, leaders.own_id()):
        return {}
    return {"current_leader": {"leader_id": leader.node_id, "leader_epoch": leader.epoch}}


def endpoints(leaders: Leaders, parts: Iterable[Mapping[str, Any]], reached: Address) -> Sequence[Mapping[str, Any]]:
    """Where the leaders are that the partitions of an answer name."""
    named = {part["current_leader"]["leader_id"] for part in parts if "current_leader" in part}
    return [broker._asdict() for broker in leaders.brokers(reached) if broker.node_id in named] if named else []
