"""A node with as much of a log as the life of topics needs."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from siltlog.infra.clock import SystemClock
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.telemetry import logger
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.topics.topics import Topics


class Node:
    """What `Topics` needs of a log; `between` runs when a claim is in the WAL and not yet in the table."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.server_config: dict[str, Any] = {}
        self.wal = None
        self.topic_logs = TopicLogs()
        self.between: Callable[[], Awaitable[object]] | None = None
        self.group_commit = SimpleNamespace(add_control=lambda payload: None, commit=self._commit)
        self.handled = Topics(cast(Log, self), logger("error", "console"))
        self.create = self.handled.create

    async def landed(self, topic: Any) -> None:
        pass

    async def _commit(self) -> None:
        between, self.between = self.between, None
        if between is not None:
            await between()

    def topics(self) -> list[Any]:
        return list(self.topic_logs.all())

    def topic(self, name: str) -> Any:
        return self.topic_logs.find(name)

    def see_table(self, topic: Any, snapshot: Any) -> None:
        topic.check_owned(snapshot)
        topic.moved_by(snapshot)
