"""A node is knocked at, and some answers count as nobody being there."""

import asyncio
from collections.abc import Iterator

import pytest

from siltlog.infra.cluster import refusals
from siltlog.infra.cluster.refusals import Refusals
from siltlog.infra.cluster.router import Member

ONE, TWO = (Member(name, f"j-{name}", f"http://{name}:1") for name in ("one", "two"))


class Door:
    """Answers knocks one after the other; the last answer stays."""

    def __init__(self, *refused: bool) -> None:
        self.answers: Iterator[bool] = iter(refused)
        self.last = refused[-1]
        self.knocks: list[str] = []

    async def knock(self, member: Member) -> bool:
        self.knocks.append(member.node)
        self.last = next(self.answers, self.last)
        return self.last


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "KNOCK_SECONDS", 0)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.rule("CM14")
def test_one_refusal_is_none_and_two_in_a_row_are_told() -> None:
    async def test() -> None:
        for answers, refused in (((True, False), False), ((True, True), True), ((False, True, True), True)):
            told: list[None] = []
            found = Refusals(Door(*answers).knock)
            found.follow([ONE], lambda told=told: told.append(None))  # type: ignore[misc]
            await turns()
            assert (found.journals() == {ONE.journal}) is refused
            assert bool(told) is refused
            found.stop()

    asyncio.run(test())


@pytest.mark.rule("CM14")
def test_who_answers_again_or_is_no_suspect_any_more_does_not_refuse() -> None:
    async def test() -> None:
        found = Refusals(Door(True, True, False).knock)
        found.follow([ONE], lambda: None)
        await turns()
        assert found.journals() == frozenset()
        door = Door(True)
        found = Refusals(door.knock)
        found.follow([ONE, TWO], lambda: None)
        await turns()
        assert found.journals() == {ONE.journal, TWO.journal}
        found.follow([TWO], lambda: None)
        assert found.journals() == {TWO.journal}
        found.stop()
        await turns()
        door.knocks.clear()
        await turns()
        assert (found.journals(), door.knocks) == (frozenset(), [])

    asyncio.run(test())
