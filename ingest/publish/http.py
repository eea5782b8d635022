"""`POST /v1/topics/{topic}/records`: a body becomes columns, an append, an acknowledgement."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, UnknownTopic, problem
from siltlog.infra.http.requests import BodyReader, JsonReply, Query
from siltlog.ingest.log.log import Appended, Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.producers.headers import are_stored, header_integer, publisher
from siltlog.ingest.producers.idempotency import IdempotencyKey
from siltlog.ingest.publish.acknowledgement import acknowledged
from siltlog.ingest.publish.reply import count, publish_reply
from siltlog.ingest.records import formats as body_formats
from siltlog.ingest.records.body import Body, fix_partition
from siltlog.ingest.topics.topics import AutoCreate

ACKS = ("none", "wal", "table")
_ACKS_LATER = ("object",)
TIMEOUT_MS = 10_000
TIMEOUT_MS_MAX = 60_000
_QUERY = frozenset(("acks", "partition", "timeout_ms"))
_QUERY_BY_MEDIA = {media: _QUERY | own for media, own in body_formats.PARAMETERS.items()}


class Publish:
    """An ASGI application; `path_params` of its scope has the `topic`.

    Not a route like others: what Starlette wraps around a function costs as much as a small publish itself.
    """

    def __init__(
        self,
        log: Log,
        *,
        request_bytes_max: int,
        bodies: BodyReader,
        wake_flusher: Callable[[], None],
        auto_create: AutoCreate | None,
    ) -> None:
        """`auto_create` makes a topic that is not there; None where publishing creates none."""
        self._log = log
        self._parser = body_formats.BodyParser(request_bytes_max)
        self._bodies = bodies
        self._wake_flusher = wake_flusher
        self._auto_create = auto_create

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._publish(Request(scope, receive))
        await reply(scope, receive, send)

    async def _publish(self, request: Request) -> JsonReply:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.scope["headers"]}
        media = body_formats.checked_media(headers)
        coding = body_formats.checked_coding(headers)
        query = Query(request, _QUERY_BY_MEDIA[media])
        asked = _acks(query)
        timeout_ms = query.integer("timeout_ms", TIMEOUT_MS, minimum=1, maximum=TIMEOUT_MS_MAX)
        name = request.path_params["topic"]
        if names.is_system_topic(name):
            raise problem("forbidden", f"the topic {name[:200]!r} is the system's: it can be read, not published to")
        topic = self._known(name)
        content = await self._bodies.read(request.receive, headers.get("content-length", ""))
        if coding:
            content = await self._bodies.inflated(content, coding)
        body = await self._parser.parsed(media, content, request.scope["headers"], query)
        if "partition" in query:
            fix_partition(body, query.integer("partition", 0, maximum=2**31 - 1))
        body.stored = are_stored(headers)
        by = publisher(headers, body, content, media, query.items())
        partition_count = header_integer(headers, names.HEADER_PARTITION_COUNT, 2**31 - 1)
        if asked == "none" and by is not None:
            raise problem(
                "unsupported_acks",
                "acks=none gives no answer to retry on: ask for wal, or leave out Silt-Producer-Id and Idempotency-Key",
            )
        if topic is None:
            assert self._auto_create is not None
            # Made only now: a request that is refused has no effect.
            self._log.rehearse(self._auto_create.unmade(name), body, by, partition_count)
            topic = await self._auto_create.make(name)
        acks = asked or str(topic.config["acks"])
        if acks == "none" and by is not None:
            # The topic's own level; who can repeat the request is told how far it came.
            acks = "wal"
        if topic.paused is not None:
            await topic.resumed(timeout_ms / 1000)
        appended = await self._appended(topic, body, by, partition_count)
        self._bodies.done()
        if acks != "none":
            await acknowledged(topic, appended, acks, timeout_ms / 1000, self._wake_flusher)
        count(topic, body, appended, by)
        return publish_reply(topic, appended, acks, positions=body.positions)

    async def _appended(
        self, topic: TopicLog, body: Body, by: Producer | IdempotencyKey | None, partition_count: int | None
    ) -> Appended:
        try:
            return self._log.append(topic, body, by, partition_count)
        except SiltlogError as error:
            durable = self._log.told_once(error)
            if durable is not None:
                await durable
            raise

    def _known(self, name: str) -> TopicLog | None:
        """None where publishing may create it, or end its creation."""
        try:
            topic = self._log.topic(name)
        except UnknownTopic:
            if self._auto_create is None:
                raise
            return None
        return None if topic.state == "creating" and self._auto_create is not None else topic


def _acks(query: Query) -> str | None:
    if "acks" not in query:
        return None
    if query.text("acks") in _ACKS_LATER:
        raise problem(
            "unsupported_acks", f"acks={query.text('acks')} is not offered by this server; ask for wal or table"
        )
    return query.choice("acks", ACKS, "")
