"""Topics: what the document says of them."""

from typing import Any

from siltlog.infra.topic_config import PARTITIONS_MAX, SETTINGS, Setting
from siltlog.ingest.topics.topics import PARTITIONS_DEFAULT
from siltlog.openapi import shapes
from siltlog.openapi.operation import (
    LIST_QUERY,
    NAME,
    NO_CONTENT,
    TOPIC,
    Operation,
    Schema,
    json_body,
    json_reply,
    whole,
)

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
    count = whole(1, PARTITIONS_MAX, default=None if nullable else PARTITIONS_DEFAULT)
    return {
        "type": "object",
        "properties": {**({"name": NAME} if named else {}), "partitions": count, "config": _config(nullable=nullable)},
        "required": list(required),
        "additionalProperties": False,
    }


OPERATIONS = (
    Operation(
        "GET",
        "/v1/topics",
        "listTopics",
        "Topics",
        "List topics",
        "In the order of their names, a page at a time.",
        {200: json_reply("A page.", shapes.Topics)},
        LIST_QUERY,
    ),
    Operation(
        "POST",
        "/v1/topics",
        "createTopic",
        "Topics",
        "Create a topic",
        "Commits its table, so an empty topic is a table already.",
        {201: json_reply("Created.", shapes.Topic, "Location")},
        body=json_body(_body(("name",)), {"name": "flights", **_SAMPLE}),
        errors=(*_BODY_ERRORS, *_WRITE_ERRORS, "topic_exists"),
    ),
    Operation(
        "GET",
        "/v1/topics/{topic}",
        "describeTopic",
        "Topics",
        "Describe a topic",
        "Its table, every setting with where it comes from, and the bounds of every partition.",
        {200: json_reply("The topic.", shapes.Topic)},
        (TOPIC,),
        errors=("unknown_topic",),
    ),
    Operation(
        "PUT",
        "/v1/topics/{topic}",
        "putTopic",
        "Topics",
        "Create a topic, or find the same",
        "Refused when it is there and is not as asked for.",
        {200: json_reply("It was there.", shapes.Topic), 201: json_reply("Created.", shapes.Topic)},
        (TOPIC,),
        json_body(_body(), _SAMPLE),
        body_required=False,
        errors=(*_BODY_ERRORS, *_WRITE_ERRORS, "topic_exists"),
    ),
    Operation(
        "PATCH",
        "/v1/topics/{topic}",
        "alterTopic",
        "Topics",
        "Change a topic",
        "A JSON merge patch: null puts a setting back. Partitions only grow. Publishing goes on meanwhile.",
        {200: json_reply("As it is now.", shapes.Topic)},
        (TOPIC,),
        json_body(_body(nullable=True, named=False), {"partitions": 8, "config": {"retention.ms": None}}),
        errors=("unknown_topic", "forbidden", *_BODY_ERRORS, *_WRITE_ERRORS),
    ),
    Operation(
        "DELETE",
        "/v1/topics/{topic}",
        "deleteTopic",
        "Topics",
        "Delete a topic",
        "With all its records and its dead letters. Its name may be used again, for a topic with another id.",
        NO_CONTENT,
        (TOPIC,),
        errors=("unknown_topic", "forbidden", *_WRITE_ERRORS),
    ),
)
