"""What a request names very many of is gone through in turns, whether they lie in one topic or each in another."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.consumers.kafka.fetch import Asked, KafkaFetch
from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.infra.errors import problem
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.limits import TURN_ITEMS
from siltlog.server.kafka.admin.configs import Configs
from siltlog.server.kafka.admin.leading import Leading
from siltlog.server.kafka.admin.partitions import Partitions
from siltlog.server.kafka.admin.records import Deletions
from siltlog.server.kafka.call import Call
from siltlog.server.kafka.groups.offsets import GroupOffsets
from siltlog.server.kafka.leaders import LeadsAlone
from siltlog.server.kafka.metadata import Described
from siltlog.server.kafka.reading import Reads
from siltlog.server.kafka.topics import TopicsKept
from siltlog.server.kafka.turns import CHANGES_A_TURN, Turns

COUNT = 2_000
Handler = Callable[[Call], Awaitable[Any]]


def unknown(topic: str = "", *_: Any) -> Any:
    raise problem("unknown_topic", f"there is no topic {topic}")


async def changed(*_: Any) -> Any:
    unknown()


NOTHING: Any = SimpleNamespace(
    topic=unknown,
    topics=lambda: (),
    opening=lambda: (),
    names=lambda ids: {},
    make=changed,
    check_leader=lambda *_: KafkaError.NOT_LEADER_OR_FOLLOWER,
    commit_problem=lambda offset: problem("unknown_topic", "there is no such topic"),
)
"""In place of all that knows topics: there are none."""
SESSION = SimpleNamespace(
    refusal=lambda *_: None,
    granted=SimpleNamespace(cap=lambda _: None, subject=None),
    connection=SimpleNamespace(own_address=("127.0.0.1", 1)),
)
LEADERS = LeadsAlone(lambda topic: 0, None)
TOPICS = TopicsKept(NOTHING, NOTHING, NOTHING, NOTHING, LEADERS, 1)
READS = Reads(NOTHING, NOTHING, NOTHING, LEADERS, NOTHING, lambda: False)
LEADING = Leading(NOTHING, LEADERS, None)
CONFIGS = Configs(NOTHING, NOTHING, NOTHING, LEADERS)


def turns_of(handler: Handler, version: int, body: Mapping[str, Any]) -> int:
    """How many turns others have until a request is answered."""

    async def answered() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        meanwhile = asyncio.create_task(others())
        answer = await handler(Call(version, body, cast(Any, SESSION), cast(Any, None)))
        meanwhile.cancel()
        assert answer
        return turns

    return asyncio.run(answered())


def many(name: str = "name", **more: Any) -> list[dict[str, Any]]:
    return [{name: f"absent-{number}", **more} for number in range(COUNT)]


def each_in_a_topic(name: str = "name", **fields: Any) -> dict[str, Any]:
    return {"topics": many(name, topic_id=None, partitions=[fields])}


@pytest.mark.rule("KF20")
@pytest.mark.parametrize(
    ("handler", "version", "body", "items"),
    [
        (READS.list_offsets, 5, each_in_a_topic(partition_index=0, current_leader_epoch=0), TURN_ITEMS),
        (READS.offset_for_leader_epoch, 3, each_in_a_topic("topic", partition=0, current_leader_epoch=0), TURN_ITEMS),
        (
            Described(NOTHING, NOTHING, None, LEADERS, cluster_id="").find_coordinator,
            4,
            {"key_type": 0, "coordinator_keys": [str(number) for number in range(COUNT)]},
            TURN_ITEMS,
        ),
        (
            GroupOffsets(NOTHING, NOTHING, NOTHING).commit,
            8,
            {"group_id": "g"}
            | each_in_a_topic(partition_index=0, committed_offset=0, committed_metadata="", committed_leader_epoch=-1),
            TURN_ITEMS,
        ),
        (
            Deletions(NOTHING, NOTHING, NOTHING, lambda: 0.0).delete,
            2,
            {"timeout_ms": 1, **each_in_a_topic(partition_index=0, offset=0)},
            CHANGES_A_TURN,
        ),
        (
            TOPICS.create,
            5,
            {"validate_only": True, "topics": many(num_partitions=-2, assignments=[], configs=[])},
            CHANGES_A_TURN,
        ),
        (
            TOPICS.delete,
            5,
            {"topics": [], "topic_names": [str(number) for number in range(COUNT)]},
            CHANGES_A_TURN,
        ),
        (
            Partitions(NOTHING, NOTHING, NOTHING, LEADERS).create,
            3,
            {"topics": many(count=1, assignments=None)},
            CHANGES_A_TURN,
        ),
        (CONFIGS.change, 1, {"resources": many("resource_name", resource_type=2, configs=[])}, CHANGES_A_TURN),
        (CONFIGS.replace, 1, {"resources": many("resource_name", resource_type=2, configs=[])}, CHANGES_A_TURN),
        (LEADING.elect, 0, {"topic_partitions": [{"topic": "absent", "partitions": range(COUNT)}]}, TURN_ITEMS),
        (LEADING.reassign, 0, {"topics": many(partitions=[])}, CHANGES_A_TURN),
    ],
    ids=[
        *("offsets", "epochs", "coordinators", "commit", "records", "create", "delete", "grow", "change", "replace"),
        *("elect", "move"),
    ],
)
def test_others_have_their_turn(handler: Handler, version: int, body: Mapping[str, Any], items: int) -> None:
    assert turns_of(handler, version, body) >= COUNT // items


@pytest.mark.rule("KF20")
def test_each_look_at_the_topics_of_a_fetch_is_taken_in_turns() -> None:
    share = SimpleNamespace(bytes_taken=0)

    async def nothing(positions: Sequence[FetchPosition], **_: Any) -> Any:
        found = [
            SimpleNamespace(share=share, error=None, bounds=None, batches=(), next_offset=0, position=each)
            for each in positions
        ]
        return SimpleNamespace(partitions=found)

    fetches = KafkaFetch(NOTHING, cast(Any, SimpleNamespace(fetch=nothing)), lambda topic: 0, lambda topic: True)
    asked = [Asked(FetchPosition(f"absent-{number}", 0, 0, 1)) for number in range(COUNT)]
    more: dict[str, Any] = {"max_bytes": 1, "min_bytes": 0, "wait_ms": 0, "held": None, "grant": None, "meter": None}
    turns = turns_of(lambda _: fetches.fetch(asked, codecs=(), **more), 0, {})
    # Who leads each, and how its records are compressed.
    assert turns >= 2 * (COUNT // TURN_ITEMS)


@pytest.mark.rule("KF20")
def test_things_within_things_share_their_turns() -> None:
    async def gone_through(turns: Turns) -> Any:
        return [inner async for outer in turns.over(range(COUNT)) async for inner in turns.over([outer])]

    assert turns_of(lambda _: gone_through(Turns(10)), 0, {}) >= 2 * COUNT // 10
