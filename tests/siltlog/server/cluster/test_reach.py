"""What a node says of those that it cannot reach, or may not call."""

import asyncio

from siltlog.infra.cluster.router import Member
from siltlog.infra.telemetry import logger
from siltlog.server.cluster.reach import Reach


def test_who_did_not_answer_last_is_out_of_reach() -> None:
    members = [Member(name, f"journal of {name}", "http://h") for name in ("c", "a", "b")]
    silent = {"a", "c"}

    async def calls(member: Member) -> str:
        return "it was closed" if member.node in silent else ""

    unproven = ["d"]

    async def run() -> None:
        reach = Reach(lambda: members, calls, logger("critical", "json"), lambda: unproven)
        assert reach.unreachable == ()
        await reach.look()
        assert reach.unreachable == ("a", "c", "d")
        unproven.clear()
        silent.remove("a")
        del members[0]
        await reach.look()
        assert reach.unreachable == ()

    asyncio.run(run())
