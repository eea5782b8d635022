"""Offsets and producer sequences of one partition. Pure: no IO, `now_us` is an argument.

The rules are those of Kafka's idempotent producer (KIP-98), with sequences that start at 0 and never wrap.
"""

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Literal, NamedTuple

import msgspec

REQUESTS_REMEMBERED = 100
"""Per producer and partition: a retry of one of these gets its original offsets."""
PRODUCERS_MAX = 100_000
"""Per partition; past it the ones unused for longest are forgotten before their time."""


class SequencedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    first_sequence: int
    last_sequence: int
    first_offset: int


class ProducerState(msgspec.Struct, array_like=True):
    """What is known of one producer in one partition; `batches` are its last requests, oldest first."""

    epoch: int
    last_sequence: int
    used_us: int
    batches: list[SequencedBatch]


class ProducerBatch(NamedTuple):
    """What a request says of one partition: `rows` records whose sequences rise by one from `first_sequence`.

    With `gaps` they rise by more; such a batch has its sequences in a column.
    """

    producer_id: str
    producer_epoch: int
    first_sequence: int
    rows: int
    gaps: bool = False

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.rows - 1


class Append(NamedTuple):
    """All new and next in line."""


class Duplicate(NamedTuple):
    """All seen before; `first_offset` is None when the original is older than what is remembered."""

    first_offset: int | None


class Refusal(NamedTuple):
    error_code: Literal["out_of_order_sequence", "fenced_producer", "unknown_producer"]
    next_sequence: int
    producer_epoch: int


Verdict = Append | Duplicate | Refusal
APPEND = Append()


class Sequencer:
    """Assigns contiguous offsets and answers producer duplicates."""

    def __init__(self, next_offset: int = 0) -> None:
        self.next_offset = next_offset
        self.producers: dict[str, ProducerState] = {}

    def check(self, batch: ProducerBatch) -> Verdict:
        """What `append` would mean for `batch`; changes nothing."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            if batch.first_sequence == 0:
                return APPEND
            return Refusal("unknown_producer", 0, batch.producer_epoch)
        if batch.producer_epoch < state.epoch:
            return Refusal("fenced_producer", state.last_sequence + 1, state.epoch)
        if batch.first_sequence == state.last_sequence + 1:
            return APPEND
        if batch.last_sequence <= state.last_sequence:
            return Duplicate(_original_offset(state, batch))
        return Refusal("out_of_order_sequence", state.last_sequence + 1, state.epoch)

    def next_sequence(self, producer_id: str) -> int:
        state = self.producers.get(producer_id)
        return 0 if state is None else state.last_sequence + 1

    def append(self, count: int, producer: ProducerBatch | None, now_us: int, dump_offset: int) -> int:
        """The first of `count` new offsets. A producer's batch must have been answered `Append` just before.

        `dump` will not be asked for an offset below `dump_offset`.
        """
        first = self.next_offset
        self.next_offset += count
        if producer is not None:
            self._remember(producer, first, now_us, dump_offset)
        return first

    def replay(self, producer: ProducerBatch, first_offset: int, now_us: int) -> None:
        """Learns a stored batch again (restart); what is known already changes nothing."""
        state = self.producers.get(producer.producer_id)
        if state is None or producer.last_sequence > state.last_sequence:
            self._remember(producer, first_offset, now_us, first_offset + 1)

    def expire(self, before_us: int) -> int:
        """Forgets producers unused since before `before_us`; how many."""
        # In order of use: the first that is young enough ends the search.
        old = list(takewhile(lambda item: item[1].used_us < before_us, self.producers.items()))
        for producer_id, _ in old:
            del self.producers[producer_id]
        return len(old)

    def dump(self, before_offset: int) -> dict[str, ProducerState]:
        """What is known from the records below `before_offset`: the state that may be stored with them."""
        if before_offset >= self.next_offset:
            return dict(self.producers)
        dumped = {}
        for producer_id, state in self.producers.items():
            batches = [batch for batch in state.batches if batch.first_offset < before_offset]
            if batches:
                dumped[producer_id] = ProducerState(state.epoch, batches[-1].last_sequence, state.used_us, batches)
        return dumped

    def load(self, producers: Iterable[tuple[str, ProducerState]]) -> None:
        self.producers.update(producers)

    def _remember(self, producer: ProducerBatch, first_offset: int, now_us: int, dump_offset: int) -> None:
        # Popped and put back so that the dict stays in order of use and the first one is the longest unused.
        state = self.producers.pop(producer.producer_id, None)
        if state is None:
            state = ProducerState(producer.producer_epoch, -1, now_us, [])
            if len(self.producers) >= PRODUCERS_MAX:
                del self.producers[next(iter(self.producers))]
        state.epoch = max(state.epoch, producer.producer_epoch)
        state.last_sequence = producer.last_sequence
        state.used_us = now_us
        state.batches.append(SequencedBatch(producer.first_sequence, producer.last_sequence, first_offset))
        # The newest below `dump_offset` stays, or a dump would not know this producer.
        while len(state.batches) > REQUESTS_REMEMBERED and state.batches[1].first_offset < dump_offset:
            del state.batches[0]
        self.producers[producer.producer_id] = state


def copied(producers: Mapping[str, ProducerState]) -> dict[str, ProducerState]:
    """Apart from what goes on being appended; the requests themselves never change, and copying them takes long."""
    return {
        producer_id: ProducerState(known.epoch, known.last_sequence, known.used_us, list(known.batches))
        for producer_id, known in producers.items()
    }


def _original_offset(state: ProducerState, batch: ProducerBatch) -> int | None:
    for known in reversed(state.batches):
        if known.first_sequence <= batch.first_sequence:
            if batch.last_sequence <= known.last_sequence:
                return known.first_offset + batch.first_sequence - known.first_sequence
            return None
    return None
