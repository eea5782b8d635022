"""The demo's publishers: a steady stream, single records beside it whose acks are timed, and a burst at the end."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from siltlog.demo.data import Flights
from siltlog.demo.ledger import Integers, Ledger, value_hashes
from siltlog.demo.stage import Counts
from siltlog.infra.client.delivery import Delivery
from siltlog.infra.client.producer import Producer
from siltlog.infra.clock import Clock

TICK_S = 0.01
"""The steady stream is sent in slices of this long."""
SINGLES_PER_S = 200


@dataclass(frozen=True, slots=True)
class Programme:
    """Which flights go when. The steady stream takes [0, steady), the burst the rest."""

    steady: int
    steady_per_s: float
    single_every: int
    """every so many of the steady stream are published one at a time, each waiting for its ack"""

    @classmethod
    def of(cls, total: int, *, steady_share: float, steady_s: float) -> "Programme":
        steady = int(total * steady_share)
        steady_per_s = max(1.0, steady / steady_s)
        return cls(steady, steady_per_s, max(2, round(steady_per_s / SINGLES_PER_S)))

    def is_single(self, index: int) -> bool:
        return index < self.steady and index % self.single_every == 0


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

    `deliveries[i]` is that of flight i, or None until it is sent. What goes wrong on a thread is raised by `join`.
    """

    def __init__(self, url: str, topic: str, flights: Flights, programme: Programme, counts: Counts, clock: Clock):
        self.deliveries: list[Delivery | None] = [None] * len(flights)
        self.singles: list[Single] = []
        self.burst_s = 0.0
        self._url = url
        self._topic = topic
        self._flights = flights
        self._programme = programme
        self._counts = counts
        self._counting = threading.Lock()
        self._clock = clock
        self._error: BaseException | None = None
        self._main = threading.Thread(target=self._guarded, args=(self._stream,), name="demo-stream", daemon=True)
        self._side = threading.Thread(target=self._guarded, args=(self._one_by_one,), name="demo-singles", daemon=True)

    def start(self) -> None:
        self._side.start()
        self._main.start()

    @property
    def failed(self) -> bool:
        return self._error is not None

    @property
    def finished(self) -> bool:
        return not (self._main.is_alive() or self._side.is_alive())

    def join(self) -> None:
        self._main.join()
        self._side.join()
        if self._error is not None:
            raise self._error

    def acknowledged(self) -> list[int]:
        """The flights that are acknowledged at this moment."""
        return [index for index, delivery in enumerate(self.deliveries) if delivery is not None and delivery.done()]

    def ledger(self, indices: Sequence[int] | None = None) -> Ledger:
        """Where the acks said that the flights (all, or those at `indices`, in that order) are."""
        chosen = range(len(self.deliveries)) if indices is None else indices
        placed = [self.deliveries[index] for index in chosen]
        landed = [delivery.result() for delivery in placed if delivery is not None]
        assert len(landed) == len(placed)
        return Ledger(
            _integers([metadata.partition for metadata in landed]),
            _integers([-1 if metadata.offset is None else metadata.offset for metadata in landed]),
            value_hashes([self._flights.values[index] for index in chosen]),
        )

    def _stream(self) -> None:
        """The steady stream, then, once everything before is acknowledged, the burst."""
        with Producer(self._url) as producer:
            started = self._clock.monotonic()
            sent = 0
            while sent < self._programme.steady:
                due = int((self._clock.monotonic() - started) * self._programme.steady_per_s)
                for index in range(sent, min(due, self._programme.steady)):
                    if not self._programme.is_single(index):
                        self._send(producer, index)
                sent = max(sent, min(due, self._programme.steady))
                self._clock.sleep(TICK_S)
            producer.flush()
            self._side.join()
            began = self._clock.monotonic()
            for index in range(self._programme.steady, len(self._flights)):
                self._send(producer, index)
            producer.flush()
            self.burst_s = self._clock.monotonic() - began

    def _one_by_one(self) -> None:
        with Producer(self._url) as producer:
            started = self._clock.monotonic()
            for index in filter(self._programme.is_single, range(self._programme.steady)):
                self._clock.sleep(max(0.0, started + index / self._programme.steady_per_s - self._clock.monotonic()))
                sent = self._clock.monotonic()
                metadata = self._send(producer, index).result()
                assert metadata.offset is not None
                acknowledged = self._clock.monotonic()
                self.singles.append(Single(index, metadata.partition, metadata.offset, sent, acknowledged))

    def _send(self, producer: Producer, index: int) -> Delivery:
        delivery = producer.send(self._topic, self._flights.values[index], key=self._flights.keys[index])
        self.deliveries[index] = delivery
        with self._counting:
            self._counts.published += 1
        delivery.add_done_callback(self._count)
        return delivery

    def _count(self, _: Delivery) -> None:
        with self._counting:
            self._counts.acknowledged += 1

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = self._error or error


def _integers(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)
