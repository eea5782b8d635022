"""Reads what a WAL holds when a node starts: its state with the events after it, and its frames by partition."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from siltlog.infra.errors import problem
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.wal import FrameKind, Location, Recovery


@dataclass(frozen=True, slots=True)
class FoundFrame:
    first_offset: int
    next_offset: int
    epoch: int
    location: Location
    payload: pa.Buffer


@dataclass(slots=True)
class Found:
    """The contents of the WAL, by topic id (a uuid's text) and partition."""

    state: wal_state.WalState
    frames: dict[tuple[str, int], list[FoundFrame]]
    replays: dict[tuple[str, int], list[FoundFrame]]
    """The part of `frames` whose producers the state does not know of."""

    def frames_of(self, topic_id: str, partition: int) -> list[FoundFrame]:
        """The partition's frames in the order of their offsets, each of which comes once."""
        return list(each_once(self.frames.get((topic_id, partition), ())))


def read_wal(recovery: Recovery) -> Found:
    state = wal_state.recovered(recovery.state)
    frames: dict[tuple[str, int], list[FoundFrame]] = defaultdict(list)
    replays: dict[tuple[str, int], list[FoundFrame]] = defaultdict(list)
    for index, (frame, location) in enumerate(recovery.frames):
        if frame.kind == FrameKind.RECORDS:
            key = (str(uuid.UUID(bytes=frame.topic_id)), frame.partition)
            end = frame.first_offset + frame.count
            found = FoundFrame(frame.first_offset, end, frame.epoch, location, frame.payload_whole)
            frames[key].append(found)
            if index >= recovery.frames_before_state:
                replays[key].append(found)
        elif index >= recovery.frames_before_state:
            wal_state.apply(state, wal_state.decode_event(frame.payload_whole.to_pybytes()))
    return Found(state, frames, replays)


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
