"""Fetches are made beside one another, within so many bytes."""

import pyarrow as pa
import pytest

from siltlog.consumers.library.fetches import FETCH_WAIT_MS, Fetches
from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import Fetch, Positions
from siltlog.consumers.library.sources.server import SERVER, Fetched
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.columns import FETCH_SCHEMA

A, B, C = (TopicPartition("t", number) for number in range(3))
BUFFER_BYTES = 64 * 1024


def fetches_of(positions: Positions) -> Fetches:
    options = ConsumerOptions(
        group="g", topics=["t"], topic_pattern=None, assign=[], auto_offset_reset="earliest", auto_commit=True,
        auto_commit_interval_ms=5_000, isolation="wal", read="auto", stop_at=None, idle_timeout_ms=None,
        buffer_bytes=BUFFER_BYTES, session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
        max_poll_interval_ms=300_000, retry_timeout_ms=None, client_id=None, instance_id=None,
        on_assigned=None, on_revoked=None, on_lost=None,
    )  # fmt: skip
    return Fetches(options, positions, TopicBounds("wal"), lambda wanted, isolation: SERVER)


def ends_ms(fetch: Fetch) -> int:
    return round(fetch.waits_until * 1000)


def asked(fetch: Fetch) -> list[TopicPartition]:
    return [wanted.at for wanted in fetch.plan.wanted]


@pytest.mark.rule("M9")
def test_a_partition_that_came_while_a_fetch_waits_has_one_of_its_own_that_ends_with_it() -> None:
    positions = Positions()
    positions.assign(A, 0)
    fetches = fetches_of(positions)
    [first] = fetches.depart(None, 0.0)
    positions.assign(B, 0)
    [second] = fetches.depart(None, 0.2)
    assert (asked(first), asked(second)) == ([A], [B])
    assert ends_ms(second) <= ends_ms(first) == FETCH_WAIT_MS
    # A third waits for these, and then all are asked for together.
    positions.assign(C, 0)
    assert fetches.depart(None, 0.25) == []
    for fetch in (second, first):
        fetches.arrive(fetch, [])
        positions.land(*_taken(fetches))
    [joined] = fetches.depart(None, 0.5)
    assert sorted(asked(joined)) == [A, B, C]


def _taken(fetches: Fetches) -> tuple[Fetch, list[Fetched]]:
    landed = fetches.take()
    assert landed is not None
    fetch, answer = landed
    assert isinstance(answer, list)
    return fetch, answer


@pytest.mark.rule("M10")
def test_paused_partitions_that_fill_the_buffer_make_room_for_others() -> None:
    positions = Positions()
    positions.assign(A, 0)
    fetches = fetches_of(positions)
    [fetch] = fetches.depart(None, 0.0)
    rows = pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "value": b"v" * BUFFER_BYTES}], FETCH_SCHEMA
    )
    fetches.arrive(fetch, [Fetched(A, 1, rows)])
    positions.land(*_taken(fetches))
    positions.assign(B, 0)
    assert fetches.depart(None, 1.0) == [], "what is fetched is to be handed out first"
    positions.states[A].paused = True
    [other] = fetches.depart(None, 1.0)
    assert asked(other) == [B]
    assert positions.buffered_bytes == 0
    assert positions.states[A].asked == 0
