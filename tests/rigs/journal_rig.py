"""The journal of a running node, over a store of the test."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pyarrow as pa

from siltlog.infra.clock import SystemClock
from siltlog.infra.redaction import Redaction
from siltlog.infra.store.store import ObjectStore, Put, open_store
from siltlog.infra.telemetry import logger
from siltlog.ingest.journal.journal import Journal, Shipped
from siltlog.ingest.journal.staging import Stage
from siltlog.ingest.wal import Frame, FrameKind

TOPIC = uuid.UUID(int=9).bytes


class Told:
    def __init__(self) -> None:
        self.fatal: list[BaseException] = []
        self.sealed = 0
        self.landed: list[int] = []


@asynccontextmanager
async def running_journal(
    store: Any, told: Told, interval_ms: int = 0, stage: Stage | None = None
) -> AsyncIterator[Journal]:
    def sealed() -> None:
        told.sealed += 1

    journal = Journal(
        store,
        SystemClock(),
        logger("error", "json", Redaction([])),
        cluster_id="c",
        node_id="n1",
        interval_ms=interval_ms,
        start=lambda: uuid.uuid4().hex,
        on_fatal=told.fatal.append,
        on_sealed=sealed,
        on_landed=lambda seconds: None,
        stage=stage,
    )
    try:
        await journal.open()
        yield journal
    finally:
        journal.close()


def shipped(offset: int, told: Told, nbytes: int = 6) -> Shipped:
    frame = Frame(FrameKind.RECORDS, TOPIC, 0, 1, offset, 1, (pa.py_buffer(b"value"), b"s"))
    return Shipped([frame], nbytes, lambda: told.landed.append(offset))


class Locked:
    """One request at a time: the store is for one thread."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def locked(*args: object) -> object:
            with self._lock:
                return method(*args)

        return locked


def held_store(folder: Path) -> tuple[Any, Event]:
    """A store that takes the first object of a journal, and no more before the event is set."""
    release = Event()

    class Held(Locked):
        def put_if_absent(self, path: str, data: bytes) -> Put:
            if not path.endswith("0" * 20):
                release.wait(20)
            return self._store.put_if_absent(path, data)

    return Held(open_store(folder.as_uri())), release
