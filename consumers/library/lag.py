"""How far behind a reader is."""

from collections.abc import Sequence

from siltlog.consumers.library.positions import PartitionState, Positions, readable, timestamp_us
from siltlog.consumers.library.program import Program
from siltlog.consumers.library.sources.server import SERVER, FetchPlan, Isolation, Wanted, fetch_request, fetched_of
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.records import Lag

REPLY_BYTES_MAX = 16 * 1024 * 1024


def lag_of(
    positions: Positions, topics: TopicBounds, isolation: Isolation, clock: Clock
) -> Program[dict[TopicPartition, Lag]]:
    """Computes the lag of every assigned partition."""
    behind: dict[TopicPartition, int] = {}
    for topic in sorted({at.topic for at in positions.states}):
        found = yield from topics.ask(topic)
        for at, state in positions.states.items():
            if at.topic == topic and at.partition in found:
                state.bounds = found[at.partition][0]
                behind[at] = topics.behind(at, readable(state, state.handed_out), state.bounds)
    late = [positions.states[at] for at in behind if behind[at]]
    moments = {state.at: positions.next_timestamp_us(state) for state in late}
    moments |= yield from _ask_for_moments([state for state in late if moments[state.at] is None], topics, isolation)
    now_us = clock.now_us()
    ages = {at: max(0, now_us - us) / MICROS_PER_SECOND for at, us in moments.items() if us is not None}
    return {at: Lag(behind[at], ages.get(at, 0.0)) for at in sorted(behind)}


def _ask_for_moments(
    states: Sequence[PartitionState], topics: TopicBounds, isolation: Isolation
) -> Program[dict[TopicPartition, int | None]]:
    """The timestamps of the next records: one record of each partition is fetched."""
    moments: dict[TopicPartition, int | None] = {}
    while states:
        wanted = tuple(
            Wanted(state.at, readable(state, state.handed_out), topics.topic_id(state.at.topic), None)
            for state in states
        )
        plan = FetchPlan(SERVER, wanted, isolation, len(wanted), REPLY_BYTES_MAX, 0)
        parts = fetched_of((yield fetch_request(plan, partition_bytes_max=1)))
        told = {part.at: timestamp_us(part.rows) for part in parts if part.rows is not None}
        moments |= told
        # Where one reply has no room for all of them, the others are in the next.
        states = [state for state in states if state.at not in told] if told else []
    return moments
