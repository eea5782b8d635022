"""Which fetches are made beside one another, and within which bytes."""

import pyarrow as pa
import pytest

from siltlog.consumers.library.fetches import FETCH_WAIT_MS, Flights
from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import Flight, Positions
from siltlog.consumers.library.sources.server import SERVER, Fetched
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.columns import FETCH_SCHEMA

A, B, C = (TopicPartition("t", number) for number in range(3))
BUFFER_BYTES = 64 * 1024


def flights_of(positions: Positions) -> Flights:
    options = ConsumerOptions(
        group="g", topics=["t"], topic_pattern=None, assign=[], auto_offset_reset="earliest", auto_commit=True,
        auto_commit_interval_ms=5_000, isolation="wal", read="auto", stop_at=None, idle_timeout_ms=None,
        buffer_bytes=BUFFER_BYTES, session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
        max_poll_interval_ms=300_000, retry_timeout_ms=None, client_id=None, instance_id=None,
        on_assigned=None, on_revoked=None, on_lost=None,
    )  # fmt: skip
    return Flights(options, positions, TopicBounds("wal"), lambda wanted, isolation: SERVER)


def ends_ms(flight: Flight) -> int:
    return round(flight.waits_until * 1000)


def asked(flight: Flight) -> list[TopicPartition]:
    return [wanted.at for wanted in flight.plan.wanted]


@pytest.mark.rule("M9")
def test_a_partition_that_came_while_a_fetch_waits_has_one_of_its_own_that_ends_with_it() -> None:
    positions = Positions()
    positions.assign(A, 0)
    flights = flights_of(positions)
    [first] = flights.depart(None, 0.0)
    positions.assign(B, 0)
    [second] = flights.depart(None, 0.2)
    assert (asked(first), asked(second)) == ([A], [B])
    assert ends_ms(second) <= ends_ms(first) == FETCH_WAIT_MS
    # A third waits for these, and then all are asked for together.
    positions.assign(C, 0)
    assert flights.depart(None, 0.25) == []
    for flight in (second, first):
        flights.arrive(flight, [])
        positions.land(*_taken(flights))
    [joined] = flights.depart(None, 0.5)
    assert sorted(asked(joined)) == [A, B, C]


def _taken(flights: Flights) -> tuple[Flight, list[Fetched]]:
    landed = flights.take()
    assert landed is not None
    flight, answer = landed
    assert isinstance(answer, list)
    return flight, answer


@pytest.mark.rule("M10")
def test_paused_partitions_that_fill_the_buffer_make_room_for_others() -> None:
    positions = Positions()
    positions.assign(A, 0)
    flights = flights_of(positions)
    [flight] = flights.depart(None, 0.0)
    rows = pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "value": b"v" * BUFFER_BYTES}], FETCH_SCHEMA
    )
    flights.arrive(flight, [Fetched(A, 1, rows)])
    positions.land(*_taken(flights))
    positions.assign(B, 0)
    assert flights.depart(None, 1.0) == [], "what is fetched is to be handed out first"
    positions.states[A].paused = True
    [other] = flights.depart(None, 1.0)
    assert asked(other) == [B]
    assert positions.buffered_bytes == 0
    assert positions.states[A].asked == 0
