"""Checks whether a request may be appended: every partition of it, before any is appended to. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from siltlog.infra.errors import SiltlogError, problem
from siltlog.ingest.producers.known import TopicProducers
from siltlog.ingest.producers.sequencer import Append, Duplicate, ProducerBatch, Refusal, Rest, Sequencer
from siltlog.ingest.records.batch import record_batch
from siltlog.ingest.records.body import Rows
from siltlog.ingest.records.split import Sequences, Slice, Split


class Sequenced(Protocol):
    """A partition."""

    @property
    def sequencer(self) -> Sequencer: ...


class Checkable(Protocol):
    """A topic, as much of it as the checks need."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[Sequenced]: ...

    @property
    def producers(self) -> TopicProducers: ...


class Producer(NamedTuple):
    """A producer that publishes exactly once (`Silt-Producer-Id`, `Silt-Producer-Epoch`, `Silt-Sequence-Mode`).

    One that `restarts` counts anew with each epoch, in each partition by itself: a higher epoch fences there alone.
    """

    producer_id: str
    epoch: int
    increasing: bool = False
    restarts: bool = False


class Part(NamedTuple):
    """A partition's share of a request: what is to be appended of it, and what was seen before.

    `new` is None when all of it was seen; `seen` is how many of its first records were.
    """

    partition: int
    new: Slice | None
    batch: ProducerBatch | None
    seen: int = 0
    duplicate: Duplicate | None = None


def checked(topic: Checkable, parts: Split, producer: Producer) -> list[Part]:
    """Raises Fenced when anything of the request is refused; what is known does not change."""
    found: list[Part] = []
    refusals: list[tuple[int, Refusal]] = []
    claimed = topic.producers.epochs.epoch(producer.producer_id)
    for slice_ in parts.slices:
        answer = _refused_or_part(topic, slice_, producer, claimed)
        if isinstance(answer, Refusal):
            refusals.append((slice_.partition, answer))
        else:
            found.append(answer)
    if refusals:
        raise _refused(topic, [slice_.partition for slice_ in parts.slices], producer, refusals)
    return found


def checked_keyed(topic: Checkable, parts: Split, producer_id: str) -> list[Part]:
    """The same of a request with an idempotency key: the sequences of each partition are those of the body's order."""
    refuse_sequences(parts, "an idempotency key gives the sequences itself")
    found = []
    for slice_ in parts.slices:
        batch = ProducerBatch(producer_id, 0, 0, slice_.count)
        verdict = topic.partitions[slice_.partition].sequencer.check(batch)
        # Known at all it was seen: learned from rows that were compacted since, it may lack some.
        found.append(_part(slice_, batch, Duplicate(None) if isinstance(verdict, Refusal) else verdict))
    return found


def refuse_sequences(parts: Split, why: str) -> None:
    """Raises Refused `invalid_record` when any record has a sequence."""
    for slice_ in parts.slices:
        if slice_.sequences is not None:
            raise problem("invalid_record", f"a record has a sequence, but {why}; leave it out", index=0)


def _refused_or_part(topic: Checkable, slice_: Slice, producer: Producer, claimed: int) -> Part | Refusal:
    sequencer = topic.partitions[slice_.partition].sequencer
    sequences = slice_.sequences
    if sequences is None:
        raise problem("invalid_record", "with Silt-Producer-Id every record needs its partition and sequence", index=0)
    if producer.epoch < claimed:
        return Refusal("fenced_producer", sequencer.next_sequence(producer.producer_id), claimed)
    if producer.increasing:
        verdict = sequencer.check_increasing(producer.producer_id, producer.epoch, sequences)  # type: ignore[arg-type]
        orderly = bool((np.diff(sequences) > 0).all())
        batch = _increasing_batch(producer, sequences, verdict.seen if isinstance(verdict, Rest) else 0)
    else:
        first = int(sequences[0])
        batch = ProducerBatch(producer.producer_id, producer.epoch, first, slice_.count, restarts=producer.restarts)
        verdict = sequencer.check(batch)
        orderly = _rise_by_one(sequences)
    if isinstance(verdict, Refusal):
        return verdict
    if not orderly:
        return Refusal("out_of_order_sequence", sequencer.next_sequence(producer.producer_id), producer.epoch)
    return _part(slice_, batch, verdict)


def _rise_by_one(sequences: Sequences) -> bool:
    if isinstance(sequences, range):
        return True
    first, count = sequences[0], len(sequences)
    if isinstance(sequences, list):
        return count == 1 or sequences == list(range(first, first + count))
    return bool((sequences == np.arange(first, first + count)).all())


def _part(slice_: Slice, batch: ProducerBatch, verdict: Append | Rest | Duplicate) -> Part:
    if isinstance(verdict, Duplicate):
        return Part(slice_.partition, None, batch, slice_.count, verdict)
    seen = verdict.seen if isinstance(verdict, Rest) else 0
    return Part(slice_.partition, _to_append(slice_, batch, seen), batch, seen)


def _increasing_batch(producer: Producer, sequences: Sequences, seen: int) -> ProducerBatch:
    first, last = int(sequences[seen]), int(sequences[-1])
    rows = len(sequences) - seen
    return ProducerBatch(producer.producer_id, producer.epoch, first, rows, last - first + 1 - rows)


def _to_append(slice_: Slice, batch: ProducerBatch, seen: int) -> Slice:
    """Returns the slice without its first `seen` records, and with its sequences in a column where they have gaps."""
    if not seen and not batch.skipped:
        return slice_
    records = slice_.records
    if seen:
        records = _rows_from(records, seen) if isinstance(records, Rows) else records.slice(seen)
    if batch.skipped and not isinstance(records, Rows):
        assert slice_.sequences is not None
        records = _with_sequences(records, slice_.sequences[seen:])
    sequences = None if slice_.sequences is None else slice_.sequences[seen:]
    return Slice(slice_.partition, slice_.count - seen, records, sequences)


def _rows_from(rows: Rows, first: int) -> Rows:
    return Rows(
        rows.timestamps[first:],
        rows.keys[first:],
        rows.values[first:],
        rows.headers[first:],
        rows.partitions[first:],
        rows.sequences[first:],
    )


def _with_sequences(records: pa.RecordBatch, sequences: Sequences) -> pa.RecordBatch:
    there = dict(zip(records.schema.names, records.columns, strict=True))
    return record_batch(there["timestamp"], there["value"], there.get("key"), there.get("headers"), pa.array(sequences))


def _refused(
    topic: Checkable, partitions: Sequence[int], producer: Producer, refusals: list[tuple[int, Refusal]]
) -> SiltlogError:
    order = ("fenced_producer", "unknown_producer", "out_of_order_sequence")
    partition, first = min(refusals, key=lambda item: order.index(item[1].error_code))
    rule = "sequences must rise" if producer.increasing else f"the next sequence is {first.next_sequence}"
    what = {
        "fenced_producer": f"epoch {first.producer_epoch} of it was claimed; this one has {producer.epoch}",
        "unknown_producer": "it is not known (any more) and does not start at 0; claim it and go on from next_sequence",
        "out_of_order_sequence": rule,
    }[first.error_code]
    return problem(
        first.error_code,
        f"producer {producer.producer_id}, topic {topic.name}, partition {partition}: {what}",
        partition=partition,
        next_sequence=first.next_sequence,
        producer_epoch=first.producer_epoch,
        partitions=[
            {
                "partition": number,
                "next_sequence": topic.partitions[number].sequencer.next_sequence(producer.producer_id),
            }
            for number in partitions
        ],
    )
