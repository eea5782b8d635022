"""System topics whose appends fail when they are told to."""

from collections.abc import Mapping, Sequence
from typing import Any

from log_rig import log_starts_of

from siltlog.infra.errors import SiltlogError
from siltlog.infra.records import NewRecord
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.publish.inside import SystemTopics
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.topics.topics import Topics


class FailingSystem(SystemTopics):
    """The real one, which can be told to fail: before it appends, or once it has."""

    def __init__(self, log: Log, topics: Topics) -> None:
        super().__init__(log, topics, Publishing(log, lambda: None, None), log_starts_of(log))
        self.before: SiltlogError | None = None
        self.after: SiltlogError | None = None
        self.appended: list[int] = []
        self.configs: list[Mapping[str, Any]] = []

    async def ensure(self, name: str, partitions: int, config: Mapping[str, Any]) -> TopicLog:
        self.configs.append(config)
        return await super().ensure(name, partitions, config)

    async def append(self, topic: str, partition: int, records: Sequence[NewRecord], **kwargs: Any) -> list[int | None]:
        if self.before is not None:
            raise self.before
        found = await super().append(topic, partition, records, **kwargs)
        self.appended.append(len(records))
        if self.after is not None:
            raise self.after
        return found
