"""A parsed body, checked against its topic and split by partition. Pure: `now_us` is an argument."""

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.arrow.arrays import fixed_array, numbers_of
from siltlog.infra.arrow.partitioner import PARTITIONERS, Partitioner, PlacedBy
from siltlog.infra.clock import format_us
from siltlog.infra.columns import TIMESTAMP
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.records.batch import record_batch
from siltlog.ingest.records.body import ROWS_MAX, Body, Rows
from siltlog.ingest.records.plain import Order

Sequences = npt.NDArray[np.int64] | list[int] | range
SECONDS_LOOK_MAX_MS = 100_000_000_000
"""Milliseconds below this are before 1973-03-03: whoever sent them meant seconds."""


@dataclass(slots=True)
class Slice:
    """The records of one partition, in the body's order. `sequences` has their sequences where the body had any."""

    partition: int
    count: int
    records: Rows | pa.RecordBatch
    sequences: Sequences | None


@dataclass(slots=True)
class Split:
    slices: list[Slice]
    partition_of_record: npt.NDArray[np.int32] | list[int] | None
    """None where there is one slice."""
    order: Order | None = None
    """The indices of columns' records by partition; None where they came so."""

    def partitions(self) -> list[int]:
        """The partition of every record in the body's order."""
        if self.partition_of_record is None:
            [only] = self.slices
            return [only.partition] * only.count
        found: list[int] = np.asarray(self.partition_of_record).tolist()
        return found

    def positions(self, first_offsets: dict[int, int | None]) -> list[tuple[int, int | None]]:
        """(partition, offset) of every record in the body's order, given the first offset of each slice."""
        if len(self.slices) == 1:
            [only] = self.slices
            first = first_offsets[only.partition]
            offsets = repeat(None, only.count) if first is None else range(first, first + only.count)
            return list(zip(repeat(only.partition), offsets, strict=False))
        partitions = self.partitions()
        if len(partitions) > ROWS_MAX and None not in first_offsets.values():
            return list(zip(partitions, self._offsets(first_offsets), strict=True))
        counters = dict(first_offsets)
        out: list[tuple[int, int | None]] = []
        for partition in partitions:
            offset = counters[partition]
            out.append((partition, offset))
            if offset is not None:
                counters[partition] = offset + 1
        return out

    def _offsets(self, first_offsets: dict[int, Any]) -> list[int]:
        firsts = [(first_offsets[part.partition], part.count) for part in self.slices]
        ordered = np.concatenate([np.arange(first, first + count) for first, count in firsts])
        offsets = ordered
        if self.order is not None:
            offsets = np.empty_like(ordered)
            offsets[self.order] = ordered
        found: list[int] = offsets.tolist()
        return found


def split(body: Body, partitions: int, keyless: int, config: TopicConfig, record_bytes_max: int, now_us: int) -> Split:
    """Raises Refused that names the index of the first bad record; `keyless` is the partition of keyless records."""
    limit = min(record_bytes_max, config.integer("max.record.bytes"))
    if body.rows is not None:
        _finish_rows(body.rows, config, limit, now_us, body.stored)
        return _split_rows(body.rows, partitions, keyless, config)
    _check_sizes(body, limit)
    timestamp = _finish_timestamps(body, config, now_us)
    if body.only_partition is not None:
        return Split([_only_slice(body, timestamp, partitions)], None)
    targets = _targets(body, partitions, keyless, config)
    first = int(targets[0])
    if (targets == first).all():
        return Split([Slice(first, body.count, _columns(body, timestamp), body.sequence)], targets)
    columns, sequences, order = _by_partition(body, timestamp, targets)
    counts = np.bincount(targets)
    slices, at = [], 0
    for partition in np.flatnonzero(counts).tolist():
        count = int(counts[partition])
        own = None if sequences is None else sequences[at : at + count]
        slices.append(Slice(partition, count, columns.slice(at, count), own))
        at += count
    return Split(slices, targets, order)


