"""`/v1/topics`: create, list, describe, change, delete."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice, zip_longest
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.clock import format_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.operations import (
    FILTERED,
    IN_BODY,
    LIST_QUERY,
    NAME,
    NO_CONTENT,
    TOPIC,
    Schema,
    begin_change,
    choice,
    in_query,
    json_answer,
    json_body,
    on_topic,
    operation,
    whole,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.listing.ranking import NAME as BY
from siltlog.infra.listing.ranking import ORDERS, TOPIC_SORTS, Ranking, by_name, ranking_of
from siltlog.infra.records import Bounds, records_between
from siltlog.infra.security.grant import grant_of
from siltlog.infra.settings.topic_config import PARTITIONS_MAX, SETTINGS, Setting, TopicConfig
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.ingest.topics import answers
from siltlog.ingest.topics.room import check_partitions, room_of
from siltlog.ingest.topics.topics import Topics

BODY_BYTES_MAX = 1024 * 1024
LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
BY_NAME = Ranking(BY, "asc")


class PutTopic(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int | None = None
    config: dict[str, Any] = {}
    name: str | None = None


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int | msgspec.UnsetType = msgspec.UNSET
    config: dict[str, Any] = {}


class PatchTopic(msgspec.Struct, forbid_unknown_fields=True):
    partitions: int | msgspec.UnsetType | None = msgspec.UNSET
    config: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


_decode_create = msgspec.json.Decoder(CreateTopic)
_decode_put = msgspec.json.Decoder(PutTopic)
_decode_patch = msgspec.json.Decoder(PatchTopic)


_BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request", "invalid_config")
_WRITE_ERRORS = ("shutting_down", "topic_unavailable", "store_denied", "wal_full", "disk_full")
_SAMPLE = {"partitions": 4, "config": {"retention.ms": 86_400_000}}


def _setting(setting: Setting, *, nullable: bool) -> Schema:
    if setting.kind == "int":
        schema = whole(setting.minimum, setting.maximum)
        return {**schema, "type": ["integer", "null"]} if nullable else schema
    choices: list[Any] = [*setting.choices, *([None] if nullable else [])]
    return {"enum": choices}


def _config(*, nullable: bool) -> Schema:
    return {
        "type": ["object", "null"] if nullable else "object",
        "properties": {name: _setting(setting, nullable=nullable) for name, setting in SETTINGS.items()},
        "additionalProperties": False,
    }


def _body(required: tuple[str, ...] = (), *, nullable: bool = False, named: bool = True) -> Schema:
    count = whole(1, PARTITIONS_MAX)
    if not nullable:
        count = {**count, "description": "Left out: `SILT_DEFAULT_PARTITIONS` of the server, which is 1 unless set."}
    return {
        "type": "object",
        "properties": {**({"name": NAME} if named else {}), "partitions": count, "config": _config(nullable=nullable)},
        "required": list(required),
        "additionalProperties": False,
    }


class SeenBounds(Protocol):
    @property
    def partition(self) -> int: ...
    def bounds(self) -> Bounds: ...


class SeenTopic(Protocol):
    """A topic, here or at another node."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def partitions(self) -> Sequence[SeenBounds]: ...
    @property
    def created_us(self) -> int: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def snapshot(self) -> TableSnapshot: ...


class SeenTopics(Protocol):
    @property
    def store(self) -> ObjectStore: ...
    def topic(self, name: str) -> SeenTopic:
        """Raises UnknownTopic."""

    def topics(self) -> Sequence[SeenTopic]:
        """Sorted by name."""

    def opening(self) -> Collection[str]:
        """Names the topics that there are besides, and that cannot be read here yet."""


class TopicRanks(Protocol):
    async def topics(self, sort: str) -> Mapping[str, float]:
        """Gives the value of each topic by which it is ranked; one that has none is not known now."""


