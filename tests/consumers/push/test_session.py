"""A WebSocket that is spoken over, without a connection."""

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from fake_log import FakeLog

from siltlog.consumers.push import session
from siltlog.consumers.push.feed import Feed, Found
from siltlog.consumers.push.session import Session
from siltlog.consumers.push.sockets import TopicSocket
from siltlog.consumers.push.tail import TailRequest
from siltlog.consumers.reading.cursor import Cursor
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import problem
from siltlog.infra.http.connection.web_socket import WebSocket
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.streams import Streams
from siltlog.infra.store.local import LocalStore
from siltlog.infra.telemetry import Logger


class Line:
    """A client that takes everything; what it heard."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.ended = self.is_slow = False
        self.takes = True

    def send(self, text: bytes) -> None:
        self.heard.append(msgspec.json.decode(text))

    def message(self) -> bytes | None:
        return None

    def close(self, code: int, error: Exception | None = None) -> None:
        self.heard.append({"closed": code})
        self.ended = True


class CrowdedFeed:
    """Has no memory for the first read; with the second one the test is over."""

    ready = True

    def __init__(self, line: Line) -> None:
        self.line = line
        self.read_at: list[float] = []

    async def read(self, records_max: int) -> list[Found]:
        self.read_at.append(asyncio.get_running_loop().time())
        if len(self.read_at) == 1:
            raise problem("overloaded", "no memory for it")
        self.line.ended = True
        return []

    def close(self) -> None:
        """Nothing is open."""


class Plain(Session):
    in_group = False


@pytest.mark.rule("U9")
def test_without_memory_for_what_comes_next_it_waits_and_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CROWDED_RETRY_SECONDS", 0.2)

    async def test() -> None:
        line = Line()
        feed = CrowdedFeed(line)
        with Streams(Draining()).opened("topic_socket") as stream:
            socket = Plain(cast(WebSocket, line), stream, "text", None, cast(Logger, None))
            socket.feed = cast(Feed, feed)
            socket.credit = 10
            await asyncio.wait_for(socket.run(), 30)
        first, second = feed.read_at
        assert second - first >= 0.19
        assert line.heard == [], "it is not told, and not ended"

    asyncio.run(test())


@pytest.mark.rule("U5")
def test_a_filter_that_finds_nothing_moves_the_cursor_that_is_told_with_the_beat(tmp_path: Path) -> None:
    async def test() -> None:
        log = FakeLog(LocalStore(str(tmp_path)))
        topic = log.create("flights", 1)
        row_groups = RowGroups(log.store)
        line = Line()
        wanted = TailRequest(topic, {0: 0}, True, RecordFilter(contains=b"wanted"), "text", "wal")
        with Streams(Draining()).opened("topic_socket") as stream:
            fetcher = Fetcher(log, row_groups)
            socket = TopicSocket(cast(WebSocket, line), stream, log, fetcher, wanted, None, cast(Logger, None))
            socket.credited()
            topic.partitions[0].append([b"another"] * 7)
            assert await socket.feed.read(10) == []
            socket.beat()
            socket.beat()
            socket.feed.close()
        row_groups.close()
        told = [Cursor.parse(message["cursor"]).offsets for message in line.heard]
        assert told == [{0: 0}, {0: 7}], "where it begins, then once what was passed over"

    asyncio.run(test())
