"""`/v1/topics`: create, list, describe, change, delete."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.infra import names
from siltlog.infra.clock import format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.requests import Query, body_of, decode, json_reply
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.topics.topics import PARTITIONS_DEFAULT, Topics

BODY_BYTES_MAX = 1024 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000


class PutTopic(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int | None = None
    config: dict[str, Any] = {}
    name: str | None = None


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int = PARTITIONS_DEFAULT
    config: dict[str, Any] = {}


class PatchTopic(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int | msgspec.UnsetType | None = msgspec.UNSET
    config: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


_decode_create = msgspec.json.Decoder(CreateTopic)
_decode_put = msgspec.json.Decoder(PutTopic)
_decode_patch = msgspec.json.Decoder(PatchTopic)


class TopicsHttp:
    def __init__(self, log: Log, topics: Topics) -> None:
        self._log = log
        self._topics = topics

    def routes(self) -> list[Route]:
        return [
            Route("/v1/topics", self.list, methods=["GET"]),
            Route("/v1/topics", self.create, methods=["POST"]),
            Route("/v1/topics/{topic}", self.describe, methods=["GET"]),
            Route("/v1/topics/{topic}", self.put, methods=["PUT"]),
            Route("/v1/topics/{topic}", self.patch, methods=["PATCH"]),
            Route("/v1/topics/{topic}", self.delete, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        query = Query(request, ("prefix", "after", "limit"))
        prefix, after = query.text("prefix"), query.text("after")
        limit = query.integer("limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX, cut=True)
        matching = [t for t in self._log.topics() if t.name.startswith(prefix) and t.name > after]
        shown = matching[:limit]
        rest = shown[-1].name if len(matching) > limit else None
        return json_reply({"topics": [self._document(topic) for topic in shown], "next": rest})

    async def create(self, request: Request) -> Response:
        Query(request, ())
        wanted = decode(await self._body(request), _decode_create)
        topic = await self._topics.create(wanted.name, wanted.partitions, wanted.config)
        return json_reply(self._document(topic), 201, {"Location": f"/v1/topics/{topic.name}"})

    async def put(self, request: Request) -> Response:
        Query(request, ())
        wanted = decode(await self._body(request) or b"{}", _decode_put)
        name = request.path_params["topic"]
        if wanted.name not in (None, name):
            raise problem("invalid_request", f"the path names the topic {name}, the body {wanted.name}; send one name")
        topic, new = await self._topics.find_or_create(name, wanted.partitions, wanted.config)
        return json_reply(self._document(topic), 201 if new else 200)

    async def describe(self, request: Request) -> Response:
        Query(request, ())
        return json_reply(self._document(self._log.topic(request.path_params["topic"])))

    async def patch(self, request: Request) -> Response:
        """A JSON merge patch (RFC 7396): null puts a setting back, or all of them."""
        Query(request, ())
        wanted = decode(await self._body(request), _decode_patch)
        name = request.path_params["topic"]
        if wanted.partitions is None:
            raise problem("invalid_request", "partitions cannot be put back: send a number, or leave it out")
        changes = wanted.config or {}
        if wanted.config is None:
            changes = dict.fromkeys(self._log.topic(name).config.own)
        partitions = None if wanted.partitions is msgspec.UNSET else wanted.partitions
        return json_reply(self._document(await self._topics.alter(name, partitions, changes)))

    async def delete(self, request: Request) -> Response:
        Query(request, ())
        await self._topics.delete(request.path_params["topic"])
        return Response(status_code=204)

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, BODY_BYTES_MAX)

    def _document(self, topic: TopicLog) -> dict[str, Any]:
        """`records` counts offsets, so it is an upper bound where compaction or a jump left gaps."""
        files = topic.snapshot.files.values()
        bounds = [(log.partition, log.bounds()) for log in topic.partitions]
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": len(topic.partitions),
            "created_at": format_us(topic.created_us),
            "table_uri": self._log.store.uri(names.topic_path(topic.name)),
            "config": topic.config.describe(),
            "records": sum(b.high_watermark - b.log_start_offset for _, b in bounds),
            "bytes": sum(file.size_bytes for file in files),
            "files": len(files),
            "offsets": [{"partition": partition, **b._asdict()} for partition, b in bounds],
        }
