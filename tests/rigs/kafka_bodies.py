"""Random bodies of Kafka's messages, and what is read again of them."""

import random
from typing import Any

from siltlog.infra.kafka.messages import broker, consumer_groups, fetching, groups, producing, topics
from siltlog.infra.kafka.messages.schema import Field, Kind, Message

MESSAGES: tuple[Message, ...] = tuple(
    message for module in (broker, producing, fetching, topics, groups, consumer_groups) for message in module.MESSAGES
)
VERSIONS = [
    (message, version) for message in MESSAGES for version in range(message.min_version, message.max_version + 1)
]
SIDES = ("request", "response")
_BITS = {Kind.INT8: 7, Kind.INT16: 15, Kind.INT32: 31, Kind.INT64: 63}
_TEXTS = ("", "a", "orders", "Zürich €", "x" * 127, "y" * 130, "z" * 20_000)
_DATA = (b"", b"\0", b"abc", bytes(range(256)), b"r" * 20_000)


def fields_of(message: Message, side: str) -> tuple[Field, ...]:
    return message.request if side == "request" else message.response


def body_of(chance: random.Random, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    """A value for each of `fields`; those that the version lacks have their defaults, as when they are read."""
    return {
        field.name: _value(chance, field, version) if field.within(version) else default_of(field) for field in fields
    }


def default_of(field: Field) -> Any:
    if field.kind is Kind.ARRAY and field.default is not None:
        return []
    if field.kind is Kind.STRUCT and field.default is not None:
        return {each.name: default_of(each) for each in field.fields}
    return field.default


def _value(chance: random.Random, field: Field, version: int) -> Any:
    if field.tag is not None and chance.random() < 0.5:
        default = default_of(field)
        if default is not None or version >= field.nullable_since:
            return default
    if version >= field.nullable_since and chance.random() < 0.3:
        return None
    if field.kind is Kind.ARRAY:
        element = Field("", field.of, fields=field.fields)
        return [_value(chance, element, version) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    if field.kind is Kind.STRUCT:
        return body_of(chance, field.fields, version)
    return _scalar(chance, field.kind)


def _scalar(chance: random.Random, kind: Kind) -> Any:
    match kind:
        case Kind.TEXT:
            return chance.choice(_TEXTS)
        case Kind.BYTES | Kind.RECORDS:
            return chance.choice(_DATA)
        case Kind.UUID:
            return chance.randbytes(16)
        case Kind.BOOLEAN:
            return chance.random() < 0.5
    bits = _BITS[kind]
    return chance.choice((0, 1, -1, 2**bits - 1, -(2**bits), chance.getrandbits(bits)))
