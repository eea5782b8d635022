"""What the log remembers besides records: it is read as it was written, and events bring it up to date."""

import msgspec
import pytest

from siltlog.infra.errors import ConfigError
from siltlog.ingest.log.state import (
    EPOCHS_REMEMBERED,
    NOT_KNOWN,
    VERSION,
    Claiming,
    Deleted,
    Event,
    Flushed,
    Flushing,
    Inherited,
    PartitionState,
    ProducerClaimed,
    TopicState,
    WalState,
    apply,
    decode_event,
    decode_state,
    encode,
    recovered,
    shortened,
)
from siltlog.ingest.producers.epochs import EpochState, KnownEpoch
from siltlog.ingest.producers.sequencer import ProducerState, SequencedBatch

STATE = WalState(
    {
        "id": TopicState(
            "t",
            7,
            [1, 2],
            "open",
            {3: PartitionState(10, 5, {"p": ProducerState(1, 9, 44, [SequencedBatch(0, 9, 0)])})},
        )
    }
)


def state() -> WalState:
    return decode_state(encode(STATE))


def test_it_is_read_as_it_was_written() -> None:
    assert state() == STATE


def test_a_later_version_is_refused() -> None:
    content = encode(msgspec.structs.replace(STATE, version=VERSION + 1))
    with pytest.raises(ConfigError, match=rf"version {VERSION + 1}, .* up to {VERSION}: start the newer version again"):
        recovered(content)


def test_table_offsets_of_an_older_version_are_not_relied_on() -> None:
    assert STATE.version < VERSION
    found = recovered(encode(STATE)).topics["id"].partitions[3]
    assert (found.next_offset, found.table_offset) == (10, NOT_KNOWN)
    new = msgspec.structs.replace(STATE, version=VERSION)
    assert recovered(encode(new)) == new
    assert recovered(None) == WalState(version=VERSION)


@pytest.mark.rule("W8")
@pytest.mark.parametrize(
    "event",
    [
        Claiming("id", "t", 8, {0: 5}),
        Flushing("id", "c", 8),
        Flushed("id", 8, {0: 5}),
        Deleted("id"),
        ProducerClaimed("id", "p", 3, 44),
        Inherited("id", {3: STATE.topics["id"].partitions[3].producers}, EpochState(4, {"p": KnownEpoch(1, 2)})),
    ],
)
def test_events_are_told_apart(event: Event) -> None:
    assert decode_event(encode(event)) == event


@pytest.mark.rule("W8")
def test_claims_are_remembered_also_of_topics_it_did_not_know() -> None:
    found = state()
    apply(found, Claiming("id", "t", 3))
    apply(found, Claiming("new", "u", 1))
    assert (found.topics["id"].epochs, found.topics["new"].epochs) == ([1, 2, 3], [1])
    for epoch in range(4, 4 + EPOCHS_REMEMBERED):
        apply(found, Claiming("id", "t", epoch))
    assert found.topics["id"].epochs == list(range(4, 4 + EPOCHS_REMEMBERED))


@pytest.mark.rule("W8")
def test_claims_of_producers_and_what_was_inherited() -> None:
    found = state()
    for event in (ProducerClaimed("id", "p", 1, 5), ProducerClaimed("id", "q", 1, 6), ProducerClaimed("id", "p", 2, 7)):
        apply(found, event)
    assert found.topics["id"].producer_epochs == EpochState(0, {"q": KnownEpoch(1, 6, 1), "p": KnownEpoch(2, 7, 2)})
    assert list(found.topics["id"].producer_epochs.epochs) == ["q", "p"], "in order of use"
    known = {"r": ProducerState(1, 9, 44, [SequencedBatch(0, 9, 0)])}
    apply(found, Inherited("id", {7: known}, EpochState(9, {})))
    topic = found.topics["id"]
    assert (topic.partitions[7].producers, topic.producer_epochs) == (known, EpochState(9, {}))
    apply(found, ProducerClaimed("unknown", "p", 1, 5))


def test_a_state_of_before_there_were_claims_is_read() -> None:
    old = msgspec.msgpack.encode([{"id": ["t", 7, [1], "", {3: [10, 5, {"p": [1, 9, 44, [[0, 9, 0]]]}]}]}])
    topic = decode_state(old).topics["id"]
    assert topic.producer_epochs == EpochState()
    assert topic.partitions[3].producers == STATE.topics["id"].partitions[3].producers


@pytest.mark.rule("W8")
def test_flushes_move_the_table_and_never_the_end_back() -> None:
    found = state()
    apply(found, Flushing("id", "c", 7))
    assert (found.topics["id"].open_commit, found.topics["id"].table_version) == ("c", 7)
    apply(found, Flushed("id", 8, {3: 8, 4: 2}))
    topic = found.topics["id"]
    assert (topic.open_commit, topic.table_version) == ("", 8)
    assert (topic.partitions[3].table_offset, topic.partitions[3].next_offset) == (8, 10)
    assert (topic.partitions[4].table_offset, topic.partitions[4].next_offset) == (2, 2)
    assert topic.partitions[3].producers == STATE.topics["id"].partitions[3].producers


@pytest.mark.rule("W8")
def test_what_was_deleted_is_forgotten() -> None:
    found = state()
    for event in (Deleted("id"), Deleted("id"), Flushed("id", 9, {}), Flushing("id", "c", 9)):
        apply(found, event)
    assert found.topics == {}


def test_shortened_it_still_tells_every_producers_place() -> None:
    batches = [SequencedBatch(n, n, 40 + n) for n in range(100)]
    partitions = {0: PartitionState(140, 5, {"p": ProducerState(1, 99, 44, batches)})}
    long = WalState({"id": TopicState("t", 7, [1], "open", partitions)})
    short = decode_state(encode(shortened(long)))
    assert short.topics["id"].partitions[0].producers == {"p": ProducerState(1, 99, 44, batches[-1:])}
    assert long.topics["id"].partitions[0].producers["p"].batches == batches
    assert len(encode(short)) < len(encode(long)) / 10
