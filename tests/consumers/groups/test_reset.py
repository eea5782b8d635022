"""Where a group goes on, set by hand."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_log import CREATED_US
from groups_rig import refusal, run
from offsets_rig import Server, log_with, server

from siltlog.consumers.groups.reset import OffsetReset, ResetRequest
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.clock import format_us
from siltlog.infra.errors import Unavailable


async def reset(r: Server, group: str = "g", **request: Any) -> dict[tuple[str, int], tuple[int | None, int]]:
    row_groups = RowGroups(r.log.store)
    try:
        by = OffsetReset(r.groups, r.log, Lookup(r.log.store, row_groups))
        moved = await by.reset(group, msgspec.convert(request, ResetRequest))
    finally:
        row_groups.close()
    return {(move.topic, move.partition): (move.before, move.after) for move in moved}


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ({"to": "earliest"}, 10),
        ({"to": "latest"}, 100),
        ({"to": "offset", "offset": 77}, 77),
        ({"to": "offset", "offset": 3}, 10),
        ({"to": "offset", "offset": 1_000}, 100),
        ({"to": "shift", "shift": 7}, 57),
        ({"to": "shift", "shift": -7}, 43),
        ({"to": "shift", "shift": -1_000}, 10),
        ({"to": "shift", "shift": 2**53 - 1}, 100),
        ({"to": "timestamp", "timestamp": format_us(CREATED_US + 64)}, 64),
        ({"to": "timestamp", "timestamp": (CREATED_US + 10**9) // 1000}, 100),
        ({"to": "timestamp", "timestamp": 0}, 10),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_every_way_within_the_log(valkey_url: str, tmp_path: Path, asked: dict[str, Any], after: int) -> None:
    async def scenario() -> None:
        log = log_with(tmp_path, t=2)
        view = log.topic("t").partitions[0]
        view.flush(80)
        async with server(valkey_url, log) as r:
            await r.redis.command("FLUSHALL")
            await r.commit({0: 50})
            view.retain(10)
            asked["partitions"] = [{"topic": "t", "partition": 0}]
            assert await reset(r, dry_run=True, **asked) == {("t", 0): (50, after)}
            assert await r.committed() == {0: 50} and r.saved() == {0: 50}
            assert await reset(r, **asked) == {("t", 0): (50, after)}
            assert await r.committed() == {0: after} and r.saved() == {0: after}
            await r.redis.command("FLUSHALL")
            assert await r.committed() == {0: after}

    run(scenario())


def test_topics_are_all_of_their_partitions(valkey_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(valkey_url, log_with(tmp_path, t=2, u=1)) as r:
            await r.redis.command("FLUSHALL")
            await r.commit({1: 50})
            assert await reset(r, topics=["u", "t", "u"], to="latest") == {
                ("u", 0): (None, 100),
                ("t", 0): (None, 100),
                ("t", 1): (50, 100),
            }
            await reset(r, topics=["t"], to="offset", offset=40)
            # Shifted is what has an offset.
            await r.commit({0: 5}, group="h")
            assert await reset(r, "h", topics=["t", "u"], to="shift", shift=1) == {("t", 0): (5, 6)}

    run(scenario())


def test_a_group_with_members_is_not_reset(valkey_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(valkey_url, log_with(tmp_path, t=1)) as r:
            await r.redis.command("FLUSHALL")
            await r.join("m", "t")
            for dry_run in (True, False):
                refused = await refusal(reset(r, topics=["t"], to="latest", dry_run=dry_run))
                assert (refused.error_code, refused.status) == ("group_not_empty", 409)
            await r.groups.members.leave("g", "m")
            assert await reset(r, topics=["t"], to="latest") == {("t", 0): (0, 100)}

    run(scenario())


def test_what_cannot_be_kept_is_not_answered(valkey_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(valkey_url, log_with(tmp_path, t=1)) as r:
            await r.redis.command("FLUSHALL")
            await r.commit({0: 50})
            r.system.refusing = True
            assert isinstance(await refusal(reset(r, topics=["t"], to="latest")), Unavailable)
            r.system.refusing = False
            await asyncio.sleep(0)
            await r.tick()
            assert r.saved() == {0: 100}, "it is in Redis, and may be asked again"

    run(scenario())


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"to": "latest"}, "invalid_request"),
        ({"to": "latest", "topics": ["t"], "partitions": [{"topic": "t", "partition": 0}]}, "invalid_request"),
        ({"to": "latest", "topics": ["t"], "offset": 5}, "invalid_request"),
        ({"to": "offset", "topics": ["t"]}, "invalid_request"),
        ({"to": "timestamp", "topics": ["t"], "timestamp": "yesterday"}, "invalid_request"),
        ({"to": "timestamp", "topics": ["t"], "timestamp": "2026-11-21T07:00:00"}, "invalid_request"),
        ({"to": "shift", "topics": ["t"], "shift": 1, "offset": 1}, "invalid_request"),
        ({"to": "shift", "partitions": [{"topic": "t", "partition": 1}], "shift": 1}, "invalid_request"),
        ({"to": "shift", "topics": ["u"], "shift": 1}, "invalid_request"),
        ({"to": "latest", "topics": ["nothing"]}, "unknown_topic"),
        ({"to": "latest", "partitions": [{"topic": "t", "partition": 2}]}, "unknown_partition"),
        ({"to": "latest", "partitions": [{"topic": "t", "partition": 0}] * 2}, "invalid_request"),
        ({"to": "latest", "topics": ["t"], "group": "nobody"}, "unknown_group"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_what_makes_no_sense_changes_nothing(valkey_url: str, tmp_path: Path, asked: dict[str, Any], code: str) -> None:
    async def scenario() -> None:
        async with server(valkey_url, log_with(tmp_path, t=2, u=1)) as r:
            await r.redis.command("FLUSHALL")
            await r.commit({0: 50})
            assert (await refusal(reset(r, **asked))).error_code == code
            assert await r.committed() == {0: 50}

    run(scenario())
