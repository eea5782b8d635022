"""Finds topics by the ids that newer clients of Kafka use in place of names."""

import uuid
from collections.abc import Iterable, Mapping

from siltlog.consumers.reading.view import LogView
from siltlog.infra.errors import SiltlogError


class TopicIds:
    """Used on one event loop."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._known: dict[bytes, tuple[str, str]] = {}
        """Name and id of each topic that there was, by its id as clients have it."""
        self._seen: object = None
        """The topics that were gone through last."""

    def names(self, topic_ids: Iterable[bytes]) -> Mapping[bytes, str]:
        """The names of the topics with these ids, of those that there are.

        Takes all of a request: for ids that are not known the topics are gone through, once.
        """
        wanted = set(topic_ids)
        if any(not self._has(topic_id) for topic_id in wanted):
            topics = self._log.topics()
            # A client asks for a topic that is gone again and again; a server that shares its root with no other gives
            # the same tuple until a topic comes or goes.
            if topics is not self._seen or type(topics) is not tuple:
                self._seen = topics
                self._known = {id_bytes(topic.topic_id): (topic.name, topic.topic_id) for topic in topics}
        return {topic_id: self._known[topic_id][0] for topic_id in wanted if topic_id in self._known}

    def _has(self, topic_id: bytes) -> bool:
        if topic_id not in self._known:
            return False
        name, own_id = self._known[topic_id]
        try:
            return self._log.topic(name).topic_id == own_id
        except SiltlogError:
            return False


def id_bytes(topic_id: str) -> bytes:
    return uuid.UUID(topic_id).bytes
