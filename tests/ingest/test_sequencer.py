"""The sequencer against a model that remembers everything, through retries, epochs, crashes and expiry."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.ingest import sequencer as sequencing
from siltlog.ingest.sequencer import (
    APPEND,
    REQUESTS_REMEMBERED,
    Append,
    Duplicate,
    ProducerBatch,
    Refusal,
    Sequencer,
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


@settings(max_examples=400, deadline=None)
@given(STEPS, st.integers(2, 4))
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
                sequencer.load(producers.items())
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
        if verdict.first_offset is not None:
            assert verdict.first_offset == offset_of(log, batch.producer_id, batch.first_sequence)
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
    assert sequencer.check(batch(5)) == Duplicate(1_005)
    assert sequencer.check(batch(4)) == Duplicate(None)
    # A retry in other pieces than the original's is known only within one of them.
    assert sequencer.check(batch(50, 2)) == Duplicate(None)


def test_a_part_of_a_request_has_its_own_offset() -> None:
    sequencer = Sequencer(7)
    append(sequencer, batch(0, 10))
    assert sequencer.check(batch(3, 4)) == Duplicate(10)
    assert sequencer.check(batch(3, 8)) == Refusal("out_of_order_sequence", 10, 0)


def test_sequences_go_on_across_epochs_and_older_ones_are_fenced() -> None:
    sequencer = Sequencer()
    append(sequencer, batch(0, 3))
    append(sequencer, batch(3, 1, epoch=2))
    assert sequencer.check(batch(4, 1, epoch=1)) == Refusal("fenced_producer", 4, 2)
    assert sequencer.check(batch(0, 3, epoch=1)) == Refusal("fenced_producer", 4, 2)
    assert sequencer.check(batch(0, 3, epoch=3)) == Duplicate(0)


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
    assert restarted.check(batch(0)) == Duplicate(0)
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
    assert sequencer.check(batch(0, producer="used again")) == Duplicate(1)
    assert sequencer.expire(100) == 2
    assert sequencer.producers == {}


def test_more_producers_than_fit_lose_the_one_unused_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencing, "PRODUCERS_MAX", 2)
    sequencer = Sequencer()
    for producer in ("a", "b"):
        append(sequencer, batch(0, producer=producer))
    append(sequencer, batch(1, producer="a"))
    append(sequencer, batch(0, producer="c"))
    assert list(sequencer.producers) == ["a", "c"]