class TopicsHttp:
    def __init__(
        self,
        seen: Callable[[], SeenTopics],
        topics: Topics,
        ranks: TopicRanks,
        owner: Callable[[str], str] | None = None,
    ) -> None:
        """`seen()` has all topics there are, those of other nodes too; `owner(topic)` names the node that owns one."""
        self._ranks = ranks
        self._seen = seen
        self._owner = owner
        self._topics = topics

    @operation(
        "GET",
        "/v1/topics",
        "listTopics",
        "Topics",
        "List topics",
        "In the order of their names, or of what `sort` says, a page at a time. Ranked is by what is in memory: "
        "records, bytes and files of the table, `rate` (records a second of late), `lag` (of the group that is "
        "furthest behind, in records). A page goes on after the value and the name of the last; what moves "
        "meanwhile may be missed.",
        access=FILTERED,
        needs="topics without `describe` are left out",
        replies={200: json_answer("A page.", answers.Topics)},
        parameters=(
            *LIST_QUERY,
            in_query("suffix", "Only names that end with this: `.dlq` for topics of dead letters."),
            in_query("sort", "By what they are ranked.", choice(*TOPIC_SORTS, default=BY)),
            in_query("order", "`asc` for names and `desc` for values, unless it says otherwise.", choice(*ORDERS)),
        ),
    )
    async def list(self, request: Request) -> Response:
        query = Query(request, ("prefix", "suffix", "after", "limit", "sort", "order"))
        prefix, suffix, after = query.text("prefix"), query.text("suffix"), query.text("after")
        limit = query.integer("limit", LIMIT_DEFAULT, minimum=1, maximum=LIMIT_MAX, cut=True)
        visible = grant_of(request).filter("topic")
        ranking = ranking_of(query.choice, TOPIC_SORTS)
        if ranking != BY_NAME:
            return await self._ranked(ranking, prefix, suffix, after, limit, visible)
        following = (topic for topic in self._seen().topics() if topic.name > after)
        matching = (topic for topic in following if topic.name.startswith(prefix) and topic.name.endswith(suffix))
        seen = (topic for topic in matching if visible is None or visible(topic.name))
        found = list(islice(seen, limit + 1))
        shown = found[:limit]
        rest = shown[-1].name if len(found) > limit else None
        return json_reply({"topics": [self._document(topic) for topic in shown], "next": rest})

    async def _ranked(
        self,
        ranking: Ranking,
        prefix: str,
        suffix: str,
        after: str,
        limit: int,
        visible: Callable[[str], bool] | None,
    ) -> Response:
        values = by_name(topic.name for topic in self._seen().topics() if topic.name.endswith(suffix))
        if ranking.sort != BY:
            known = await self._ranks.topics(ranking.sort)
            values |= {name: value for name, value in known.items() if name in values}
        page = await ranking.page(values, prefix=prefix, after=after, limit=limit, visible=visible)
        documents = []
        for name in page.names:
            with suppress(SiltlogError):  # deleted meanwhile
                document = self._document(self._seen().topic(name))
                documents.append(document if ranking.sort == BY else {**document, "sort_value": values[name]})
        return json_reply({"topics": documents, "next": page.next})

    @operation(
        "POST",
        "/v1/topics",
        "createTopic",
        "Topics",
        "Create a topic",
        "Commits its table, so an empty topic is a table already.",
        access=IN_BODY,
        needs="topic `create`",
        changes="in_body",
        replies={201: json_answer("Created.", answers.Topic, "Location")},
        body=json_body(_body(("name",)), {"name": "flights", **_SAMPLE}),
        errors=(*_BODY_ERRORS, *_WRITE_ERRORS, "topic_exists", "cap_reached"),
    )
    async def create(self, request: Request) -> Response:
        Query(request, ())
        wanted = decode(await self._body(request), _decode_create)
        grant_of(request).require("create", "topic", wanted.name)
        await begin_change(request, "topic", wanted.name)
        room = room_of(self._seen, grant_of(request))
        partitions = None if wanted.partitions is msgspec.UNSET else wanted.partitions
        topic = await self._topics.create(wanted.name, partitions, wanted.config, room)
        return json_reply(self._whole(topic), 201, {"Location": f"/v1/topics/{topic.name}"})

    @operation(
        "PUT",
        "/v1/topics/{topic}",
        "putTopic",
        "Topics",
        "Create a topic, or find the same",
        "Refused when it is there and is not as asked for.",
        access=on_topic("create", "alter"),
        at_owner="yes",
        changes="in_path",
        replies={200: json_answer("It was there.", answers.Topic), 201: json_answer("Created.", answers.Topic)},
        parameters=(TOPIC,),
        body=json_body(_body(), _SAMPLE),
        body_required=False,
        errors=(*_BODY_ERRORS, *_WRITE_ERRORS, "topic_exists", "cap_reached"),
    )
    async def put(self, request: Request) -> Response:
        Query(request, ())
        wanted = decode(await self._body(request) or b"{}", _decode_put)
        name = request.path_params["topic"]
        if wanted.name not in (None, name):
            raise problem("invalid_request", f"the path names the topic {name}, the body {wanted.name}; send one name")
        room = room_of(self._seen, grant_of(request))
        topic, new = await self._topics.find_or_create(name, wanted.partitions, wanted.config, room)
        return json_reply(self._whole(topic), 201 if new else 200)

    @operation(
        "GET",
        "/v1/topics/{topic}",
        "describeTopic",
        "Topics",
        "Describe a topic",
        "Its table, every setting with where it comes from, and of every partition its bounds, its share of the table "
        "and what the head and the write-ahead log hold of it.",
        access=on_topic("describe"),
        at_owner="or_here",
        replies={200: json_answer("The topic.", answers.Topic)},
        parameters=(TOPIC,),
        errors=("unknown_topic",),
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        return json_reply(self._whole(self._seen().topic(request.path_params["topic"])))

    @operation(
        "PATCH",
        "/v1/topics/{topic}",
        "alterTopic",
        "Topics",
        "Change a topic",
        "A JSON merge patch: null puts a setting back. Partitions only grow. Publishing goes on meanwhile.",
        access=on_topic("alter"),
        at_owner="yes",
        changes="in_path",
        replies={200: json_answer("As it is now.", answers.Topic)},
        parameters=(TOPIC,),
        body=json_body(_body(nullable=True, named=False), {"partitions": 8, "config": {"retention.ms": None}}),
        errors=("unknown_topic", "forbidden", "cap_reached", *_BODY_ERRORS, *_WRITE_ERRORS),
    )
    async def patch(self, request: Request) -> Response:
        """A JSON merge patch (RFC 7396): null puts a setting back, or all of them."""
        Query(request, ())
        wanted = decode(await self._body(request), _decode_patch)
        name = request.path_params["topic"]
        if wanted.partitions is None:
            raise problem("invalid_request", "partitions cannot be put back: send a number, or leave it out")
        changes = wanted.config or {}
        if wanted.config is None:
            changes = dict.fromkeys(self._seen().topic(name).config.own)
        partitions = None if wanted.partitions is msgspec.UNSET else wanted.partitions
        if partitions is not None and (more := partitions - len(self._seen().topic(name).partitions)) > 0:
            check_partitions(self._seen, grant_of(request), more)
        return json_reply(self._whole(await self._topics.alter(name, partitions, changes)))

    @operation(
        "DELETE",
        "/v1/topics/{topic}",
        "deleteTopic",
        "Topics",
        "Delete a topic",
        "With all its records and its dead letters. Its name may be used again, for a topic with another id.",
        access=on_topic("delete"),
        at_owner="yes",
        changes="in_path",
        replies=NO_CONTENT,
        parameters=(TOPIC,),
        errors=("unknown_topic", "forbidden", *_WRITE_ERRORS),
    )
    async def delete(self, request: Request) -> Response:
        Query(request, ())
        await self._topics.delete(request.path_params["topic"])
        return Response(status_code=204)

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, BODY_BYTES_MAX)

    def _whole(self, topic: SeenTopic) -> dict[str, Any]:
        """The document of a topic that is told of alone, with where the records of each partition are."""
        document = self._document(topic)
        own = self._topics.own(topic.name)
        logs = own.partitions if own is not None and own.topic_id == topic.topic_id else ()
        for told, log in zip_longest(document["offsets"], logs[: len(topic.partitions)]):
            files = topic.snapshot.files_of(told["partition"])
            told |= {"bytes": sum(file.size_bytes for file in files), "files": len(files)}
            if log is not None:
                told |= log.kept()._asdict()
        return document

    def _document(self, topic: SeenTopic) -> dict[str, Any]:
        """`records` counts offsets that were not jumped, so it is an upper bound where compaction left gaps."""
        files = topic.snapshot.files.values()
        bounds = [(log.partition, log.bounds()) for log in topic.partitions]
        gaps = topic.snapshot.gaps
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": len(topic.partitions),
            "created_at": format_us(topic.created_us),
            "table_uri": self._seen().store.uri(names.topic_path(topic.name)),
            "config": topic.config.describe(),
            "records": sum(records_between(b.log_start_offset, b.high_watermark, gaps(at)) for at, b in bounds),
            "bytes": sum(file.size_bytes for file in files),
            "files": len(files),
            "offsets": [{"partition": partition, **b._asdict()} for partition, b in bounds],
            **({} if self._owner is None else {"owner": self._owner(topic.name)}),
        }