def _only_slice(body: Body, timestamp: pa.Array, partitions: int) -> Slice:
    assert body.only_partition is not None
    if body.only_partition >= partitions:
        raise _unknown_partition(0, body.only_partition, partitions)
    first = body.first_sequence
    sequences = None if first is None else range(first, first + body.count)
    return Slice(body.only_partition, body.count, _columns(body, timestamp), sequences)


def _by_partition(
    body: Body, timestamp: pa.Array, targets: npt.NDArray[np.int32]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64] | None, Order | None]:
    """The records of one partition behind those of the one before it, each in the body's order, and that order."""
    sequences = body.sequence
    if (targets[1:] >= targets[:-1]).all():
        # As clients send them that know the partitions.
        return _columns(body, timestamp), sequences, None
    # A stable sort of 16-bit numbers is a radix sort.
    order = np.argsort(targets.astype(np.uint16), kind="stable")
    ordered = None if sequences is None else sequences[order]
    if body.plain is not None:
        # Their times are all the same.
        return record_batch(timestamp, *body.plain.columns(order), None), ordered, order
    return _columns(body, timestamp).take(pa.array(order)), ordered, order


def _columns(body: Body, timestamp: pa.Array) -> pa.RecordBatch:
    """The records in the body's order."""
    return record_batch(timestamp, *body.contents(), body.headers)


def _finish_rows(rows: Rows, config: TopicConfig, limit: int, now_us: int, stored: bool) -> None:
    append_time = config["timestamp.type"] == "append"
    bounds: tuple[int, int] | None = None
    for index, given in enumerate(rows.timestamps):
        if given is None or append_time:
            rows.timestamps[index] = now_us
            continue
        bounds = bounds or config.times_us(now_us, stored=stored)
        if not bounds[0] <= given <= bounds[1]:
            raise _wrong_time(given, index, config, now_us)
    for index, value in enumerate(rows.values):
        size = len(value or b"") + len(rows.keys[index] or b"")
        if rows.headers[index]:
            size += sum(len(name.encode()) + len(content or b"") for name, content in rows.headers[index] or ())
        if size > limit:
            raise _record_too_large(index, size, limit)


def _split_rows(rows: Rows, partitions: int, keyless: int, config: TopicConfig) -> Split:
    targets = []
    for index, key in enumerate(rows.keys):
        partition = rows.partitions[index]
        if partition < 0:
            partition = keyless if key is None else _partitioner(config).partition_of(key, partitions)
        elif partition >= partitions:
            raise _unknown_partition(index, partition, partitions)
        targets.append(partition)
    sequences: Any = None
    missing = rows.sequences.count(None)
    if missing < len(targets):
        sequences = rows.sequences
        if missing:
            index = sequences.index(None)
            raise problem("invalid_record", f"record {index} has no sequence, but others have", index=index)
    if targets.count(targets[0]) == len(targets):
        return Split([Slice(targets[0], len(targets), rows, sequences)], targets)
    slices = []
    for partition in sorted(set(targets)):
        at = [index for index, target in enumerate(targets) if target == partition]
        own = Rows(
            [rows.timestamps[i] for i in at],
            [rows.keys[i] for i in at],
            [rows.values[i] for i in at],
            [rows.headers[i] for i in at],
            [],
            [rows.sequences[i] for i in at],
        )
        slices.append(Slice(partition, len(at), own, None if sequences is None else [sequences[i] for i in at]))
    return Split(slices, targets)


def _targets(body: Body, partitions: int, keyless: int, config: TopicConfig) -> npt.NDArray[np.int32]:
    explicit = body.partition
    if explicit is not None:
        beyond = explicit >= partitions
        if beyond.any():
            index = int(np.argmax(beyond))
            raise _unknown_partition(index, int(explicit[index]), partitions)
        missing = explicit < 0
        if not missing.any():
            return explicit
    if body.plain is not None and body.plain.keys is not None:
        hashed = body.plain.keys.partitions(partitions, keyless, _partitioner(config))
    elif body.key is None:
        hashed = np.full(body.count, keyless, np.int32)
    else:
        hashed = _partitioner(config).partitions_of(body.key, partitions, keyless)
    return hashed if explicit is None else np.where(missing, hashed, explicit)


