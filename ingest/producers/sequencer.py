"""Offsets and producer sequences of one partition. Pure: no IO, `now_us` is an argument.

The rules are those of Kafka's idempotent producer (KIP-98), with sequences that start at 0 and never wrap.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

import msgspec

from siltlog.infra import producer_names

REQUESTS_REMEMBERED = 100
"""Per producer and partition: a retry of one of these gets its original offsets."""
PRODUCER_BYTES = 48
KEY_BYTES = 32
"""About what a producer, and an idempotency key, takes in the WAL's state beside its id, with its last request."""


class SequencedBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`skipped` numbers between the first and the last sequence were not sent."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    skipped: int = 0

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.last_sequence - self.first_sequence - self.skipped + 1


class ProducerState(msgspec.Struct, array_like=True):
    """The state of one producer in one partition; `batches` are its last requests, oldest first, at least one."""

    epoch: int
    last_sequence: int
    used_us: int
    batches: list[SequencedBatch]


class ProducerBatch(NamedTuple):
    """The part of a request for one partition: `rows` records whose sequences rise from `first_sequence`.

    They rise by one, but for `skipped` numbers between them; such a batch has its sequences in a column. Where it
    `restarts`, a producer that is not known may begin with any sequence, and one that has a higher epoch with any above
    its last: those of Kafka do.
    """

    producer_id: str
    producer_epoch: int
    first_sequence: int
    rows: int
    skipped: int = 0
    restarts: bool = False

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.rows + self.skipped - 1


class Place(NamedTuple):
    """How far a producer has come in a partition, and by which epoch."""

    next_sequence: int
    epoch: int


class Append(NamedTuple):
    """All new and next in line."""


class Rest(NamedTuple):
    """The first `seen` records were seen before; the others are to be appended."""

    seen: int


Places = tuple[tuple[int, int], ...]
"""(first offset, rows) of neighbouring records, in the order of the request."""


class Duplicate(NamedTuple):
    """All seen before; `places` is None when an original is older than what is remembered."""

    places: Places | None


class Refusal(NamedTuple):
    error_code: Literal["out_of_order_sequence", "fenced_producer", "unknown_producer"]
    next_sequence: int
    producer_epoch: int


APPEND = Append()


class StateBytes:
    """About how many bytes of the WAL's state producers and idempotency keys take: a topic's, and so all topics'."""

    def __init__(self) -> None:
        self.producers = 0
        self.keys = 0
        self._whole: StateBytes | None = None

    def add(self, producer_id: str, sign: int = 1) -> None:
        """Counts one producer, or with `sign` -1 that it was forgotten."""
        if is_key(producer_id):
            self._add(0, sign * (len(producer_id) + KEY_BYTES))
        else:
            self._add(sign * producer_bytes(producer_id), 0)

    def join(self, whole: "StateBytes") -> None:
        """Counts it in `whole` too, from now on."""
        self.leave()
        self._whole = whole
        whole._add(self.producers, self.keys)

    def leave(self) -> None:
        if self._whole is not None:
            self._whole._add(-self.producers, -self.keys)
            self._whole = None

    def _add(self, producers: int, keys: int) -> None:
        self.producers += producers
        self.keys += keys
        if self._whole is not None:
            self._whole._add(producers, keys)


