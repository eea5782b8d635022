"""What a WAL holds when a node starts: its state with the events after it, and its frames by partition."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from siltlog.infra.errors import problem
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.producers.sequencer import ProducerBatch, Sequencer
from siltlog.ingest.records.batch import LogBatch
from siltlog.ingest.wal import FrameKind, Location, Recovery

FrameKey = tuple[str, int]
"""A topic's id (a uuid's text) and a partition."""


@dataclass(frozen=True, slots=True)
class FoundFrame:
    first_offset: int
    next_offset: int
    epoch: int
    location: Location
    payload: Callable[[], pa.Buffer]


@dataclass(slots=True)
class Found:
    """The contents of the WAL. `state` knows the producers of all `frames`."""

    state: wal_state.WalState
    frames: dict[FrameKey, list[FoundFrame]]


def read_wal(recovery: Recovery, now_us: int) -> Found:
    state = wal_state.recovered(recovery.state)
    frames: dict[FrameKey, list[FoundFrame]] = defaultdict(list)
    replays: dict[FrameKey, list[FoundFrame]] = defaultdict(list)
    for index, (frame, location) in enumerate(recovery.frames):
        if frame.kind == FrameKind.RECORDS:
            key = (str(uuid.UUID(bytes=frame.topic_id)), frame.partition)
            end = frame.first_offset + frame.count
            found = FoundFrame(frame.first_offset, end, frame.epoch, location, _mapped(frame.payload_whole))
            frames[key].append(found)
            if index >= recovery.frames_before_state:
                replays[key].append(found)
        elif index >= recovery.frames_before_state:
            wal_state.apply(state, wal_state.decode_event(frame.payload_whole.to_pybytes()))
    for known in state.topics.values():
        _skip_downtime(known, now_us)
    for (topic_id, partition), later in _of_this_life(replays, state).items():
        known_partitions = state.topics[topic_id].partitions
        _replay(known_partitions.setdefault(partition, wal_state.PartitionState()), later, now_us)
    return Found(state, _of_this_life(frames, state))


def _of_this_life(
    frames: dict[FrameKey, list[FoundFrame]], state: wal_state.WalState
) -> dict[FrameKey, list[FoundFrame]]:
    """Leaves out what is no concern of this node any more: of topics that were deleted or given up, and what it had of
    a topic before it gave that up and claimed it anew. Their segments may go at any time.

    A claim is in the WAL before the frames of its epoch. Where so many were taken since that the first are forgotten,
    all frames are kept.
    """
    found = {}
    for (topic_id, partition), all_frames in frames.items():
        known = state.topics.get(topic_id)
        if known is not None:
            tells = len(known.epochs) < wal_state.EPOCHS_REMEMBERED
            of_life = [one for one in all_frames if not tells or one.epoch == 0 or one.epoch in known.epochs]
            if of_life:
                found[topic_id, partition] = of_life
    return found


def _mapped(payload: pa.Buffer) -> Callable[[], pa.Buffer]:
    return lambda: payload


def _skip_downtime(known: wal_state.TopicState, now_us: int) -> None:
    """While no server ran nobody could publish: that time makes no producer and no key older. Nor are they from a time
    to come where the clock was set back."""
    producers = [state for partition in known.partitions.values() for state in partition.producers.values()]
    skipped_us = max(0, now_us - max((state.used_us for state in producers), default=now_us))
    for state in producers:
        state.used_us = min(state.used_us + skipped_us, now_us)


def _replay(known: wal_state.PartitionState, frames: Iterable[FoundFrame], now_us: int) -> None:
    """Has the state know the producers of frames that were written after it."""
    sequencer = Sequencer()
    sequencer.load(known.producers.items())
    for frame in frames:
        replay_batch(sequencer, LogBatch.from_payload(frame.first_offset, frame.payload()), now_us)
        known.next_offset = max(known.next_offset, frame.next_offset)
    known.producers = sequencer.producers | sequencer.keys


def replay_batch(sequencer: Sequencer, batch: LogBatch, now_us: int) -> None:
    """Has `sequencer` know what a stored batch says of its producers."""
    at = batch.first_offset
    for rows, run in batch.runs:
        if run is not None:
            skipped = 0
            first = run.first_sequence
            if first is None:
                own = batch.columns.column("sequence")
                begin = at - batch.first_offset
                first, last = own[begin].as_py(), own[begin + rows - 1].as_py()
                skipped = last - first + 1 - rows
            sent = ProducerBatch(run.producer_id, run.producer_epoch, first, rows, skipped)
            sequencer.replay(sent, at, now_us)
        at += rows


def each_once(frames: Iterable[FoundFrame]) -> Iterator[FoundFrame]:
    """Yields frames in order, each offset once."""
    end = 0
    # By offset, not by place: records of a topic that could not be flushed were written again further on, in frames
    # that may hold several of the first ones. Of those that begin alike the longest holds the others.
    for frame in sorted(frames, key=lambda frame: (frame.first_offset, -frame.next_offset)):
        if frame.next_offset > end:
            yield frame
            end = frame.next_offset


def check_contiguous(topic: str, partition: int, frames: Sequence[FoundFrame]) -> None:
    """Raises CorruptData that names the offsets between two frames."""
    for before, after in pairwise(frames):
        if after.first_offset != before.next_offset:
            raise problem(
                "corrupt_data",
                f"the write-ahead log lacks offsets {before.next_offset} to {after.first_offset - 1} of topic {topic}, "
                f"partition {partition}",
                topic=topic,
                partition=partition,
            )
