"""Reads a sealed journal, and finds a partition's records in several. What is missing is named, never skipped."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import REQUESTS_AT_ONCE, ObjectStore
from siltlog.ingest.journal.codec import Read, decode_header, decode_object, path_of
from siltlog.ingest.journal.seal import Sealed, listed
from siltlog.ingest.wal.codec import Frame, FrameKind


class Kept(NamedTuple):
    """Records of a partition that a journal has, each once."""

    first_offset: int
    next_offset: int
    epoch: int
    begin: int
    """The offset of the first record in `payload`, at most `first_offset`."""
    payload: pa.Buffer


def read(store: ObjectStore, cluster_id: str, sealed: Sealed) -> list[Read]:
    """The objects below the seal, in order. Call it once what the journal had was claimed: until then it may be trimmed
    meanwhile, of records that no table has for who reads.

    Raises CorruptData where one is gone or damaged; Unavailable.
    """

    def one(number: int) -> Read | None:
        try:
            data = store.get(path_of(sealed.journal, number))
        except FileNotFoundError:
            return None
        return decode_object(data, cluster_id=cluster_id, journal=sealed.journal, number=number)

    numbers = range(sealed.first, sealed.end)
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        found = list(pool.map(one, numbers))
    gone = [number for number, read_one in zip(numbers, found, strict=True) if read_one is None]
    if gone and gone[-1] >= (first := _first_now(store, cluster_id, sealed)):
        missing = next(number for number in gone if number >= first)
        raise problem(
            "corrupt_data",
            f"{path_of(sealed.journal, missing)} is gone, and records in it may be in no table: restore "
            "it from a copy of the store",
            path=path_of(sealed.journal, missing),
        )
    return [read_one for read_one in found if read_one is not None]


def _first_now(store: ObjectStore, cluster_id: str, sealed: Sealed) -> int:
    """Its process may have trimmed once more before it met the seal."""
    highest = max(listed(store, sealed.journal), default=sealed.end)
    data = store.get(path_of(sealed.journal, highest))
    return decode_header(data, cluster_id=cluster_id, journal=sealed.journal, number=highest).first


def frames_of(objects: Iterable[Read]) -> Iterator[Frame]:
    for found in objects:
        for group in found.groups:
            yield from group


def kept(
    frames: Iterable[Frame], topic: str, topic_id: bytes, partition: int, epochs: Sequence[int], table_offset: int
) -> list[Kept]:
    """The records from `table_offset` on that were appended in one of `epochs`, in order.

    Raises CorruptData that names the offsets between two of them, or between the table and the first.
    """
    known = {epoch: order for order, epoch in enumerate(epochs)}
    own = [
        frame
        for frame in frames
        if frame.kind is FrameKind.RECORDS
        and (frame.topic_id, frame.partition) == (topic_id, partition)
        and frame.epoch in known
        and frame.first_offset + frame.count > table_offset
    ]
    result: list[Kept] = []
    end = table_offset
    # The same records may be there again, written once more by who took over: of those that begin alike the longest
    # holds the others.
    for frame in sorted(own, key=lambda frame: (frame.first_offset, -frame.count)):
        if frame.first_offset > end:
            raise _missing(topic, partition, end, frame.first_offset)
        if frame.first_offset + frame.count > end:
            result.append(
                Kept(end, frame.first_offset + frame.count, frame.epoch, frame.first_offset, frame.payload_whole)
            )
            end = result[-1].next_offset
    return result


def controls(frames: Iterable[Frame], topic_id: bytes) -> list[bytes]:
    """What a topic's producers claimed, in order."""
    return [
        frame.payload_whole.to_pybytes()
        for frame in frames
        if frame.kind is FrameKind.CONTROL and frame.topic_id == topic_id
    ]


def _missing(topic: str, partition: int, first: int, end: int) -> SiltlogError:
    return problem(
        "corrupt_data",
        f"offsets {first} to {end - 1} of topic {topic}, partition {partition}, were acknowledged and are neither in "
        "its table nor in the journals of its former owners: restore what is missing from a copy of the store",
        topic=topic,
        partition=partition,
    )
