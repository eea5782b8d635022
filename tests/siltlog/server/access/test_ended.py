import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.security.access import Subject
from siltlog.infra.security.document import AccessDocument
from siltlog.infra.security.documents import Change
from siltlog.infra.security.grant import Identity
from siltlog.infra.security.sessions import ENDED_MAX, SESSION_US, EndedSession, Session
from siltlog.infra.telemetry import logger
from siltlog.server.access.ended import WRITE_SECONDS, SessionEnds


class SteppedClock(SystemClock):
    seconds = 1_000.0
    us = 100 * SESSION_US

    def monotonic(self) -> float:
        return self.seconds

    def now_us(self) -> int:
        return self.us


class World:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions-ended"
        self.clock = SteppedClock()
        self.document = AccessDocument("cluster")
        self.written = 0
        self.away = False
        self.told: list[str] = []
        self.asked = 0
        self.ends = self.made()

    def made(self) -> SessionEnds:
        return SessionEnds(
            self.path, lambda: self.document, self._ask, self.told.extend, self.clock, logger("error", "json")
        )

    def _ask(self) -> None:
        self.asked += 1

    async def change(self, change: Change) -> None:
        if self.away:
            raise problem("access_unavailable", "it is away")
        self.document = change(self.document)
        self.written += 1

    def end(self, *sessions: Session) -> None:
        for session in sessions:
            self.run(self.ends.end(session))

    def write(self) -> None:
        self.run(self.ends.write(self.change))

    @staticmethod
    def run(doing: Awaitable[object]) -> None:
        asyncio.run(_done(doing))

    def counts(self, session: Session) -> bool:
        try:
            self.ends.check(Identity(Subject(session.principal), "k", session=session))
        except SiltlogError as error:
            assert error.members["reason"] == "unknown"
            return False
        return True

    def session(self, name: str, age_us: int = 0) -> Session:
        begun_us = self.clock.us - age_us
        return Session(name, "key:ana", (), "k", begun_us, begun_us)


async def _done(doing: Awaitable[object]) -> object:
    return await doing


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.rule("A57")
def test_a_session_ends_at_once_and_is_written_with_others_within_seconds(world: World) -> None:
    one, two, other = (world.session(name) for name in ("one", "two", "other"))
    world.end(one)
    world.write()
    assert (world.told, world.asked, world.written) == (["one"], 1, 1)
    world.end(two)
    world.end(one)
    world.write()
    assert world.written == 1, "the last was written a moment ago"
    assert [world.counts(each) for each in (one, two, other)] == [False, False, True]
    world.clock.seconds += WRITE_SECONDS
    world.write()
    world.write()
    assert (world.written, sorted(world.document.ended)) == (2, ["one", "two"])
    assert [world.counts(each) for each in (one, two, other)] == [False, False, True]


@pytest.mark.rule("A57")
def test_what_is_not_written_yet_outlives_the_process(world: World) -> None:
    one = world.session("one")
    world.away = True
    world.end(one)
    with pytest.raises(SiltlogError, match="away"):
        world.write()
    world.ends = world.made()
    assert not world.counts(one)
    world.away = False
    world.write()
    assert list(world.document.ended) == ["one"]
    world.ends = world.made()
    world.document = AccessDocument("cluster")
    assert world.counts(one), "what the document has is not held any more"


@pytest.mark.rule("A57")
def test_a_disk_without_room_keeps_nobody_logged_in(world: World, tmp_path: Path) -> None:
    world.path = tmp_path / "nothing" / "there"
    world.ends = world.made()
    one = world.session("one")
    world.end(one)
    assert not world.ends.are_kept
    assert str(world.path) in world.ends.failure
    assert not world.counts(one)
    world.write()
    assert world.ends.are_kept
    assert not world.ends.failure, "the document has it: there is nothing left to keep"
    assert not world.counts(one)


@pytest.mark.rule("A57")
def test_what_is_over_is_left_out_of_the_document(world: World) -> None:
    old, new = world.session("old", SESSION_US - 1), world.session("new")
    world.end(old)
    world.write()
    world.clock.us += 1
    world.clock.seconds += WRITE_SECONDS
    world.end(new)
    world.write()
    assert list(world.document.ended) == ["new"]


@pytest.mark.rule("A57")
def test_a_clock_that_jumps_ahead_and_back_lets_no_ended_session_count_again(world: World) -> None:
    old = world.session("old")
    world.end(old)
    world.write()
    world.clock.us += 2 * SESSION_US
    world.clock.seconds += WRITE_SECONDS
    world.end(world.session("meanwhile"))
    world.write()
    world.clock.us -= 2 * SESSION_US
    assert not world.counts(old)
    # It is let go of once so much time has passed.
    for _ in range(2):
        world.clock.us += SESSION_US
        world.clock.seconds += SESSION_US / 1_000_000
        world.end(world.session("later"))
        world.write()
    assert "old" not in world.document.ended


@pytest.mark.rule("A57")
def test_the_document_is_bounded_however_many_log_out(world: World) -> None:
    sessions = [world.session(str(number), number) for number in range(3 * ENDED_MAX)]
    more = {each.session_id: EndedSession(each.principal, each.begun_us) for each in sessions}
    world.run(world.ends.hear(more))
    world.write()
    assert len(world.document.ended) <= ENDED_MAX
    assert not any(world.counts(each) for each in sessions)
    assert world.counts(Session("later", "key:ana", (), "k", world.clock.us + 1, world.clock.us + 1))


def test_a_file_that_cannot_be_read_stops_the_start(world: World) -> None:
    world.path.write_bytes(b"{")
    with pytest.raises(ConfigError, match="sessions-ended cannot be read"):
        world.made()
