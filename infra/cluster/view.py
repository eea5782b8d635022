"""A view: which nodes there are, and which of them is to own what. A value that is numbered and put whole. Pure."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import ConfigError, problem

FORMAT = 1
"""The newest format of what nodes store for each other: of views, beats, journals, and the state of producers."""
TERM_SHIFT = 32
"""The bits of an epoch above these are its term's."""

NodeState = Literal["up", "draining", "away"]
DrainReason = Literal["", "operator", "unready", "stop"]


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A member. Its journal is lost once it is away, and stays so; it comes back with another."""

    data_dir: str
    """The id of its data directory (a uuid)."""
    place: str
    """The machine and the file that this data directory is on: a copy of it lies elsewhere."""
    journal: str
    """The journal (a uuid) of its present start, or of the last."""
    url: str
    """Where the other nodes, and clients, call it."""
    proof: str = ""
    """The proof that it said so itself, as its beat has it."""
    number: int = 0
    """Its number, by which Kafka's clients know it: no other node was ever given it. 0: none yet."""
    kafka: str = ""
    """Where Kafka's clients call it, as `host:port`; empty where it does not speak their protocol."""
    kafka_proof: str = ""
    zone: str = ""
    ends: tuple[str, ...] = ()
    """The journals that it had before, the newest last. They are lost: a beat of theirs that comes late is no sign of
    life."""
    state: NodeState = "up"
    drain: DrainReason = ""
    """Why it is draining, or was when it went away."""
    since_us: int = 0
    """Since when the state is this one, by the clock of the controller then: for people."""
    unflushed_records: int = 0
    """How many records were in no table at its last beat, for a node that is away."""


class TermEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One journal's right to a topic. The same term is never given twice."""

    term: int
    node: str
    data_dir: str
    journal: str
    lost: bool = False
    """Whether the journal is lost: it gets no topic any more, and may be sealed."""


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: str
    chain: tuple[TermEntry, ...]
    """The terms whose journals may be needed; the owner's is last. There is one at least."""
    to: TermEntry | None = None
    """Whom the owner is to hand over to; not in the chain yet."""
    abandon: int = 0
    """By an operator's word what was acknowledged under terms up to this one, and is in no table, is given up; 0: none.
    Until the topic is claimed."""

    @property
    def owner(self) -> TermEntry:
        return self.chain[-1]

    @property
    def terms(self) -> tuple[TermEntry, ...]:
        """The chain, and who it is to be handed to."""
        return self.chain if self.to is None else (*self.chain, self.to)

    def term(self, number: int) -> TermEntry | None:
        """The entry of that term, if this view has it."""
        return next((entry for entry in self.terms if entry.term == number), None)

    def entitled(self, journal: str) -> TermEntry | None:
        """Returns the term under which `journal` may claim the topic: the owner's, or that of who is to be it."""
        return next((entry for entry in (self.to, self.owner) if entry is not None and entry.journal == journal), None)


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    format: int = FORMAT
    """What a node must be able to read to be a member, and what members write."""
    cluster_id: str
    controller: str
    """The node that wrote it."""
    journal: str
    """The journal of that node."""
    nonce: str
    """Tells it from what another wrote, or the same node before, under this number."""
    journal_root: str = ""
    """Where journals are, if not in the root; and the id of that place."""
    journal_root_id: str = ""
    nodes: Mapping[str, NodeEntry] = {}
    """By the names of the nodes."""
    topics: Mapping[str, TopicEntry] = {}
    """By the names of the topics."""
    removed: Mapping[str, str] = {}
    """Nodes that an operator has removed, with their last journals: those come back no more. The newest are last."""
    term: int = 0
    """The highest that was ever given, of any topic."""
    node_number: int = 0
    """The highest that was ever given, of any node."""
    balancing: bool = False
    """Whether topics are to move until all nodes have as many: since a node joined, or an operator asked for it."""
    dissolved: bool = False
    """No node shares the root any more: one server may have it alone, until a node comes and writes the next view."""
    wishes: Mapping[str, str] = {}
    """Wishes that were looked at last, by their ids: empty, or why it was refused. The newest are last."""

    def members(self) -> Iterator[tuple[str, NodeEntry]]:
        """Yields the nodes that are there: up or draining."""
        return ((name, node) for name, node in self.nodes.items() if node.state != "away")

    def listed(self, node: str, journal: str) -> bool:
        """Whether the journal is that of a member."""
        entry = self.nodes.get(node)
        return entry is not None and entry.journal == journal and entry.state != "away"

    def owned(self, journal: str) -> Iterator[tuple[str, TopicEntry]]:
        """The topics whose owner is this journal."""
        return ((name, topic) for name, topic in self.topics.items() if topic.owner.journal == journal)


class _Format(msgspec.Struct):
    format: int


_formats = msgspec.json.Decoder(_Format)


def check_format(content: bytes, path: str, formats: int) -> None:
    """Raises ConfigError for an object of a format above `formats`, msgspec.DecodeError for one that says none."""
    found = _formats.decode(content).format
    if found > formats:
        raise ConfigError(
            f"{path} is of format {found}, and this release reads formats up to {formats}: upgrade this node"
        )


_views = msgspec.json.Decoder(ClusterView)


def encode_view(view: ClusterView) -> bytes:
    return msgspec.json.encode(view)


def decode_view(content: bytes, number: int, formats: int = FORMAT) -> ClusterView:
    """Raises ConfigError for a format above `formats`, CorruptData for what is not view `number`."""
    path = names.view_object(number)
    try:
        check_format(content, path, formats)
        view = _views.decode(content)
    except msgspec.DecodeError as error:
        raise problem("corrupt_data", f"{path} is not a view: {error}") from None
    if view.number != number or not all(topic.chain for topic in view.topics.values()):
        raise problem("corrupt_data", f"{path} holds view {view.number}, or a topic without an owner")
    return view
