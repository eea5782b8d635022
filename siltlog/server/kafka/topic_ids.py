"""Finds topics by the ids that newer clients of Kafka use in place of names."""

import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache

from siltlog.consumers.reading.view import LogView
from siltlog.infra.errors import SiltlogError

IDS_MAX = 10_000
"""So many ids are kept as bytes: each request names some."""


class TopicIds:
    """Used on one event loop."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._names: dict[bytes, str] = {}

    def names(self, topic_ids: Iterable[bytes]) -> Mapping[bytes, str]:
        """The names of the topics with these ids, of those that there are.

        Takes all of a request: for ids that are not known the topics are gone through, once.
        """
        wanted = set(topic_ids)
        if any(not self._has(topic_id) for topic_id in wanted):
            self._names = {id_bytes(topic.topic_id): topic.name for topic in self._log.topics()}
        return {topic_id: self._names[topic_id] for topic_id in wanted if topic_id in self._names}

    def _has(self, topic_id: bytes) -> bool:
        name = self._names.get(topic_id)
        if name is None:
            return False
        try:
            return id_bytes(self._log.topic(name).topic_id) == topic_id
        except SiltlogError:
            return False


@lru_cache(maxsize=IDS_MAX)
def id_bytes(topic_id: str) -> bytes:
    return uuid.UUID(topic_id).bytes
