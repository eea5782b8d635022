"""Tails of a topic: their parameters (partitions, beginning, filter), and the cursor from which a client comes back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from siltlog.consumers.push.feed import Feed
from siltlog.consumers.reading.cursor import PARTITIONS_MAX, Cursor
from siltlog.consumers.reading.fetch import Fetcher, find_partition, find_topic
from siltlog.consumers.reading.parameters import (
    ISOLATION_PARAMETER,
    PRODUCERS_PARAMETER,
    VALUES_PARAMETER,
    isolation_of,
    producers_of,
    values_of,
)
from siltlog.consumers.reading.reader import Isolation, decided, visible_end
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.view import Key, LogView, TopicView
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.memory import Held
from siltlog.infra.http.operations import TIME, TOPIC_ID, choice, in_query
from siltlog.infra.http.query import Query
from siltlog.infra.limits import whole_number

PLACES = ("earliest", "latest")
TAIL_PARAMETERS = (
    in_query(
        "partitions", "Only these, such as `0,1`; at most 256. Left out: all, also those that the topic is given."
    ),
    in_query("offset", "Where to begin.", choice(*PLACES, default="latest")),
    in_query("timestamp", "Instead of `offset`: the first record at or after this time.", TIME),
    in_query(
        "cursor", "Instead of `offset`: where an earlier stream was. It may repeat its last records, and skips none."
    ),
    in_query("key", "Only records with this key."),
    in_query("contains", "Only records whose value contains this text."),
    in_query("header", "Only records with a header of this name."),
    in_query("header_value", "With `header`: only where such a header has this value."),
    in_query("producer_id", "Only records that this producer published."),
    PRODUCERS_PARAMETER,
    VALUES_PARAMETER,
    ISOLATION_PARAMETER,
    TOPIC_ID,
)
TAIL_ERRORS = (
    *("unknown_topic", "unknown_partition", "offset_out_of_range", "corrupt_data", "invalid_request"),
    *("topic_unavailable", "store_denied", "shutting_down", "overloaded"),
)
PARAMETERS = tuple(one.name for one in TAIL_PARAMETERS)


@dataclass(frozen=True, slots=True)
class TailRequest:
    """A request to tail; `offsets` are where each partition begins. `every`: partitions to come are read as well."""

    topic: TopicView
    offsets: Mapping[int, int]
    every: bool
    wanted: RecordFilter
    values: Values
    isolation: Isolation
    producers: bool = False


async def tail_request(
    log: LogView, fetcher: Fetcher, topic_name: str, query: Query, last_event_id: str = ""
) -> TailRequest:
    """Reads the query of a tail. `last_event_id`, where there is one, wins over every place in it.

    Raises Refused `invalid_parameter`, UnknownTopic also where the cursor is of a topic that was deleted,
    OffsetOutOfRange where a partition no longer has what comes next.
    """
    topic = find_topic(log, topic_name, query.text("topic_id") or None)
    isolation, values, producers = isolation_of(query), values_of(query), producers_of(query)
    wanted = _wanted(query)
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
        await decided(topic, view, offset)
    return TailRequest(topic, offsets, "partitions" not in query, wanted, values, isolation, producers)


class Tail:
    """One tail that is read. Used by one task."""

    def __init__(
        self, log: LogView, fetcher: Fetcher, request: TailRequest, wake: Callable[[], None], held: Held | None
    ) -> None:
        self.request = request
        wanted, isolation, producers = request.wanted, request.isolation, request.producers
        self.feed = Feed(log, fetcher, wake, wanted=wanted, isolation=isolation, held=held, producers=producers)
        self._topic = request.topic
        self._told: dict[int, int] = {}
        for partition, offset in request.offsets.items():
            self.feed.put(self._key(partition), offset)

    def cursor(self) -> str:
        """Returns where the tail is now; to be told together with what was read up to here."""
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
    return visible_end(await view.decided() or view.bounds(), isolation)


def _start(topic: TopicView, partition: int) -> int:
    return find_partition(topic, partition).bounds().log_start_offset


def _wanted(query: Query) -> RecordFilter:
    if "header_value" in query and "header" not in query:
        raise problem(
            "invalid_parameter",
            "header_value is given without header: header says its name, and header_value what it has",
            parameter="header_value",
        )
    header = query.text("header") if "header" in query else None
    producer_id = query.text("producer_id") if "producer_id" in query else None
    key, contains, value = (_bytes(query, name) for name in ("key", "contains", "header_value"))
    return RecordFilter(key, contains, header, value, producer_id)


def _bytes(query: Query, name: str) -> bytes | None:
    return query.text(name).encode() if name in query else None
