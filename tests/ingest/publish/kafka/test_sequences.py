"""Kafka's sequences as ours: in line, seen before, out of order, past the last one, and under a new epoch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.ingest.producers.sequencer import Append, Duplicate, Place, ProducerBatch, Refusal, Sequencer
from siltlog.ingest.publish.kafka.sequences import BEHIND_MAX, SEQUENCES, own_sequence

_NEXT = st.integers(1, 2**40)


class Publishes:
    """A producer of Kafka at one partition, in front of a real sequencer."""

    def __init__(self) -> None:
        self.sequencer = Sequencer()

    def verdict(self, sequence: int, rows: int, epoch: int) -> Append | Duplicate | Refusal | None:
        sequencer = self.sequencer
        first = own_sequence(sequence, epoch, sequencer.place_of("kafka:7"))
        if first is None:
            return None
        batch = ProducerBatch("kafka:7", epoch, first, rows, restarts=True)
        found = sequencer.check(batch)
        if isinstance(found, Append):
            sequencer.append(rows, batch, 0, 0)
        return found


@given(_NEXT, st.integers(0, BEHIND_MAX))
@pytest.mark.rule("KF4")
def test_what_lies_behind_is_a_duplicate_at_its_place(next_sequence: int, behind: int) -> None:
    place = Place(next_sequence, 0)
    found = own_sequence((next_sequence - behind) % SEQUENCES, 0, place)
    assert found == (next_sequence - behind if behind <= next_sequence else None)


@given(_NEXT, st.integers(1, BEHIND_MAX - 1))
def test_what_skips_some_is_out_of_order(next_sequence: int, ahead: int) -> None:
    assert own_sequence((next_sequence + ahead) % SEQUENCES, 0, Place(next_sequence, 0)) is None


@given(_NEXT, st.integers(0, 100), st.integers(1, 100), st.integers(0, 2**31 - 1))
@pytest.mark.rule("KF4")
def test_a_new_epoch_begins_at_0_and_ours_stays_kafkas_by_31_bits(
    next_sequence: int, epoch: int, more: int, other: int
) -> None:
    place = Place(next_sequence, epoch)
    first = own_sequence(0, epoch + more, place)
    assert first is not None
    assert first >= next_sequence
    assert first - next_sequence < SEQUENCES
    assert first % SEQUENCES == 0
    assert own_sequence(other or 1, epoch + more, place) is None


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    producer = Publishes()
    assert producer.verdict(77, 3, 5) == Append()
    assert producer.verdict(80, 1, 5) == Append()
    assert producer.verdict(77, 3, 5) == Duplicate(((0, 3),))


@given(
    st.lists(
        st.tuples(st.sampled_from(("next", "again", "skip", "epoch", "old")), st.integers(1, 1000)),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, SEQUENCES - 1),
)
@pytest.mark.rule("KF4")
def test_each_record_lands_once_past_the_last_sequence_too(steps: list[tuple[str, int]], start: int) -> None:
    """A client counts as Kafka's do; whatever it repeats is told where it was."""
    producer, epoch, sequence, appended = Publishes(), 3, start, 0
    sent: list[tuple[int, int, int]] = []
    for step, rows in steps:
        if step == "again" and sent:
            again, count, offset = sent[-1]
            assert producer.verdict(again, count, epoch) == Duplicate(((offset, count),))
        elif step == "skip" and sent:
            assert producer.verdict((sequence + rows) % SEQUENCES, 1, epoch) is None
        elif step == "epoch" and sent:
            epoch, sequence, sent = epoch + 1, 0, []
            assert producer.verdict(sequence, rows, epoch) == Append()
            sent.append((sequence, rows, appended))
            sequence, appended = sequence + rows, appended + rows
        elif step == "old" and sent:
            found = producer.verdict(sequence, rows, epoch - 1)
            assert isinstance(found, Refusal)
            assert found.error_code == "fenced_producer"
        else:
            assert producer.verdict(sequence, rows, epoch) == Append()
            sent.append((sequence, rows, appended))
            sequence, appended = (sequence + rows) % SEQUENCES, appended + rows
    assert producer.sequencer.next_offset == appended
