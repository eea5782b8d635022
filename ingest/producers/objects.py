"""Producer state beside the table: for a successor that does not have this node's WAL.

An object covers every record below the offset in its name; newer records are read again from the table. So it never
depends on records that retention or compaction may have removed. Claimed producer epochs belong to no record; each
owner of the topic has one object for them.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import read_data_file
from siltlog.infra.table.producer_objects import OBJECTS_KEPT
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.producers.epochs import EpochState, ProducerEpochs
from siltlog.ingest.producers.sequencer import ProducerBatch, ProducerState, Sequencer, StateBytes

PUTS_AT_ONCE = 8
_COLUMNS = ("offset", "timestamp", "producer_id", "producer_epoch", "sequence")
_decode = msgspec.msgpack.Decoder(dict[str, ProducerState]).decode
_decode_epochs = msgspec.msgpack.Decoder(EpochState).decode
_encode = msgspec.msgpack.Encoder().encode


class StateObject(NamedTuple):
    """The producers of every record of `partition` below `offset`."""

    partition: int
    offset: int
    producers: Mapping[str, ProducerState]


def write(
    store: ObjectStore, topic: str, topic_id: str, objects: Sequence[StateObject], former: Mapping[int, list[str]]
) -> dict[int, list[str]]:
    """Puts objects of several partitions, durably, and removes older ones: the paths of what is left, by partition.

    `former` are such paths of the writer's calls before; of a partition without them they are looked up.
    """
    paths = {
        state.partition: f"{names.topic_path(topic)}/{names.state_object(topic_id, state.partition, state.offset)}"
        for state in objects
    }
    with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
        list(pool.map(lambda state: store.put(paths[state.partition], _encode(state.producers)), objects))
    store.sync(paths.values())
    left = {}
    for partition, path in paths.items():
        before = former.get(partition)
        there = _objects(store, topic, topic_id, partition) if before is None else sorted({*before, path})
        for old in there[:-OBJECTS_KEPT]:
            store.delete(old)
        left[partition] = there[-OBJECTS_KEPT:]
    return left


def remove(store: ObjectStore, topic: str, topic_id: str) -> None:
    """Removes all of it: the topic of that id is deleted."""
    folder = f"{names.topic_path(topic)}/{names.STATE_FOLDER}/{topic_id}"
    paths = [info.path for info in store.list(folder + "/")]
    with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
        list(pool.map(store.delete, paths))
    for emptied in {path.rpartition("/")[0] for path in paths}:
        store.prune(emptied)


def read(store: ObjectStore, topic: str, snapshot: TableSnapshot, partition: int) -> dict[str, ProducerState]:
    """The producers of a partition as of the table offset of `snapshot`."""
    sequencer = Sequencer()
    covered = 0
    for path in reversed(_objects(store, topic, snapshot.topic_id, partition)):
        offset = int(path.rsplit("/", 1)[1])
        if offset <= snapshot.offsets[partition]:
            sequencer.load(_decode(store.get(path)).items())
            covered = offset
            break
    for file in snapshot.files_of(partition):
        if file.last_offset >= covered:
            _replay(sequencer, read_data_file(store, topic, file, columns=_COLUMNS, first_offset=covered))
    return sequencer.producers | sequencer.keys


def write_epochs(store: ObjectStore, topic: str, topic_id: str, epoch: int, epochs: bytes) -> None:
    """Puts the producer epochs that the owner of `epoch` knows of (`encode_epochs`), durably; its forerunners' go.

    That of a forerunner that still writes is found beside it: it may say less, but nothing else.
    """
    path = f"{names.topic_path(topic)}/{names.claims_object(topic_id, epoch)}"
    store.put(path, epochs)
    store.sync([path])
    for other in _claim_objects(store, topic, topic_id):
        if other < path:
            store.delete(other)


def encode_epochs(epochs: EpochState) -> bytes:
    return _encode(epochs)


def read_epochs(store: ObjectStore, topic: str, topic_id: str) -> EpochState:
    epochs = ProducerEpochs(StateBytes())
    for path in _claim_objects(store, topic, topic_id):
        epochs.load(_decode_epochs(store.get(path)))
    return epochs.dump()


def _claim_objects(store: ObjectStore, topic: str, topic_id: str) -> list[str]:
    """Oldest first: epochs are padded, so that names sort as numbers do."""
    folder = f"{names.topic_path(topic)}/{names.claims_object(topic_id, 0)}".rsplit("/", 1)[0]
    return sorted(info.path for info in store.list(folder + "/"))


def _objects(store: ObjectStore, topic: str, topic_id: str, partition: int) -> list[str]:
    """Oldest first: offsets are padded, so that names sort as numbers do."""
    folder = f"{names.topic_path(topic)}/{names.state_object(topic_id, partition, 0)}".rsplit("/", 1)[0]
    return sorted(info.path for info in store.list(folder + "/"))


def _replay(sequencer: Sequencer, rows: pa.Table) -> None:
    """Runs of one producer whose offsets rise by one are one batch as long as its sequences rise."""
    rows = rows.filter(rows.column("producer_id").is_valid()).combine_chunks()
    if not rows.num_rows:
        return
    ids = rows.column("producer_id").to_numpy(zero_copy_only=False)
    offsets, epochs, sequences = (rows.column(name).to_numpy() for name in ("offset", "producer_epoch", "sequence"))
    same = (ids[1:] == ids[:-1]) & (epochs[1:] == epochs[:-1])
    same &= (np.diff(offsets) == 1) & (np.diff(sequences) >= 1)
    starts = np.concatenate(([0], np.flatnonzero(~same) + 1))
    counts = np.diff(np.concatenate((starts, [rows.num_rows])))
    micros = rows.column("timestamp").cast(pa.int64()).to_numpy()
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        first, last = int(sequences[start]), int(sequences[start + count - 1])
        batch = ProducerBatch(str(ids[start]), int(epochs[start]), first, count, last - first + 1 - count)
        sequencer.replay(batch, int(offsets[start]), int(micros[start]))
