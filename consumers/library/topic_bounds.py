"""Asks the server for the ids of topics, and where their partitions begin and end."""

from siltlog.consumers.library.program import Program
from siltlog.consumers.library.sources.server import Isolation
from siltlog.infra.client import calls
from siltlog.infra.client.record import TimeLike, TopicPartition
from siltlog.infra.records import Bounds, records_between


class TopicBounds:
    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._ids: dict[str, str] = {}
        self._gaps: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets that were jumped, as of when each topic was last asked about."""

    def topic_id(self, topic: str) -> str | None:
        """Returns the topic's id as it was when first asked about, at all or since it was forgotten."""
        return self._ids.get(topic)

    def forget(self, topic: str) -> None:
        self._ids.pop(topic, None)

    def ask(self, topic: str, timestamp: TimeLike | None = None) -> Program[dict[int, tuple[Bounds, int]]]:
        """Asks for the bounds of every partition and, with `timestamp`, the lowest offset at or after it."""
        reply = yield from calls.offsets(topic, timestamp)
        if "topic_id" in reply:
            self._ids.setdefault(topic, reply["topic_id"])
        for entry in reply["partitions"]:
            self._gaps[TopicPartition(topic, entry["partition"])] = entry.get("gaps", [])
        return {
            entry["partition"]: (Bounds(*(entry[name] for name in Bounds._fields)), entry.get("offset", 0))
            for entry in reply["partitions"]
        }

    def behind(self, at: TopicPartition, offset: int, bounds: Bounds) -> int:
        """How many records there may be from `offset` to where reading ends."""
        return records_between(offset, self.end(bounds), self._gaps.get(at, []))

    def end(self, bounds: Bounds) -> int:
        """Where reading ends at present."""
        return bounds.table_offset if self._isolation == "table" else bounds.high_watermark
