"""`/v1/topics/{topic}/health` and `/files`: how a topic's table is doing, and the files it has."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading.fetch import find_partition
from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import TOPIC, cut, in_query, json_answer, on_topic, operation, whole
from siltlog.infra.http.query import Query
from siltlog.infra.http.replies import read_reply
from siltlog.infra.limits import PARTITION_MAX
from siltlog.infra.process.priority import run_behind_others
from siltlog.server.tables.answers import TopicHealth
from siltlog.server.tables.file_rows import FilePage, Place, page
from siltlog.server.tables.health import Flushing, health_of
from siltlog.server.tables.log_look import LogLooks

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
_JSON = msgspec.json.Encoder()


class TablesHttp:
    """Used on one event loop."""

    def __init__(self, log: LogView, looks: LogLooks, clock: Clock, flushing: Callable[[str], Flushing | None]) -> None:
        """`flushing(topic)` is what this node says of the flushes of a topic that it has, None of any other."""
        self._log = log
        self._looks = looks
        self._clock = clock
        self._flushing = flushing
        # One at a time: a table of a hundred thousand files takes a good part of a second.
        self._threads = ThreadPoolExecutor(1, "table-health", initializer=run_behind_others)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @operation(
        "GET",
        "/v1/topics/{topic}/health",
        "describeTopicHealth",
        "Topics",
        "How a topic's table is doing",
        "Its files and how many of them are small, the age of its newest version and of its checkpoint, what retention "
        "would remove and compaction would merge now, and what somebody should know (`problems`). What retention "
        "removes is planned by the list of files alone: a run also waits for what files say of producers "
        "(`silt retain --dry-run` does).",
        access=on_topic("describe"),
        at_owner="or_here",
        replies={200: json_answer("The table's health.", TopicHealth)},
        parameters=(TOPIC,),
        errors=("unknown_topic", "topic_unavailable", "not_acceptable"),
    )
    async def health(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        topic = self._log.topic(request.path_params["topic"])
        bounds = [(view.partition, view.bounds()) for view in topic.partitions]
        snapshot, flushing = topic.snapshot, self._flushing(topic.name)
        seen = await self._looks.look(topic.name, snapshot.version)
        now_us = self._clock.now_us()

        def told() -> bytes:
            return _JSON.encode(health_of(topic.name, snapshot, bounds, seen, flushing, now_us))

        body = await asyncio.get_running_loop().run_in_executor(self._threads, told)
        return await read_reply(request, [body], names.MEDIA_JSON, {})

    @operation(
        "GET",
        "/v1/topics/{topic}/files",
        "listTopicFiles",
        "Topics",
        "The files of a topic's table",
        "By partition and offset, a page at a time, of the newest version of the table. A page that follows is of the "
        "version by then, and goes on at the same offset, whatever was compacted meanwhile. Files are not told by "
        "their paths, which whoever may read gets from `POST /v1/files`; records of a file are read by its offsets.",
        access=on_topic("describe"),
        at_owner="or_here",
        replies={200: json_answer("A page.", FilePage)},
        parameters=(
            TOPIC,
            in_query("partition", "Only files of this partition.", whole(0, PARTITION_MAX), 0),
            in_query("after", "Only what follows this place: the last reply's `next`."),
            in_query("limit", f"How many at most; more than {LIMIT_MAX:,} is cut.", cut(1, LIMIT_DEFAULT)),
        ),
        errors=("unknown_topic", "unknown_partition", "topic_unavailable", "not_acceptable"),
    )
    async def files(self, request: Request) -> Response:
        query = Query(request, ("partition", "after", "limit"))
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        partition = query.integer("partition", 0, maximum=PARTITION_MAX) if "partition" in query else None
        after = Place.read(query.text("after")) if "after" in query else None
        limit = query.integer("limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX, cut=True)
        topic = self._log.topic(request.path_params["topic"])
        if partition is not None:
            find_partition(topic, partition)
        made = partial(page, topic.name, topic.snapshot, partition, after, limit)
        body = await asyncio.to_thread(lambda: _JSON.encode(made()))
        return await read_reply(request, [body], names.MEDIA_JSON, {})
