"""What one node says of itself at a moment: the part of a snapshot that it gives to whichever node is asked."""

import msgspec


class Reason(msgspec.Struct, frozen=True):
    detail: str
    code: str = ""


class Attention(msgspec.Struct, frozen=True):
    """Something that somebody should look at. `subject` is the name of a topic, a group, a job or a node."""

    kind: str
    severity: str
    subject: str
    detail: str
    of: str = "cluster"
    """Says what a viewer must be able to describe to be told: the `topic` or `group` of that name, or the `cluster`."""


class TopicPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic of its owner; what comes and goes is per second."""

    name: str
    partitions: int
    records: int
    bytes: int
    files: int
    small_files: int
    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float
    table_lag_s: float

    @property
    def busy(self) -> tuple[float, float, int]:
        """What is higher is busier."""
        return self.bytes_in + self.bytes_out, self.table_lag_s, self.records


class LagPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a group is behind in a topic: `seconds` in its partition that is worst."""

    group: str
    topic: str
    records: int
    seconds: float
    committed_ms: int
    """When it committed last."""


class Sums(msgspec.Struct, frozen=True):
    """Sums over all topics of a node."""

    topics: int = 0
    records: int = 0
    bytes: int = 0
    records_in: float = 0.0
    bytes_in: float = 0.0
    records_out: float = 0.0
    bytes_out: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Sums(*(one + two for one, two in zip(mine, theirs, strict=True)))


class Disk(msgspec.Struct, frozen=True):
    free: int
    total: int


class Wal(msgspec.Struct, frozen=True):
    bytes: int
    bytes_max: int


class NodePart(msgspec.Struct, frozen=True):
    node: str
    version: str
    started_at: str
    reasons: list[Reason]
    wal: Wal
    disk: Disk | None
    connections: int
    ack_p99_ms: float | None
    sums: Sums
    topics: list[TopicPart]
    """Topics of this node; another node is given the busiest alone."""
    lags: list[LagPart]
    """Groups, which only the node that keeps what they commit tells of."""
    attention: list[Attention]


def sums_of(topics: list[TopicPart]) -> Sums:
    return Sums(
        len(topics),
        sum(topic.records for topic in topics),
        sum(topic.bytes for topic in topics),
        sum(topic.records_in for topic in topics),
        sum(topic.bytes_in for topic in topics),
        sum(topic.records_out for topic in topics),
        sum(topic.bytes_out for topic in topics),
    )
