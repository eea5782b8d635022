"""How many topics and partitions the write-ahead log keeps account of: as many as its state has room for."""

import uuid
from typing import Any

import pytest

from siltlog.infra.errors import Forbidden
from siltlog.ingest.log import state as wal_state
from siltlog.ingest.log.state import EPOCHS_REMEMBERED
from siltlog.ingest.topics.state_room import PARTITION_STATE_BYTES, StateRoom, topic_bytes

MIB = 1024 * 1024
HIGHEST = 2**63 - 1


class There:
    def __init__(self, **topics: int) -> None:
        self._topics = [type("Topic", (), {"name": name, "partitions": range(n)})() for name, n in topics.items()]

    def topics(self) -> list[Any]:
        return self._topics

    def opening(self) -> list[str]:
        return []


def state_of(topics: dict[str, int], epochs: int) -> int:
    """The bytes of a state whose offsets are as high as can be."""
    partition = wal_state.PartitionState(HIGHEST, HIGHEST)
    known = {
        str(uuid.uuid4()): wal_state.TopicState(
            name, HIGHEST, [HIGHEST] * epochs, str(uuid.uuid4()), dict.fromkeys(range(count), partition)
        )
        for name, count in topics.items()
    }
    return len(wal_state.encode(wal_state.WalState(known, wal_state.VERSION)))


@pytest.mark.rule("C7")
@pytest.mark.parametrize("partitions", [1, 100, 10_000])
def test_a_topic_takes_no_more_of_the_state_than_is_reckoned(partitions: int) -> None:
    name = "n" * 200
    one = state_of({name: partitions}, epochs=16) - state_of({}, 0)
    assert 0.9 * topic_bytes(name, partitions) - 300 < one <= topic_bytes(name, partitions)
    # However often its server was started, a state of the smallest topics stays below half of a segment: a start
    # refuses more. A segment has room for four thirds of a submit, and topics may take a tenth of one.
    most = state_of({"n": 1}, EPOCHS_REMEMBERED) - state_of({}, 0)
    assert most < topic_bytes("n", 1) * 10 * 4 / 3 / 2


@pytest.mark.rule("C7")
def test_what_leaves_too_little_room_is_refused_and_told_what_would_have_it() -> None:
    room = StateRoom(lambda: There(a=100, **{"a.dlq": 100}), topic_bytes("a", 100) * 3, 2 * MIB)
    room.check_new("b", 90)
    room.check_more("a", 90)
    with pytest.raises(Forbidden, match=r"SILT_WAL_SEGMENT_BYTES=3145728 .* SILT_WAL_BYTES_MAX=12582912") as refused:
        room.check_new("b", 110)
    assert (refused.value.error_code, refused.value.members["limit"]) == ("cap_reached", "topics_state_bytes")
    with pytest.raises(Forbidden, match=f"this takes {PARTITION_STATE_BYTES * 120}"):
        room.check_more("a", 120)


@pytest.mark.rule("C7")
def test_what_the_server_makes_itself_counts_and_is_not_refused() -> None:
    room = StateRoom(lambda: There(**{"a.dlq": 100}), topic_bytes("a.dlq", 100), MIB)
    for name in ("_offsets", "b.dlq"):
        room.check_new(name, 1_000)
        room.check_more(name, 1_000)
    with pytest.raises(Forbidden):
        room.check_new("b", 1)
