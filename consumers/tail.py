"""A topic from some place on, for as long as somebody listens: which partitions, from where, and which records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from siltlog.consumers.cursor import PARTITIONS_MAX, Cursor
from siltlog.consumers.feed import Feed
from siltlog.consumers.fetch import Fetcher, find_partition, find_topic
from siltlog.consumers.group_scripts import Key
from siltlog.consumers.log_view import LogView, TopicView
from siltlog.consumers.reader import ISOLATIONS, Isolation, check_range, visible_end
from siltlog.consumers.record_filter import RecordFilter
from siltlog.consumers.render import VALUES, Values
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http import Query, whole_number

PLACES = ("earliest", "latest")
PARAMETERS = (
    *("partitions", "offset", "timestamp", "cursor", "key", "contains"),
    *("values", "isolation", "topic_id"),
)


@dataclass(frozen=True, slots=True)
class TailRequest:
    """What was asked for; `offsets` are where each partition begins. `every`: those to come are read as well."""

    topic: TopicView
    offsets: Mapping[int, int]
    every: bool
    wanted: RecordFilter
    values: Values
    isolation: Isolation


async def tail_request(
    log: LogView, fetcher: Fetcher, topic_name: str, query: Query, last_event_id: str = ""
) -> TailRequest:
    """Reads the query of a tail. `last_event_id`, where there is one, wins over every place in it.

    Raises Refused `invalid_parameter`, UnknownTopic also where the cursor is of a topic that was deleted,
    OffsetOutOfRange where a partition no longer has what comes next.
    """
    topic = find_topic(log, topic_name, query.text("topic_id") or None)
    isolation = cast(Isolation, query.choice("isolation", ISOLATIONS, "wal"))
    values = cast(Values, query.choice("values", VALUES, "text"))
    wanted = RecordFilter(_bytes(query, "key"), _bytes(query, "contains"))
    partitions = _partitions(query, topic)
    given = [name for name in ("offset", "timestamp", "cursor") if name in query]
    if len(given) > 1 and not last_event_id:
        raise problem("invalid_parameter", f"{' and '.join(given)} are given; send one of them", parameter=given[1])
    text = last_event_id or query.text("cursor")
    if last_event_id or "cursor" in query:
        cursor = Cursor.parse(text)
        find_topic(log, topic_name, cursor.topic_id)
        # A partition that the cursor does not know may hold anything: nothing of it was seen.
        offsets = {each: cursor.offsets.get(each, _start(topic, each)) for each in partitions}
    else:
        offsets = {each: await _begin(fetcher, topic, each, query, isolation) for each in partitions}
    for partition, offset in offsets.items():
        view = find_partition(topic, partition)
        check_range(topic, view, offset, view.bounds())
    return TailRequest(topic, offsets, "partitions" not in query, wanted, values, isolation)


class Tail:
    """One tail that is read. Used by one task."""

    def __init__(self, log: LogView, fetcher: Fetcher, request: TailRequest, wake: Callable[[], None]) -> None:
        self.request = request
        self.feed = Feed(log, fetcher, wake, wanted=request.wanted, isolation=request.isolation)
        self._topic = request.topic
        self._told: dict[int, int] = {}
        for partition, offset in request.offsets.items():
            self.feed.put(self._key(partition), offset)

    def cursor(self) -> str:
        """Where the tail is now; to be told together with what was read up to here."""
        self._told = self._offsets()
        return Cursor(self._topic.topic_id, self._told).text()

    @property
    def is_ahead(self) -> bool:
        """Whether the tail is further than the last cursor says."""
        return self._told != self._offsets()

    def grow(self) -> None:
        """Reads the partitions that the topic was given since, from their beginning. Raises Refused above the limit."""
        if not self.request.every or len(self._topic.partitions) == len(self.feed.offsets):
            return
        for partition in _all_of(self._topic):
            if self._key(partition) not in self.feed.offsets:
                self.feed.put(self._key(partition), _start(self._topic, partition))

    def _key(self, partition: int) -> Key:
        return Key(self._topic.name, self._topic.topic_id, partition)

    def _offsets(self) -> dict[int, int]:
        return {key.partition: offset for key, offset in self.feed.offsets.items()}


def _partitions(query: Query, topic: TopicView) -> list[int]:
    if "partitions" not in query:
        return list(_all_of(topic))
    chosen = []
    for text in query.text("partitions").split(","):
        number = whole_number(text)
        if number is None:
            raise problem(
                "invalid_parameter",
                f"partitions must be numbers with commas between them, such as 0,1, not {text[:80]!r}",
                parameter="partitions",
            )
        chosen.append(find_partition(topic, number).partition)
    if len(set(chosen)) != len(chosen):
        raise problem("invalid_parameter", "partitions names one of them twice; give it once", parameter="partitions")
    if len(chosen) > PARTITIONS_MAX:
        raise _too_many(len(chosen))
    return sorted(chosen)


def _all_of(topic: TopicView) -> range:
    if len(topic.partitions) > PARTITIONS_MAX:
        raise _too_many(len(topic.partitions))
    return range(len(topic.partitions))


def _too_many(count: int) -> SiltlogError:
    return problem(
        "invalid_parameter",
        f"{count} partitions are more than a stream takes ({PARTITIONS_MAX}); choose some with partitions=0,1,...",
        parameter="partitions",
    )


async def _begin(fetcher: Fetcher, topic: TopicView, partition: int, query: Query, isolation: Isolation) -> int:
    view = find_partition(topic, partition)
    timestamp_us = query.time_us("timestamp")
    if timestamp_us is not None:
        return await fetcher.lookup.offset_at(topic, view, timestamp_us)
    if query.choice("offset", PLACES, "latest") == "earliest":
        return _start(topic, partition)
    return visible_end(view.bounds(), isolation)


def _start(topic: TopicView, partition: int) -> int:
    return find_partition(topic, partition).bounds().log_start_offset


def _bytes(query: Query, name: str) -> bytes | None:
    return query.text(name).encode() if name in query else None
