"""The sequencer against a model that remembers everything, through retries, epochs, crashes and expiry."""

import random
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siltlog.ingest.producers import sequencer as sequencing
from siltlog.ingest.producers.sequencer import (
    APPEND,
    KEY_BYTES,
    PRODUCER_BYTES,
    REQUESTS_REMEMBERED,
    Append,
    Duplicate,
    ProducerBatch,
    Refusal,
    Rest,
    Sequencer,
    StateBytes,
)


class Sent(NamedTuple):
    """A request that was appended: its sequences, and where the first of them is."""

    batch: ProducerBatch
    offset: int

    @property
    def end(self) -> int:
        return self.offset + self.batch.rows


def expected(log: list[Sent], batch: ProducerBatch) -> str:
    """What the contract says of `batch`, given everything that was ever appended."""
    own = [sent for sent in log if sent.batch.producer_id == batch.producer_id]
    if not own:
        return "append" if batch.first_sequence == 0 else "unknown_producer"
    epoch = max(sent.batch.producer_epoch for sent in own)
    last = own[-1].batch.last_sequence
    if batch.producer_epoch < epoch:
        return "fenced_producer"
    if batch.first_sequence == last + 1:
        return "append"
    return "duplicate" if batch.last_sequence <= last else "out_of_order_sequence"


def offset_of(log: list[Sent], producer_id: str, sequence: int) -> int:
    for sent in log:
        if sent.batch.producer_id == producer_id and sent.batch.first_sequence <= sequence <= sent.batch.last_sequence:
            return sent.offset + sequence - sent.batch.first_sequence
    raise AssertionError(f"{producer_id} never sent {sequence}")


PRODUCERS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), PRODUCERS, st.integers(-6, 4), st.integers(1, 5), st.integers(0, 2)),
        st.tuples(st.just("keyless"), st.integers(1, 5)),
        st.tuples(st.just("submit")),
        st.tuples(st.just("crash"), st.booleans()),
    ),
    max_size=60,
)


