"""A beat: what a node says of itself, over and over, in an object that it alone writes. Pure."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from siltlog.infra import names
from siltlog.infra.cluster.view import FORMAT, check_format
from siltlog.infra.errors import problem

Going = Literal["on", "draining", "away"]
TopicState = Literal["waiting", "claimed", "settled"]


class TopicReport(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that the newest view gives this node, or that it still owns."""

    term: int
    """The term under which it is owned, or waited for."""
    state: TopicState
    """`settled`: what was recovered from other journals is in the own journal or in the table."""
    awaited: int = 0
    """The term whose data directory has what nobody else may go past, for a topic that waits; 0: of no term."""
    unexplained: int = 0
    """The term of an epoch of the table that nobody of the chain has taken, for a topic that waits."""
    floor: int = 0
    """The term of the table's epoch, where `term` is not above it, or was handed back: a higher one is needed."""
    held: int = 0
    """The term of the node that has claimed it and is not lost, for a topic that waits."""
    kept: int = 0
    """The term to which it was to be handed over, and which was given up before anything was sent."""


WishKind = Literal["drain", "remove", "move", "abandon", "balance", "adopt", "forget"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is asked for. It stays in the beat of the node that was asked until a view tells of it.

    `drain`, `remove` are for a node, `move` for a topic and a node (none: any other), `abandon` for a topic,
    `balance` for none of both; `adopt` tells of a topic that was made, and may name a node for it, `forget` of one that
    was deleted.
    """

    id: str
    kind: str
    """A `WishKind`, or what a later release asks for: a beat that says so is read all the same."""
    node: str = ""
    topic: str = ""
    topic_id: str = ""
    patient: bool = False
    """What cannot be done yet, and soon can, is not refused."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of a node says in its beat."""

    ready: bool = True
    """Whether it can acknowledge."""
    unreachable: tuple[str, ...] = ()
    """Members that it cannot reach."""
    unlanded_ms: int = 0
    """How old the oldest entry is that no landed object of the journal has."""
    unflushed_records: int = 0
    """Acknowledged records that are in no table."""
    redis: str = ""
    """The random value that it finds in the Redis of the groups."""
    redisless: bool = False
    """Whether that did not answer it when it was asked last."""
    topics: Mapping[str, TopicReport] = {}


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    beat: int
    """Rises with each."""
    format: int = FORMAT
    formats: int = FORMAT
    """The highest format that its release reads and writes: what it offers."""
    node: str
    data_dir: str
    place: str
    journal: str
    ends: tuple[str, ...] = ()
    """Journals that are known to be over: former ones of this data directory."""
    url: str
    proof: str = ""
    """A proof that the URL was said by a node which has the cluster's secret: see `addresses.py`."""
    kafka: str = ""
    """Where Kafka's clients call it, as `host:port`; empty where it does not speak their protocol."""
    kafka_proof: str = ""
    zone: str = ""
    version: str = ""
    """The version of the software: for people."""
    going: Going = "on"
    """`draining`: it is to stop; `away`: it has stopped, and its journal is over."""
    view: int = 0
    """The newest view that it knows."""
    rounds: int = 0
    """How many times it has planned, as the controller: one that beats and plans nothing is replaced."""
    wishes: tuple[Wish, ...] = ()
    report: Report = Report()


_beats = msgspec.json.Decoder(Beat)


def encode_beat(beat: Beat) -> bytes:
    return msgspec.json.encode(beat)


def decode_beat(content: bytes, node: str, formats: int = FORMAT) -> Beat:
    """Raises ConfigError for a format above `formats`, CorruptData for what is no beat of `node`."""
    path = names.beat_object(node)
    try:
        check_format(content, path, formats)
        beat = _beats.decode(content)
    except msgspec.DecodeError as error:
        raise problem("corrupt_data", f"{path} is not a beat: {error}") from None
    if beat.node != node:
        raise problem("corrupt_data", f"{path} holds the beat of node {beat.node}")
    return beat
