"""DescribeLogDirs: how much of each partition there is, and how much room is left."""

import asyncio
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from siltlog.consumers.reading.view import LogView, TopicView
from siltlog.infra.kafka.errors import KafkaError
from siltlog.ingest.topics.topics import Topics
from siltlog.server.kafka.call import Answer, Call

NOT_KNOWN = -1
"""The room of a bucket."""


class LogDirs:
    """The root is the one there is: what waits for a partition's table is counted there too. Used on one event loop."""

    def __init__(self, log: LogView, topics: Topics, root_uri: str) -> None:
        self._log = log
        self._topics = topics
        self._root_uri = root_uri
        parts = urlsplit(root_uri)
        self._folder = unquote(parts.path) if parts.scheme == "file" else None

    async def describe(self, call: Call) -> Answer:
        wanted = _asked(call.body["topics"])
        seen = call.session.granted.filter("topic")
        topics = []
        for topic in self._log.topics():
            numbers = range(len(topic.partitions)) if wanted is None else wanted.get(topic.name, ())
            if numbers and (seen is None or seen(topic.name)):
                topics.append({"name": topic.name, "partitions": self._sizes(topic, numbers)})
                # There may be thousands.
                await asyncio.sleep(0)
        total, usable = NOT_KNOWN, NOT_KNOWN
        if self._folder is not None and call.session.granted.may("describe", "cluster"):
            with suppress(OSError):
                usage = await asyncio.to_thread(shutil.disk_usage, self._folder)
                total, usable = usage.total, usage.free
        found = {
            "error_code": KafkaError.NONE,
            "log_dir": self._folder or self._root_uri,
            "topics": topics,
            "total_bytes": total,
            "usable_bytes": usable,
        }
        return {"error_code": KafkaError.NONE, "results": [found]}

    def _sizes(self, topic: TopicView, numbers: Collection[int]) -> list[dict[str, Any]]:
        own = self._topics.own(topic.name)
        waiting = own.partitions if own is not None and own.topic_id == topic.topic_id else ()
        sizes = []
        for number in range(len(topic.partitions)):
            if number not in numbers:
                continue
            size = sum(file.size_bytes for file in topic.snapshot.files_of(number))
            size += waiting[number].kept().wal_bytes if number < len(waiting) else 0
            sizes.append({"partition_index": number, "partition_size": size, "offset_lag": 0, "is_future_key": False})
        return sizes


def _asked(topics: Sequence[Mapping[str, Any]] | None) -> Mapping[str, set[int]] | None:
    """The partitions that are asked for of each topic; None for all."""
    if topics is None:
        return None
    wanted: dict[str, set[int]] = {}
    for each in topics:
        wanted.setdefault(each["topic"], set()).update(each["partitions"])
    return wanted
