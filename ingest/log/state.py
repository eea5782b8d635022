"""The things that the WAL remembers besides records: the state at the head of each segment, and the events between."""

from collections.abc import Iterator, Sequence
from typing import TypeVar, Union

import msgspec

from siltlog.infra.errors import ConfigError
from siltlog.ingest.producers.epochs import EpochState, KnownEpoch
from siltlog.ingest.producers.sequencer import ProducerState, is_key, producer_bytes

EPOCHS_REMEMBERED = 64
VERSION = 1
"""Since version 1 a state's table offsets hold from the start of a process on."""
NOT_KNOWN = -1


class PartitionState(msgspec.Struct, array_like=True):
    next_offset: int = 0
    table_offset: int = 0
    """Every record of this WAL below it is in the table by a commit of its own, or was set aside; -1: not known."""
    producers: dict[str, ProducerState] = {}


class TopicState(msgspec.Struct, array_like=True):
    """`epochs` are those this WAL has taken (or was about to take), newest last."""

    name: str
    table_version: int = -1
    epochs: list[int] = []
    open_commit: str = ""
    """A commit whose outcome was not known when this was written."""
    partitions: dict[int, PartitionState] = {}
    producer_epochs: EpochState = msgspec.field(default_factory=EpochState)
    """The epochs that producers have claimed."""
    open_version: int = -1
    """The version of the handle that `open_commit` was to be made on."""
    claiming: dict[int, int] = {}
    """The epochs of the last claim, while its outcome is not recorded: see `Claiming`."""
    shipped: list[int] = []
    """The part of `epochs` under which nothing was acknowledged or shown that is not in the table."""


class WalState(msgspec.Struct, array_like=True):
    """`topics` by topic id (a uuid's text)."""

    topics: dict[str, TopicState] = {}
    version: int = 0


class Claiming(msgspec.Struct, tag=True, array_like=True):
    """`epoch` is about to be claimed for every partition of the topic.

    `offsets`: at which table offset partitions go on that another had gone on with. Once the claim is in the table,
    what this WAL has of them and the table has not is set aside; `Flushed` says that this was done.
    """

    topic_id: str
    topic: str
    epoch: int
    offsets: dict[int, int] = {}
    shipped: bool = False
    """Nothing is acknowledged or shown under it that is not in the table."""


class Shipped(msgspec.Struct, tag=True, array_like=True):
    """All that was acknowledged or shown under `epoch` is in the table, and so it is from now on."""

    topic_id: str
    epoch: int


class Flushing(msgspec.Struct, tag=True, array_like=True):
    """A commit is about to be made on a handle at `version`."""

    topic_id: str
    commit_id: str
    version: int


class Flushed(msgspec.Struct, tag=True, array_like=True):
    topic_id: str
    version: int
    table_offsets: dict[int, int]


class Deleted(msgspec.Struct, tag=True, array_like=True):
    topic_id: str


class Inherited(msgspec.Struct, tag=True, array_like=True):
    """The state of a former owner's producers at the time of our claim, by partition."""

    topic_id: str
    producers: dict[int, dict[str, ProducerState]]
    producer_epochs: EpochState = msgspec.field(default_factory=EpochState)


class ProducerClaimed(msgspec.Struct, tag=True, array_like=True):
    """A producer took an epoch."""

    topic_id: str
    producer_id: str
    epoch: int
    now_us: int


Event = Union[Claiming, Shipped, Flushing, Flushed, Deleted, Inherited, ProducerClaimed]  # noqa: UP007 (msgspec builds its decoder from it)

encode = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(WalState).decode
decode_event = msgspec.msgpack.Decoder(Event).decode


def recovered(content: bytes | None) -> WalState:
    """The state as it was written, an empty one where none was. Raises ConfigError for a newer version's."""
    if content is None:
        return WalState(version=VERSION)
    state = decode_state(content)
    if state.version > VERSION:
        raise ConfigError(
            f"the state in the write-ahead log is of version {state.version}, and this version of siltlog reads up to "
            f"{VERSION}: start the newer version again"
        )
    if state.version < VERSION:
        for topic in state.topics.values():
            for partition in topic.partitions.values():
                partition.table_offset = NOT_KNOWN
    return state