class Sequencer:
    """Assigns contiguous offsets and answers producer duplicates."""

    def __init__(self, next_offset: int = 0, taken: StateBytes | None = None) -> None:
        """`taken` counts what is remembered here."""
        self.next_offset = next_offset
        self.producers: dict[str, ProducerState] = {}
        """The producers, in order of use."""
        self.keys: dict[str, ProducerState] = {}
        """The same of requests with an idempotency key, which expire sooner."""
        self._taken = taken or StateBytes()

    def check(self, batch: ProducerBatch) -> Append | Duplicate | Refusal:
        """Tells what `append` would do with `batch`, whose sequences rise by one; changes nothing."""
        state = self._known(batch.producer_id)
        if state is None:
            if batch.first_sequence == 0 or batch.restarts:
                return APPEND
            return Refusal("unknown_producer", 0, batch.producer_epoch)
        if batch.producer_epoch < state.epoch:
            return Refusal("fenced_producer", state.last_sequence + 1, state.epoch)
        if batch.first_sequence == state.last_sequence + 1:
            return APPEND
        if batch.last_sequence <= state.last_sequence:
            return Duplicate(_original_places(state, batch))
        if batch.restarts and batch.producer_epoch > state.epoch and batch.first_sequence > state.last_sequence:
            return APPEND
        return Refusal("out_of_order_sequence", state.last_sequence + 1, state.epoch)

    def check_increasing(
        self, producer_id: str, producer_epoch: int, sequences: Sequence[int]
    ) -> Append | Rest | Duplicate | Refusal:
        """The same where any gap is allowed; `sequences` rise. What is not above the last one seen was seen before."""
        state = self._known(producer_id)
        if state is None:
            return APPEND
        if producer_epoch < state.epoch:
            return Refusal("fenced_producer", state.last_sequence + 1, state.epoch)
        seen = bisect_right(sequences, state.last_sequence)
        if seen == 0:
            return APPEND
        return Rest(seen) if seen < len(sequences) else Duplicate(None)

    def next_sequence(self, producer_id: str) -> int:
        state = self._known(producer_id)
        return 0 if state is None else state.last_sequence + 1

    def place_of(self, producer_id: str) -> Place | None:
        """How far a producer has come; None when it is not known."""
        state = self._known(producer_id)
        return None if state is None else Place(state.last_sequence + 1, state.epoch)

    def end_of(self, producer_id: str) -> int | None:
        """The offset after the last record of a producer; None when it is not known."""
        state = self._known(producer_id)
        return None if state is None else state.batches[-1].next_offset

    def epoch_of(self, producer_id: str) -> int:
        state = self._known(producer_id)
        return 0 if state is None else state.epoch

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
        end = self.end_of(producer.producer_id)
        # By offset: a producer that was forgotten may have begun again at sequence 0.
        if end is None or first_offset >= end:
            self._remember(producer, first_offset, now_us, first_offset + 1)

    def touch(self, producer_id: str, now_us: int) -> None:
        """It is in use."""
        state = self.producers.pop(producer_id, None)
        if state is not None:
            state.used_us = now_us
            self.producers[producer_id] = state

    def expire(self, before_us: int) -> int:
        """Forgets producers unused since before `before_us`; how many."""
        return self._expire(self.producers, before_us)

    def expire_keys(self, before_us: int) -> int:
        """Forgets requests with an idempotency key from before `before_us`; how many."""
        return self._expire(self.keys, before_us)

    def forget(self, producer_id: str) -> None:
        """Forgets one that is known."""
        self._drop(self.producers, producer_id)

    def _expire(self, known: dict[str, ProducerState], before_us: int) -> int:
        # In order of use: the first that is young enough ends the search.
        old = [producer_id for producer_id, _ in takewhile(lambda item: item[1].used_us < before_us, known.items())]
        for producer_id in old:
            self._drop(known, producer_id)
        return len(old)

    def _drop(self, known: dict[str, ProducerState], producer_id: str) -> None:
        del known[producer_id]
        self._taken.add(producer_id, -1)

    def dump(self, before_offset: int) -> dict[str, ProducerState]:
        """Gives what is known from the records below `before_offset`: the state that may be stored with them."""
        if before_offset >= self.next_offset:
            return self.producers | self.keys
        dumped = {}
        for known in (self.producers, self.keys):
            for producer_id, state in known.items():
                if state.batches[-1].first_offset < before_offset:
                    dumped[producer_id] = state
                elif below := bisect_left(state.batches, before_offset, key=lambda batch: batch.first_offset):
                    batches = state.batches[:below]
                    dumped[producer_id] = ProducerState(state.epoch, batches[-1].last_sequence, state.used_us, batches)
        return dumped

    def load(self, producers: Iterable[tuple[str, ProducerState]]) -> None:
        """Takes producers as they were stored, in order of use."""
        for producer_id, state in producers:
            known = self._of(producer_id)
            if producer_id not in known:
                self._taken.add(producer_id)
            known[producer_id] = state

    def _of(self, producer_id: str) -> dict[str, ProducerState]:
        return self.keys if is_key(producer_id) else self.producers

    def _known(self, producer_id: str) -> ProducerState | None:
        return self.producers.get(producer_id) or self.keys.get(producer_id)

    def _remember(self, producer: ProducerBatch, first_offset: int, now_us: int, dump_offset: int) -> None:
        # Popped and put back so that the dict stays in order of use and the first one is the longest unused.
        known = self._of(producer.producer_id)
        state = known.pop(producer.producer_id, None)
        if state is None:
            state = ProducerState(producer.producer_epoch, -1, now_us, [])
            self._taken.add(producer.producer_id)
        state.epoch = max(state.epoch, producer.producer_epoch)
        state.last_sequence = producer.last_sequence
        state.used_us = now_us
        state.batches.append(
            SequencedBatch(producer.first_sequence, producer.last_sequence, first_offset, producer.skipped)
        )
        # The newest below `dump_offset` stays, or a dump would not know this producer.
        while len(state.batches) > REQUESTS_REMEMBERED and state.batches[1].first_offset < dump_offset:
            del state.batches[0]
        known[producer.producer_id] = state


def producer_bytes(producer_id: str) -> int:
    """About what a producer takes in the WAL's state."""
    return len(producer_id) + PRODUCER_BYTES


def is_key(producer_id: str) -> bool:
    """Whether it stands for a request with an idempotency key."""
    return producer_id.startswith(producer_names.IDEMPOTENCY_PREFIX)


def copied(producers: Mapping[str, ProducerState], requests_max: int) -> dict[str, ProducerState]:
    """Apart from what goes on being appended; at most `requests_max` requests, but the last of each producer.

    The requests themselves never change.
    """
    each = max(1, requests_max // max(1, len(producers)))
    return {
        producer_id: ProducerState(known.epoch, known.last_sequence, known.used_us, known.batches[-each:])
        for producer_id, known in producers.items()
    }


def _original_places(state: ProducerState, batch: ProducerBatch) -> Places | None:
    """Finds where the sequences of `batch` are, which may go across several requests."""
    places: list[tuple[int, int]] = []
    last = batch.last_sequence
    for known in reversed(state.batches):
        if known.first_sequence > last:
            continue
        if known.last_sequence < last or known.skipped:
            return None
        first = max(known.first_sequence, batch.first_sequence)
        offset, rows = known.first_offset + first - known.first_sequence, last - first + 1
        if places and offset + rows == places[-1][0]:
            places[-1] = (offset, rows + places[-1][1])
        else:
            places.append((offset, rows))
        if first == batch.first_sequence:
            return tuple(reversed(places))
        last = first - 1
    return None