def _partitioner(config: TopicConfig) -> Partitioner:
    return PARTITIONERS[str(config["partitioner"])]


def _finish_timestamps(body: Body, config: TopicConfig, now_us: int) -> pa.Array:
    if body.timestamp is None or config["timestamp.type"] == "append":
        return fixed_array(np.full(body.count, now_us, np.int64), TIMESTAMP)
    earliest_us, latest_us = config.times_us(now_us, stored=body.stored)
    for extreme in reversed(body.time_bounds or _time_bounds(body.timestamp)):
        if extreme is not None and not earliest_us <= extreme <= latest_us:
            index = pc.index(body.timestamp.view(pa.int64()), extreme).as_py()
            raise _wrong_time(extreme, index, config, now_us)
    if body.timestamp.null_count:
        return body.timestamp.view(pa.int64()).fill_null(now_us).view(TIMESTAMP)
    return body.timestamp


def _time_bounds(timestamp: pa.Array) -> tuple[int | None, int | None]:
    """The least and the greatest, None where all are null."""
    if not timestamp.null_count:
        # An aggregation of Arrow takes as long as all else that is done with the times of a hundred records.
        times = numbers_of(timestamp, np.int64)
        return int(times.min()), int(times.max())
    found = pc.min_max(timestamp.view(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()


def _wrong_time(given_us: int, index: int, config: TopicConfig, now_us: int) -> SiltlogError:
    looks = "send milliseconds since 1970, or RFC 3339"
    if given_us > now_us:
        name, where = "timestamp.after.max.ms", "ahead of"
    else:
        name, where = "timestamp.before.max.ms", "behind"
        if 0 < given_us // 1000 < SECONDS_LOOK_MAX_MS:
            looks = "it looks like seconds: send milliseconds"
    return problem(
        "invalid_record",
        f"record {index}: its timestamp, {format_us(given_us)}, is more than {name} ({config.integer(name)}) {where} "
        f"the server's clock; {looks}. The topic's setting {name} allows other times, -1 all",
        index=index,
    )


def _check_sizes(body: Body, limit: int) -> None:
    if body.nbytes <= limit:
        return
    if body.plain is not None:
        sizes = body.plain.sizes()
    else:
        sizes = _lengths(body.value)
        if body.key is not None:
            sizes = sizes + _lengths(body.key)
    if body.headers is not None:
        parents = pc.list_parent_indices(body.headers).to_numpy()
        flat = pc.list_flatten(body.headers)
        each = _lengths(flat.field("key").cast(pa.binary())) + _lengths(flat.field("value"))
        sizes = sizes + np.bincount(parents, weights=each, minlength=body.count).astype(np.int64)
    above = sizes > limit
    if above.any():
        index = int(np.argmax(above))
        raise _record_too_large(index, int(sizes[index]), limit)


def _lengths(column: pa.Array | None) -> npt.NDArray[np.int64]:
    assert column is not None
    lengths: npt.NDArray[np.int64] = (
        pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return lengths


def _record_too_large(index: int, size: int, limit: int) -> SiltlogError:
    return problem(
        "record_too_large",
        f"record {index} has {size} bytes; the limit is {limit} (max.record.bytes of the topic, SILT_RECORD_BYTES_MAX)",
        index=index,
        limit=limit,
    )


def is_placed(by: PlacedBy | None, partitions: int, config: TopicConfig) -> bool:
    """Whether keys that a client has placed are where this topic has them; so too where it says nothing."""
    return by is None or by == (partitions, config["partitioner"])


def partition_count_changed(topic: str, partitions: int, config: TopicConfig) -> SiltlogError:
    """The refusal of keys that were placed otherwise."""
    return problem(
        "partition_count_changed",
        f"topic {topic} has {partitions} partitions now, and places keys by {config['partitioner']}; place them again",
        partitions=partitions,
        partitioner=config["partitioner"],
    )


def _unknown_partition(index: int, partition: int, partitions: int) -> SiltlogError:
    return problem(
        "unknown_partition",
        f"record {index} names partition {partition}, but the topic has partitions 0 to {partitions - 1}",
        index=index,
    )
