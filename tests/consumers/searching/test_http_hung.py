"""A search of which nothing comes, because what it reads does not answer."""

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fake_log import FakeLog
from starlette.routing import Router

from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.consumers.searching.http import SEARCHES_MAX, SearchHttp
from siltlog.infra.errors import Unavailable
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.routes import routes_of
from siltlog.infra.http.streams import Streams
from siltlog.infra.security.grant import EVERYTHING, GRANT
from siltlog.infra.store.local import LocalStore

PATH = "/v1/topics/flights/search"


class Client:
    """Asks once, and hangs up when it is told to."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.hangs_up = asyncio.Event()
        self._asked = False

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"{}"}
        await self.hangs_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.lines += [json.loads(line) for line in message.get("body", b"").splitlines()]

    async def search(self, router: Router) -> None:
        scope = {"type": "http", "method": "POST", "path": PATH, "query_string": b"", "headers": []}
        await router({**scope, "state": {GRANT: EVERYTHING}}, self.receive, self.send)


@pytest.mark.parametrize("how", ["hang up", "drain"])
def test_it_tells_that_it_is_there_and_ends_all_the_same(tmp_path: Path, how: str) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    async def test() -> None:
        log = FakeLog(LocalStore(str(tmp_path)))
        log.create("flights").partitions[0].append([b"x"])
        log.pause = forever
        row_groups, streams = RowGroups(log.store), Streams(Draining())
        searches = SearchHttp(log, Lookup(log.store, row_groups), streams)
        router = Router(routes_of(searches))
        clients = [Client() for _ in range(SEARCHES_MAX)]
        running = [asyncio.create_task(client.search(router)) for client in clients]
        async with asyncio.timeout(60):
            while any(len(client.lines) < 3 for client in clients):
                await asyncio.sleep(0.05)
        for client in clients:
            assert client.lines[:3] == [{"progress": {"looked_at": 0, "of": 1}}] * 3
        with pytest.raises(Unavailable, match="may; try again in a moment"):
            await Client().search(router)
        if how == "drain":
            streams.drain()
        else:
            for client in clients:
                client.hangs_up.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*running)
        assert [client.lines[-1]["done"]["ended_by"] for client in clients] == ["stop"] * SEARCHES_MAX
        assert all(client.lines[-1]["done"]["next"] for client in clients)
        searches.close()
        row_groups.close()

    asyncio.run(test())
