"""Where bodies are parsed."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from siltlog.infra import names
from siltlog.infra.http.query import Query
from siltlog.ingest.records.formats import THREAD_BYTES_MIN, THREADS, BodyParser

LINES = THREAD_BYTES_MIN // 9 + 1


@pytest.mark.rule("B7")
def test_few_large_bodies_are_parsed_at_once() -> None:
    body = b"12345678\n" * LINES

    request: Any = SimpleNamespace(scope={"query_string": b""})

    async def run() -> None:
        parser = BodyParser(len(body))
        parsed = await asyncio.gather(
            *(parser.parsed(names.MEDIA_NDJSON, body, [], Query(request, ())) for _ in range(6))
        )
        assert [one.count for one in parsed] == [LINES] * 6
        assert sum(thread.name.startswith("parse") for thread in threading.enumerate()) == THREADS == 2

    asyncio.run(run())
