"""Where the partitions of a data dir go on that another one has gone on from."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.store.store import ObjectStore
from siltlog.ingest.log.state import PartitionState, TopicState
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.landed import Landed
from siltlog.ingest.ownership.plan import Leave, Plan, Standing, plans

EPOCH = 5
TABLE_OFFSET = 10


def standing(name: str, *, acknowledged: int, own: bool, ahead: bool = False, released: int = 0) -> Standing:
    """A topic of one partition, of which this data dir's WAL acknowledged the offsets below `acknowledged`."""
    snapshot = SimpleNamespace(
        partitions=1,
        version=7,
        epochs={0: EPOCH},
        released={0: released},
        offsets={0: TABLE_OFFSET},
        files_of=lambda partition: (),
    )
    topic: Any = SimpleNamespace(name=name, topic_id=name, snapshot=snapshot, journaled=False)
    known = TopicState(name, 7, [EPOCH] if own else [1], partitions={0: PartitionState(acknowledged, TABLE_OFFSET)})
    brought = {0: TABLE_OFFSET - 1} if ahead else {}
    return Standing(topic, known, Landed({0: TABLE_OFFSET}), {0} if own else set(), ahead=brought)


def planned(*standings: Standing, take_over: bool = False) -> list[Plan]:
    no_frames = cast(Former, SimpleNamespace(frames_of=lambda topic_id, partition: []))
    return plans(cast(ObjectStore, None), standings, no_frames, Leave(take_over))


@pytest.mark.rule("S3")
def test_a_copy_that_is_behind_in_one_topic_is_behind_in_all() -> None:
    whole = standing("whole", acknowledged=TABLE_OFFSET, own=True)
    assert planned(whole)[0].refusals == []
    behind = standing("behind", acknowledged=TABLE_OFFSET, own=True, ahead=True)
    for plan in planned(whole, behind):
        [refusal] = plan.refusals
        assert plan.foreign == {0} and "older copy" in refusal
    for plan in planned(whole, behind, take_over=True):
        assert plan.refusals == [] and plan.goes_on_at(0) == 1 << 32


@pytest.mark.rule("S6")
@pytest.mark.parametrize("acknowledged", [TABLE_OFFSET - 3, TABLE_OFFSET, TABLE_OFFSET + 3])
def test_a_former_owner_goes_on_above_all_that_it_acknowledged(acknowledged: int) -> None:
    [plan] = planned(standing("t", acknowledged=acknowledged, own=False, released=EPOCH))
    assert plan.refusals == []
    assert plan.goes_on_at(0) == max(TABLE_OFFSET, acknowledged)
