"""Claimed producer epochs: no producer gets one twice, whatever is forgotten, stored and loaded again."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.ingest.producers.epochs import EPOCH_MAX, EpochState, ProducerEpochs
from siltlog.ingest.producers.sequencer import StateBytes

PRODUCERS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), PRODUCERS),
        st.tuples(st.just("use"), PRODUCERS, st.integers(0, 3)),
        st.tuples(st.just("expire"), st.integers(0, 20)),
        st.tuples(st.just("forget"), st.integers(1, 2)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@pytest.mark.rule("E2")
@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_no_epoch_is_claimed_twice(steps: list[tuple[object, ...]]) -> None:
    taken = StateBytes()
    epochs = ProducerEpochs(taken)
    given_out: dict[str, int] = {}
    for now, step in enumerate(steps):
        match step:
            case ("claim", str(producer)):
                epoch = epochs.claim(producer, 0, now)
                assert epoch is not None and epoch > given_out.get(producer, 0)
                assert epochs.epoch(producer) == epoch
                given_out[producer] = epoch
            case ("use", str(producer), int(above)):
                before = epochs.epoch(producer)
                epochs.use(producer, max(0, before + above - 1), now)
                assert epochs.epoch(producer) == max(before, before + above - 1)
            case ("expire", int(age)):
                epochs.expire(now - age)
            case ("forget", int(count)):
                before_count = len(epochs)
                assert epochs.forget(count) == min(count, before_count)
            case ("restart",):
                stored = msgspec.msgpack.decode(msgspec.msgpack.encode(epochs.dump()), type=EpochState)
                again = ProducerEpochs(taken := StateBytes())
                again.load(stored)
                assert again.dump() == stored
                epochs = again
    epochs.expire(len(steps) + 1)
    assert (len(epochs), taken.producers) == (0, 0)


def test_of_two_stores_the_higher_epochs_hold() -> None:
    one, two, both = ProducerEpochs(StateBytes()), ProducerEpochs(StateBytes()), ProducerEpochs(StateBytes())
    for _ in range(3):
        one.claim("a", 0, 1)
    one.claim("b", 0, 1)
    two.claim("a", 0, 2)
    two.claim("b", 6, 2)
    two.claim("gone", 0, 0)
    two.expire(1)
    for stored in (one.dump(), two.dump(), one.dump()):
        both.load(stored)
    assert (both.epoch("a"), both.epoch("b"), both.claim("gone", 0, 3)) == (3, 7, 2)


def test_who_used_up_every_epoch_is_told_and_takes_none_from_others() -> None:
    epochs = ProducerEpochs(StateBytes())
    epochs.use("p", EPOCH_MAX, 0)
    assert epochs.claim("p", 0, 0) is None
    epochs.expire(1)
    assert epochs.claim("q", 0, 2) == 1
