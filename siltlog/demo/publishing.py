"""The demo's publishers: a steady stream, single records beside it whose acks are timed, and a burst at the end."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from siltlog.demo.data import Flights
from siltlog.demo.ledger import Integers, Ledger, value_hashes
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.ingest.library.delivery import Delivery
from siltlog.ingest.library.producer import Producer

TICK_S = 0.05
"""The steady stream is sent in slices of this long."""
ABANDON_MS = 1_000
SINGLE_S = 0.005
"""Records are published alone at most this often, unless the programme says otherwise."""


@dataclass(frozen=True, slots=True)
class Programme:
    """The order of the flights: `steady` of them at `steady_per_s`, in the stream or alone, then the rest flat out.

    Alone they go at most one each `single_s`.
    """

    steady: int
    steady_per_s: float
    single_s: float = SINGLE_S

    @classmethod
    def of(cls, total: int, *, steady_share: float, steady_s: float) -> "Programme":
        steady = int(total * steady_share)
        return cls(steady, max(1.0, steady / steady_s))


@dataclass(frozen=True, slots=True)
class Single:
    """One record that was published alone; times are monotonic seconds."""

    index: int
    partition: int
    offset: int
    sent: float
    acknowledged: float


class Publisher:
    """Publishes all flights to one topic with two idempotent producers, each on a thread of its own.

    Both take the next flights that nobody has taken. `deliveries[i]` is that of flight i, or None until it is sent.
    What goes wrong on a thread is raised by `join`.
    """

    def __init__(self, url: str | Sequence[str], topic: str, flights: Flights, programme: Programme, clock: Clock):
        self.deliveries: list[Delivery | None] = [None] * len(flights)
        self.singles: list[Single] = []
        self.burst_s = 0.0
        self._topic = topic
        self._flights = flights
        self._programme = programme
        self._clock = clock
        self._producers = Producer(url), Producer(url)
        self._taken = 0
        self._open_to = programme.steady
        self._in_a_row = 0
        self._taking = threading.Lock()
        self._error: BaseException | None = None
        self._stream = threading.Thread(target=self._guarded, args=(self._run_stream,), name="demo-stream", daemon=True)
        self._alone = threading.Thread(target=self._guarded, args=(self._run_alone,), name="demo-singles", daemon=True)

    def start(self) -> None:
        self._alone.start()
        self._stream.start()

    def open_to(self, count: int) -> None:
        """Has the stream wait once so many flights are sent; those that go alone go on."""
        self._open_to = min(count, self._programme.steady)

    @property
    def failed(self) -> bool:
        return self._error is not None

    def abandon(self) -> None:
        """Ends it early; what is still on its way may or may not arrive. Does nothing once it has finished."""
        for producer in self._producers:
            with suppress(SiltlogError):
                producer.close(timeout_ms=ABANDON_MS)
        self.open_to(self._programme.steady)  # a stream that waits would never see that its producer is closed
        self._stream.join()
        self._alone.join()

    def join(self) -> None:
        self._stream.join()
        self._alone.join()
        if self._error is not None:
            raise self._error

    @property
    def slice_records(self) -> int:
        """How many records of the steady stream are sent at once."""
        return int(self._programme.steady_per_s * TICK_S)

    @property
    def published(self) -> int:
        return self._taken

    @property
    def acknowledged_in_a_row(self) -> int:
        """How many flights from the first on are acknowledged; cheap enough to be asked again and again."""
        count = self._in_a_row
        while count < len(self.deliveries) and (delivery := self.deliveries[count]) is not None and delivery.done():
            count += 1
        self._in_a_row = count
        return count

    def answered_since(self, moment: float) -> bool:
        """Whether a record that was published alone after `moment` is acknowledged, or everything is."""
        singles = self.singles
        is_all = self.acknowledged_in_a_row == len(self._flights)
        return is_all or bool(singles and singles[-1].sent >= moment)

    @property
    def stream(self) -> list[int]:
        """The flights that did not go alone."""
        alone = {single.index for single in self.singles}
        return [index for index in range(len(self._flights)) if index not in alone]

    def acknowledged(self) -> list[int]:
        """The flights that are acknowledged at this moment."""
        return [index for index, delivery in enumerate(self.deliveries) if delivery is not None and delivery.done()]

    def ledger(self, indices: Sequence[int] | None = None) -> Ledger:
        """Returns where the acks said that the flights are (all, or those at `indices`, in that order)."""
        chosen = range(len(self.deliveries)) if indices is None else indices
        placed = [self.deliveries[index] for index in chosen]
        landed = [delivery.result() for delivery in placed if delivery is not None]
        assert len(landed) == len(placed)
        return Ledger(
            _integers([metadata.partition for metadata in landed]),
            _integers([-1 if metadata.offset is None else metadata.offset for metadata in landed]),
            value_hashes([self._flights.values[index] for index in chosen]),
        )

    def _run_stream(self) -> None:
        """The steady stream, then, once everything before is acknowledged, the burst."""
        with self._producers[0] as producer:
            due, then = 0.0, self._clock.monotonic()
            while self._taken < self._programme.steady:
                now = self._clock.monotonic()
                due, then = min(due + (now - then) * self._programme.steady_per_s, self._open_to), now
                for index in self._take(int(due)):
                    self._send(producer, index)
                self._clock.sleep(TICK_S)
            producer.flush()
            self._alone.join()
            began = self._clock.monotonic()
            for index in self._take(len(self._flights)):
                self._send(producer, index)
            producer.flush()
            self.burst_s = self._clock.monotonic() - began

    def _run_alone(self) -> None:
        """One record at a time, each waiting for its ack, as long as the steady stream runs."""
        with self._producers[1] as producer:
            while True:
                index = self._take_one()
                if index is None:
                    return
                sent = self._clock.monotonic()
                metadata = self._send(producer, index).result()
                acknowledged = self._clock.monotonic()
                assert metadata.offset is not None
                self.singles.append(Single(index, metadata.partition, metadata.offset, sent, acknowledged))
                self._clock.sleep(max(0.0, sent + self._programme.single_s - self._clock.monotonic()))

    def _take(self, end: int) -> range:
        """The flights below `end` that nobody has taken; they are the caller's."""
        with self._taking:
            taken = range(self._taken, max(end, self._taken))
            self._taken = taken.stop
            return taken

    def _take_one(self) -> int | None:
        """The next flight of the steady part; None when there is none."""
        with self._taking:
            if self._taken >= self._programme.steady:
                return None
            self._taken += 1
            return self._taken - 1

    def _send(self, producer: Producer, index: int) -> Delivery:
        delivery = producer.send(self._topic, self._flights.values[index], key=self._flights.keys[index])
        self.deliveries[index] = delivery
        return delivery

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = self._error or error


def _integers(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)