def shortened(state: WalState) -> WalState:
    """The same with only the last request of each producer: a retry of one before it is told without its offsets."""
    short = {topic_id: _short_topic(topic) for topic_id, topic in state.topics.items()}
    return msgspec.structs.replace(state, topics=short)


def _short_topic(topic: TopicState) -> TopicState:
    return msgspec.structs.replace(
        topic,
        partitions={
            number: msgspec.structs.replace(
                partition,
                producers={
                    producer_id: msgspec.structs.replace(known, batches=known.batches[-1:])
                    for producer_id, known in partition.producers.items()
                },
            )
            for number, partition in topic.partitions.items()
        },
    )


def bound_producers(state: WalState, bytes_max: float) -> None:
    """Forgets producers and claimed epochs, those unused for longest, until those left take at most `bytes_max`."""
    producers = [
        (known.used_us, partition.producers, producer_id)
        for topic in state.topics.values()
        for partition in topic.partitions.values()
        for producer_id, known in partition.producers.items()
        if not is_key(producer_id)
    ]
    epochs = [
        (known.used_us, topic.producer_epochs, producer_id)
        for topic in state.topics.values()
        for producer_id, known in topic.producer_epochs.epochs.items()
    ]
    # Where both are many each has half: they age by clocks of their own.
    epochs_max = max(bytes_max / 2, bytes_max - _bytes(producers))
    for _, claimed, producer_id in _forgotten(epochs, epochs_max):
        claimed.floor = max(claimed.floor, claimed.epochs.pop(producer_id).claimed)
    for _, known_producers, producer_id in _forgotten(producers, bytes_max - min(_bytes(epochs), epochs_max)):
        del known_producers[producer_id]


_Where = TypeVar("_Where")
_Used = tuple[int, _Where, str]
"""When a producer was used, where that is known, its id."""


def _bytes(used: Sequence[_Used[_Where]]) -> int:
    return sum(producer_bytes(producer_id) for _, _, producer_id in used)


def _forgotten(used: Sequence[_Used[_Where]], bytes_max: float) -> Iterator[_Used[_Where]]:
    """Yields those unused for longest, until the others take at most `bytes_max`."""
    left = _bytes(used)
    for one in sorted(used, key=lambda each: each[0]):
        if left <= bytes_max:
            return
        left -= producer_bytes(one[2])
        yield one


def apply(state: WalState, event: Event) -> None:
    """Brings the state up to date with an event that was written after it."""
    if isinstance(event, Claiming):
        topic = state.topics.setdefault(event.topic_id, TopicState(event.topic))
        topic.epochs = [*topic.epochs, event.epoch][-EPOCHS_REMEMBERED:]
        topic.claiming = event.offsets
        if event.shipped:
            topic.shipped = [*topic.shipped, event.epoch][-EPOCHS_REMEMBERED:]
    elif isinstance(event, Deleted):
        state.topics.pop(event.topic_id, None)
    elif (known := state.topics.get(event.topic_id)) is not None:
        if isinstance(event, Flushing):
            known.open_commit = event.commit_id
            known.open_version = event.version
        elif isinstance(event, Shipped):
            known.shipped = [*known.shipped, event.epoch][-EPOCHS_REMEMBERED:]
        elif isinstance(event, Inherited):
            for partition, producers in event.producers.items():
                known.partitions.setdefault(partition, PartitionState()).producers = producers
            known.producer_epochs = event.producer_epochs
        elif isinstance(event, ProducerClaimed):
            # Popped and put back: they are in order of use.
            known.producer_epochs.epochs.pop(event.producer_id, None)
            known.producer_epochs.epochs[event.producer_id] = KnownEpoch(event.epoch, event.now_us, event.epoch)
        else:
            known.open_commit = ""
            known.claiming = {}
            known.table_version = event.version
            for partition, offset in event.table_offsets.items():
                entry = known.partitions.setdefault(partition, PartitionState())
                entry.table_offset = offset
                entry.next_offset = max(entry.next_offset, offset)