SAVED_TWICE: list[tuple[object, ...]] = [
    ("send", "a", 0, 1, 0),
    *(("submit",), ("submit",), ("crash", True)),
    *(("send", "a", 0, 1, 0), ("crash", True)),
]
"""What the second crash loads the first one has loaded, too."""


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(2, 4))
@example(SAVED_TWICE, 2)
def test_no_sequence_is_lost_or_doubled(steps: list[tuple[object, ...]], remembered: int) -> None:
    """`submit` makes all durable; `crash` loses the rest, and starts from a dump, its later batches replayed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequencing, "REQUESTS_REMEMBERED", remembered)
        run(steps)


def run(steps: list[tuple[object, ...]]) -> None:
    sequencer = Sequencer()
    log: list[Sent] = []
    submitted = 0
    saved: tuple[int, dict[str, sequencing.ProducerState]] = (0, {})
    for step in steps:
        match step:
            case ("send", str(producer), int(shift), int(rows), int(epoch)):
                first = (
                    max(0, sequencer.next_sequence(producer) + shift) if shift else sequencer.next_sequence(producer)
                )
                send(sequencer, log, ProducerBatch(producer, epoch, first, rows), submitted)
            case ("keyless", int(rows)):
                before = sequencer.next_offset
                assert sequencer.append(rows, None, 0, submitted) == before
                assert sequencer.next_offset == before + rows
            case ("submit",):
                saved = (submitted, copied(sequencer.dump(submitted)))
                submitted = sequencer.next_offset
            case ("crash", bool(from_older)):
                # What was not submitted is gone; the state is that of the last submit, or of the one before it.
                at, producers = saved if from_older else (submitted, copied(sequencer.dump(submitted)))
                log = [sent for sent in log if sent.end <= submitted]
                sequencer = Sequencer(submitted)
                # Copies: what was saved is loaded again by the next crash.
                sequencer.load(copied(producers).items())
                for sent in log:
                    if sent.offset >= at or random.Random(sent.offset).random() < 0.5:
                        # Batches that the state knows of already may be replayed too.
                        sequencer.replay(sent.batch, sent.offset, 0)
                for producer in "abc":
                    own = [sent for sent in log if sent.batch.producer_id == producer]
                    assert sequencer.next_sequence(producer) == (own[-1].batch.last_sequence + 1 if own else 0)


def send(sequencer: Sequencer, log: list[Sent], batch: ProducerBatch, submitted: int) -> None:
    verdict = sequencer.check(batch)
    assert sequencer.check(batch) == verdict, "a check changes nothing"
    should = expected(log, batch)
    if isinstance(verdict, Append):
        assert should == "append"
        before = sequencer.next_offset
        assert sequencer.append(batch.rows, batch, 0, submitted) == before
        log.append(Sent(batch, before))
    elif isinstance(verdict, Duplicate):
        assert should == "duplicate"
        if verdict.places is None:
            own = [sent.batch for sent in log if sent.batch.producer_id == batch.producer_id]
            forgotten = own[: -sequencing.REQUESTS_REMEMBERED]
            assert any(sent.last_sequence >= batch.first_sequence for sent in forgotten), "it is remembered"
        else:
            offsets = [first + i for first, rows in verdict.places for i in range(rows)]
            numbers = range(batch.first_sequence, batch.last_sequence + 1)
            assert offsets == [offset_of(log, batch.producer_id, number) for number in numbers]
            assert all(a[0] + a[1] < b[0] for a, b in pairwise(verdict.places)), "neighbours are one run"
    else:
        # After a crash the epoch of a request that was lost may still be known: it was claimed all the same.
        assert should == verdict.error_code or verdict.error_code == "fenced_producer"
        assert verdict.next_sequence == sequencer.next_sequence(batch.producer_id)


def copied(producers: dict[str, sequencing.ProducerState]) -> dict[str, sequencing.ProducerState]:
    return {
        name: sequencing.ProducerState(state.epoch, state.last_sequence, state.used_us, list(state.batches))
        for name, state in producers.items()
    }


def batch(first: int, rows: int = 1, *, producer: str = "p", epoch: int = 0) -> ProducerBatch:
    return ProducerBatch(producer, epoch, first, rows)


def append(sequencer: Sequencer, sent: ProducerBatch, *, now_us: int = 0, dump_offset: int | None = None) -> int:
    assert sequencer.check(sent) is APPEND
    floor = sequencer.next_offset if dump_offset is None else dump_offset
    return sequencer.append(sent.rows, sent, now_us, floor)


def test_the_last_requests_are_remembered_with_their_offsets() -> None:
    sequencer = Sequencer(1_000)
    for sequence in range(REQUESTS_REMEMBERED + 5):
        append(sequencer, batch(sequence))
    assert sequencer.check(batch(5)) == Duplicate(((1_005, 1),))
    assert sequencer.check(batch(4)) == Duplicate(None)
    assert sequencer.check(batch(4, 2)) == Duplicate(None), "a part of it is older"


def test_a_retry_in_other_pieces_has_the_offsets_of_each() -> None:
    sequencer = Sequencer(7)
    append(sequencer, batch(0, 10))
    assert sequencer.check(batch(3, 4)) == Duplicate(((10, 4),))
    assert sequencer.check(batch(3, 8)) == Refusal("out_of_order_sequence", 10, 0)
    append(sequencer, batch(10, 5))
    append(sequencer, batch(0, 1, producer="between"))
    append(sequencer, batch(15, 3))
    append(sequencer, batch(18, 2))
    assert sequencer.check(batch(8, 6)) == Duplicate(((15, 6),))
    assert sequencer.check(batch(8, 12)) == Duplicate(((15, 7), (23, 5)))


def test_increasing_sequences_may_have_gaps_and_what_was_seen_is_dropped() -> None:
    sequencer = Sequencer()
    assert sequencer.check_increasing("p", 1, [700, 800]) is APPEND
    first = ProducerBatch("p", 1, 700, 2, skipped=99)
    assert first.last_sequence == 800
    assert sequencer.append(2, first, 0, 0) == 0
    assert (sequencer.next_sequence("p"), sequencer.end_of("p")) == (801, 2)
    assert sequencer.check_increasing("p", 1, [700, 750, 800]) == Duplicate(None)
    assert sequencer.check_increasing("p", 1, [800, 801, 900]) == Rest(1)
    assert sequencer.check_increasing("p", 1, [900]) is APPEND
    assert sequencer.check_increasing("p", 0, [900]) == Refusal("fenced_producer", 801, 1)
    # Where sequences were skipped nobody can say which offset is whose.
    assert sequencer.check(batch(700, 1, epoch=1)) == Duplicate(None)
    append(sequencer, batch(801, 2, epoch=1))
    assert sequencer.check(batch(801, 2, epoch=1)) == Duplicate(((2, 2),))
    again = Sequencer(sequencer.next_offset)
    again.replay(first, 0, 0)
    again.replay(batch(801, 2, epoch=1), 2, 0)
    assert again.producers == sequencer.producers


@pytest.mark.rule("E6")
def test_who_began_again_after_it_was_forgotten_is_known_by_its_newest_records() -> None:
    """A stored state from before, and the records after it, whose sequences are lower."""
    sequencer = Sequencer()
    append(sequencer, batch(0, 50), now_us=1)
    stored = copied(sequencer.dump(50))
    sequencer.expire(2)
    append(sequencer, batch(0, 5), now_us=3)
    restarted = Sequencer(55)
    restarted.load(stored.items())
    for known, offset in ((batch(0, 50), 0), (batch(0, 5), 50)):
        restarted.replay(known, offset, 3)
    assert restarted.next_sequence("p") == 5
    assert restarted.check(batch(5)) is APPEND


def test_sequences_go_on_across_epochs_and_older_ones_are_fenced() -> None:
    sequencer = Sequencer()
    append(sequencer, batch(0, 3))
    append(sequencer, batch(3, 1, epoch=2))
    assert sequencer.check(batch(4, 1, epoch=1)) == Refusal("fenced_producer", 4, 2)
    assert sequencer.check(batch(0, 3, epoch=1)) == Refusal("fenced_producer", 4, 2)
    assert sequencer.check(batch(0, 3, epoch=3)) == Duplicate(((0, 3),))


@pytest.mark.rule("W7")
def test_a_burst_longer_than_what_is_remembered_is_not_forgotten_by_a_dump() -> None:
    """All of it gathers for one group commit; the crash takes it, and the producer is known from before."""
    sequencer = Sequencer()
    append(sequencer, batch(0))
    submitted = sequencer.next_offset
    for sequence in range(1, 2 * REQUESTS_REMEMBERED):
        append(sequencer, batch(sequence), dump_offset=submitted)
    restarted = Sequencer(submitted)
    restarted.load(sequencer.dump(submitted).items())
    assert restarted.check(batch(1)) is APPEND
    assert restarted.check(batch(0)) == Duplicate(((0, 1),))
    append(sequencer, batch(2 * REQUESTS_REMEMBERED))
    assert len(sequencer.producers["p"].batches) == REQUESTS_REMEMBERED, "once it is durable, the burst is cut"


def test_producers_expire_in_the_order_of_their_last_use() -> None:
    sequencer = Sequencer()
    append(sequencer, batch(0, producer="old"), now_us=10)
    append(sequencer, batch(0, producer="used again"), now_us=11)
    append(sequencer, batch(0, producer="new"), now_us=20)
    append(sequencer, batch(1, producer="used again"), now_us=30)
    assert sequencer.expire(20) == 1
    assert sequencer.check(batch(1, producer="old")) == Refusal("unknown_producer", 0, 0)
    assert sequencer.check(batch(0, producer="used again")) == Duplicate(((1, 1),))
    assert sequencer.expire(100) == 2
    assert sequencer.producers == {}


def test_idempotency_keys_expire_by_themselves_and_are_stored_with_the_producers() -> None:
    sequencer = Sequencer()
    append(sequencer, batch(0, producer="key:a:b:1"), now_us=10)
    append(sequencer, batch(0, producer="p"), now_us=5)
    assert list(sequencer.dump(2)) == ["p", "key:a:b:1"]
    assert list(sequencer.dump(1)) == ["key:a:b:1"]
    assert (sequencer.expire(10), sequencer.expire_keys(10)) == (1, 0)
    assert sequencer.check(batch(0, producer="key:a:b:1")) == Duplicate(((0, 1),))
    assert sequencer.expire_keys(11) == 1
    assert sequencer.dump(2) == {}


def test_what_is_remembered_is_counted_for_the_topic_and_for_all() -> None:
    taken, whole = StateBytes(), StateBytes()
    sequencer, other = Sequencer(taken=taken), Sequencer(taken=taken)
    append(sequencer, batch(0, producer="abc"))
    taken.join(whole)
    append(sequencer, batch(0, producer="key:a:b:1"))
    append(other, batch(0, producer="d"))
    append(other, batch(1, producer="d"))
    assert (taken.producers, taken.keys) == (4 + 2 * PRODUCER_BYTES, 9 + KEY_BYTES)
    other.load(sequencer.dump(9).items())
    other.load(sequencer.dump(9).items())
    assert (whole.producers, whole.keys) == (7 + 3 * PRODUCER_BYTES, 18 + 2 * KEY_BYTES)
    other.forget("d")
    assert list(other.producers) == ["abc"]
    taken.leave()
    assert (whole.producers, whole.keys) == (0, 0)
    assert (sequencer.expire(1), other.expire(1), sequencer.expire_keys(1), other.expire_keys(1)) == (1, 1, 1, 1)
    assert (taken.producers, taken.keys) == (0, 0)
