"""What a request names very many of is gone through in turns, whether they lie in one topic or each in another."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.consumers.groups.offsets import Offsets
from siltlog.consumers.groups.topics import GroupTopics
from siltlog.consumers.kafka.fetch import KafkaFetch
from siltlog.consumers.kafka.sessions import FetchSessions, Room
from siltlog.consumers.reading.fetch import Fetcher, FetchPosition
from siltlog.consumers.reading.http import ReadLimits
from siltlog.infra.errors import problem
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.limits import TURN_ITEMS
from siltlog.infra.records import Bounds
from siltlog.server.kafka.admin.configs import RESOURCES_A_TURN, Configs
from siltlog.server.kafka.admin.leading import Leading
from siltlog.server.kafka.admin.partitions import Partitions
from siltlog.server.kafka.admin.records import Deletions
from siltlog.server.kafka.call import Call, Waited
from siltlog.server.kafka.groups.offsets import GroupOffsets
from siltlog.server.kafka.leaders import LeadsAlone
from siltlog.server.kafka.metadata import NO_ID, Described
from siltlog.server.kafka.publishing import Publishes
from siltlog.server.kafka.reading import Reads
from siltlog.server.kafka.topics import TopicsKept
from siltlog.server.kafka.turns import CHANGES_A_TURN, Turns

COUNT = 2_000
GONE_THROUGH, CHANGED = COUNT // TURN_ITEMS, COUNT // CHANGES_A_TURN
"""The turns of others while so many things are gone through once, or changed."""
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
    view=None,
    draining=False,
    store=None,
)
"""In place of all that knows topics: there are none."""


async def charged(**_: Any) -> None:
    """There are no quotas."""


async def charged_publish(topic: str, nbytes: int, seconds_max: float) -> None:
    raise problem("rate_limited", "the quota is used")


SESSION = SimpleNamespace(
    refusal=lambda *_: None,
    granted=SimpleNamespace(cap=lambda _: None, subject=None, require=lambda *_: None),
    connection=SimpleNamespace(own_address=("127.0.0.1", 1), hang_up=HangUp()),
    fetches=FetchSessions(Room()),
    changing=lambda *_: nullcontext(),
    charged=charged,
    charged_publish=charged_publish,
)


async def none_kept(name: str, group: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"status": "ok", "offsets": ()}


async def none_forgotten(group: str, partitions: Any) -> tuple[str, Sequence[str]]:
    return "ok", ()


RUNNER: Any = SimpleNamespace(run=none_kept, forget=none_forgotten)
GROUP_OFFSETS = GroupOffsets(Offsets(RUNNER, GroupTopics(NOTHING)), NOTHING, NOTHING)


async def published(call: Call) -> Any:
    """Goes through all that a publish does beside reading and appending."""

    async def passed(*_: Any) -> int:
        return 0

    produce: Any = SimpleNamespace(read=passed, append=passed, acknowledged=passed)
    held: Any = SimpleNamespace(take=lambda nbytes: None, release=lambda: None)
    call = Call(call.version, call.body, call.session, held)
    waited = await Publishes(produce, NOTHING, LEADERS, lambda: 1).produce(call)
    return await cast(Waited, waited).fields


LEADERS = LeadsAlone(lambda topic: 0, None)
TOPICS = TopicsKept(NOTHING, NOTHING, NOTHING, NOTHING, LEADERS, 1)
READS = Reads(NOTHING, NOTHING, NOTHING, LEADERS, NOTHING, lambda: False)
FETCHES = Reads(
    *(NOTHING, KafkaFetch(NOTHING, Fetcher(NOTHING, cast(Any, None)), lambda topic: 0, lambda topic: True)),
    *(cast(Any, None), LEADERS, ReadLimits(bytes=1, wait_ms=1), lambda: False),
)
UNASKED = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}
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


def each_offset() -> dict[str, Any]:
    return {"topics": many(topic_id=None, partition_indexes=[0])}


def each_fetched() -> dict[str, Any]:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1, "current_leader_epoch": -1}
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1, "session_id": 0, "session_epoch": -1}
    return {"topics": many("topic", topic_id=b"", partitions=[part]), "forgotten_topics_data": [], **limits}


def each_published() -> dict[str, Any]:
    # A body is a request's own: what a handler takes out of it is gone.
    parts = [[{"index": 0, "records": b""}] for _ in range(COUNT)]
    topics = [{**topic, "partition_data": part} for topic, part in zip(many(topic_id=None), parts, strict=True)]
    return {"acks": -1, "timeout_ms": 1, "transactional_id": None, "topic_data": topics}


@pytest.mark.rule("KF20")
@pytest.mark.parametrize(
    ("handler", "version", "body", "turns"),
    [
        (READS.list_offsets, 5, each_in_a_topic(partition_index=0, current_leader_epoch=0), GONE_THROUGH),
        (READS.offset_for_leader_epoch, 3, each_in_a_topic("topic", partition=0, current_leader_epoch=0), GONE_THROUGH),
        (
            Described(NOTHING, NOTHING, None, LEADERS, cluster_id="").find_coordinator,
            4,
            {"key_type": 0, "coordinator_keys": [str(number) for number in range(COUNT)]},
            GONE_THROUGH,
        ),
        (
            GroupOffsets(NOTHING, NOTHING, NOTHING).commit,
            8,
            {"group_id": "g"}
            | each_in_a_topic(partition_index=0, committed_offset=0, committed_metadata="", committed_leader_epoch=-1),
            GONE_THROUGH,
        ),
        (
            Deletions(NOTHING, NOTHING, NOTHING, lambda: 0.0).delete,
            2,
            {"timeout_ms": 1, **each_in_a_topic(partition_index=0, offset=0)},
            CHANGED,
        ),
        (
            TOPICS.create,
            5,
            {"validate_only": True, "topics": many(num_partitions=-2, assignments=[], configs=[])},
            CHANGED,
        ),
        (
            TOPICS.delete,
            5,
            {"topics": [], "topic_names": [str(number) for number in range(COUNT)]},
            CHANGED,
        ),
        (
            Partitions(NOTHING, NOTHING, NOTHING, LEADERS).create,
            3,
            {"topics": many(count=1, assignments=None)},
            CHANGED,
        ),
        (GROUP_OFFSETS.fetch, 7, {"group_id": "g", **each_offset()}, 2 * GONE_THROUGH),
        (GROUP_OFFSETS.delete, 0, {"group_id": "g", **each_in_a_topic(partition_index=0)}, GONE_THROUGH),
        (FETCHES.fetch, 11, each_fetched(), 5 * GONE_THROUGH),
        (published, 9, each_published(), 5 * GONE_THROUGH),
        (
            CONFIGS.describe,
            4,
            {"resources": many("resource_name", resource_type=2, configuration_keys=None)},
            COUNT // RESOURCES_A_TURN,
        ),
        (
            Described(NOTHING, NOTHING, None, LEADERS, cluster_id="").metadata,
            9,
            {"topics": many(topic_id=NO_ID), "allow_auto_topic_creation": False, **UNASKED},
            GONE_THROUGH,
        ),
        (
            Described(NOTHING, NOTHING, None, LEADERS, cluster_id="").topic_partitions,
            0,
            {"topics": many(), "response_partition_limit": 1, "cursor": None},
            2 * GONE_THROUGH,
        ),
        (CONFIGS.change, 1, {"resources": many("resource_name", resource_type=2, configs=[])}, CHANGED),
        (CONFIGS.replace, 1, {"resources": many("resource_name", resource_type=2, configs=[])}, CHANGED),
        (LEADING.elect, 0, {"topic_partitions": [{"topic": "absent", "partitions": range(COUNT)}]}, GONE_THROUGH),
        (LEADING.reassign, 0, {"topics": many(partitions=[])}, CHANGED),
    ],
    ids=[
        *("offsets", "epochs", "coordinators", "commit", "records", "create", "delete", "grow"),
        *("committed", "forgotten", "fetch", "publish", "settings", "metadata", "pages", "change", "replace"),
        *("elect", "move"),
    ],
)
def test_others_have_their_turn(handler: Handler, version: int, body: Mapping[str, Any], turns: int) -> None:
    assert turns_of(handler, version, body) >= turns


class Wide:
    """A topic with very many partitions, all of them empty."""

    topic_id = "wide"
    partitions = (SimpleNamespace(bounds=lambda: Bounds(0, 0, 0), far=False),) * COUNT


@pytest.mark.rule("KF20")
def test_each_look_at_the_partitions_of_a_fetch_is_taken_in_turns() -> None:
    log: Any = SimpleNamespace(topic=lambda name: Wide, view=None, draining=False, store=None)
    fetcher = Fetcher(log, cast(Any, None))
    positions = [FetchPosition("wide", number, 0, 1) for number in range(COUNT)]
    limits: Any = {"max_records": 1, "max_bytes": 1, "min_bytes": 0, "wait_ms": 0}
    # Each is begun, read, and told how far it goes.
    assert turns_of(lambda _: fetcher.fetch(positions, **limits), 0, {}) >= 3 * GONE_THROUGH


@pytest.mark.rule("KF20")
def test_things_within_things_share_their_turns() -> None:
    async def gone_through(turns: Turns) -> Any:
        return [inner async for outer in turns.over(range(COUNT)) async for inner in turns.over([outer])]

    assert turns_of(lambda _: gone_through(Turns(10)), 0, {}) >= 2 * COUNT // 10
