"""Settings of a topic by Kafka's names for them. Pure.

Those that Kafka has no name for are called `silt.` and their own; those of Kafka that mean nothing here are refused.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from siltlog.infra.errors import problem
from siltlog.infra.settings.topic_config import SETTINGS, UNLIMITED, Source, TopicConfig, Value

OWN_PREFIX = "silt."
_LARGEST = 2**53
"""From here on Kafka's limits are none: its own default of a limit is 2^63 - 1."""
_KAFKAS_LARGEST = 2**63 - 1
_WITHOUT_END = frozenset(("delete.retention.ms", "min.compaction.lag.ms"))
"""Times that Kafka takes up to its largest number: the largest of ours is as good as for ever, too."""
_NUMBER = re.compile(r"[+-]?\d{1,1000}")
"""Python makes no number of more digits."""
_NAMES = {
    "cleanup.policy": "cleanup.policy",
    "compression.type": "compression",
    "delete.retention.ms": "delete.retention.ms",
    "max.message.bytes": "max.record.bytes",
    "message.timestamp.after.max.ms": "timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "timestamp.before.max.ms",
    "message.timestamp.type": "timestamp.type",
    "min.compaction.lag.ms": "min.compaction.lag.ms",
    "retention.bytes": "retention.bytes",
    "retention.ms": "retention.ms",
    "segment.bytes": "flush.bytes",
}
_VALUES = {
    "timestamp.type": {"CreateTime": "create", "LogAppendTime": "append"},
    "compression": {"uncompressed": "none"},
}
KAFKAS_OWN: Mapping[str, Value] = {"partitioner": "murmur2"}
"""What a topic has that a client of Kafka makes, unless it says otherwise: most of them place keys so."""
_AS_CLIENT_SENDS = "producer"
"""The value of compression.type that asks for none in particular, and Kafka's default."""
SET, PUT_BACK, ADD, TAKE_AWAY = 0, 1, 2, 3
"""What is done to a setting; the last two to one that is a list."""
_LIST = "cleanup.policy"
_FIXED = {
    "min.insync.replicas": ("1", "a topic has one replica in Kafka's words: the object store keeps its copies"),
}
"""What tools of Kafka read of each topic and is as it is, and why."""
THROTTLES = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    )
)
"""What slows down copies between brokers, which there are none of: tools put it back after each move."""


class Told(NamedTuple):
    """A setting as a client of Kafka reads it."""

    name: str
    value: str
    source: Source
    is_number: bool
    is_list: bool
    meaning: str
    layers: tuple[tuple[Source, str], ...]
    """Every value that it has: the one that holds, then those that would without it."""
    is_fixed: bool = False


class Edit(NamedTuple):
    """A change of one setting, by Kafka's name for it."""

    name: str
    operation: int
    value: str | None


def own_settings(given: Mapping[str, str | None]) -> dict[str, Value]:
    """Gives what a client of Kafka asks for as settings of ours. Raises Refused `invalid_config`."""
    edits = (Edit(name, PUT_BACK if text is None else SET, text) for name, text in given.items())
    return {own: value for own, value in _changed(edits, _FRESH) if value is not None}


def changed_settings(edits: Iterable[Edit], config: TopicConfig) -> dict[str, Value | None]:
    """Gives changes of a topic that has `config` as a merge patch of its settings. Raises Refused `invalid_config`, and
    `invalid_request` for what is no change."""
    found: dict[str, Value | None] = {}
    for own, value in _changed(edits, config):
        if own in found:
            raise problem("invalid_request", f"the setting {own} comes by both of its names: send it once")
        found[own] = value
    return found


def replaced_settings(given: Mapping[str, str | None], config: TopicConfig) -> dict[str, Value | None]:
    """Gives all settings that a topic is to have, which has `config` now, as a merge patch: the others are put back,
    but what is chosen when a topic is made. Raises what `changed_settings` does."""
    chosen = {"partitioner"} | ({"acks"} if config.own.get("acks") == "object" else set())
    wanted = changed_settings((Edit(name, SET, text) for name, text in given.items()), config)
    return {**dict.fromkeys(config.own.keys() - chosen), **wanted}


def told_settings(config: TopicConfig) -> Iterator[Told]:
    """Yields all settings of a topic by Kafka's names, then those that only we have."""
    for name, own in (*_NAMES.items(), *((OWN_PREFIX + only, only) for only in _only_ours())):
        layers = tuple((source, _text(own, value, source)) for value, source in config.layers(own))
        source, text = layers[0]
        setting = SETTINGS[own]
        yield Told(name, text, source, setting.kind == "int", own == _LIST, setting.meaning, layers)
    for name, (value, meaning) in _FIXED.items():
        yield Told(name, value, "default", True, False, meaning, (("default", value),), is_fixed=True)


_FRESH = TopicConfig({})


def _changed(edits: Iterable[Edit], config: TopicConfig) -> Iterator[tuple[str, Value | None]]:
    for name, operation, text in edits:
        if operation == PUT_BACK and name in THROTTLES:
            continue
        if name in _FIXED:
            value, why = _FIXED[name]
            if operation != PUT_BACK and (operation, text) != (SET, value):
                raise problem("invalid_config", f"the setting {name} is {value} and has no other value: {why}")
            continue
        own = _own_name(name)
        if operation == PUT_BACK or (name == "compression.type" and text == _AS_CLIENT_SENDS):
            yield own, None
        elif text is None:
            raise problem("invalid_request", f"the setting {name} has no value: to put it back, delete it")
        elif operation == SET:
            yield own, _value(own, text.replace(" ", ""))
        elif operation in (ADD, TAKE_AWAY):
            if own != _LIST:
                raise problem("invalid_config", f"the setting {name} is no list: set it, or delete it")
            yield own, _listed(config, text.replace(" ", ""), operation)
        else:
            raise problem("invalid_request", f"the setting {name}: there is no operation {operation} on one")


def _listed(config: TopicConfig, text: str, operation: int) -> Value:
    there, given = set(str(config[_LIST]).split(",")), set(text.split(","))
    # An empty one is refused as any other value that it cannot have.
    return ",".join(sorted(there | given if operation == ADD else there - given))


def _own_name(name: str) -> str:
    own = name.removeprefix(OWN_PREFIX) if name.startswith(OWN_PREFIX) else _NAMES.get(name)
    if own is None or own not in SETTINGS:
        raise problem(
            "invalid_config",
            f"the setting {name[:100]!r} means nothing here: leave it out. There are: "
            f"{', '.join([*_NAMES, *(OWN_PREFIX + only for only in _only_ours())])}",
        )
    return own


def _text(own: str, value: Value, source: Source) -> str:
    if own == "compression" and source == "default":
        return _AS_CLIENT_SENDS
    if own in _WITHOUT_END and value == _LARGEST - 1:
        return str(_KAFKAS_LARGEST)
    theirs = {ours: kafkas for kafkas, ours in _VALUES.get(own, {}).items()}
    return theirs.get(str(value), str(value))


def _value(own: str, text: str) -> Value:
    if own == _LIST:
        return ",".join(sorted(set(text.split(","))))
    if SETTINGS[own].kind != "int":
        return _VALUES.get(own, {}).get(text, text)
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or number > _KAFKAS_LARGEST:
        raise problem("invalid_config", f"{own} must be a whole number, not {text[:100]!r}")
    if number < _LARGEST:
        return number
    if own in _WITHOUT_END:
        return _LARGEST - 1
    return UNLIMITED if SETTINGS[own].minimum == UNLIMITED else number


def _only_ours() -> list[str]:
    return [name for name in SETTINGS if name not in _NAMES.values()]
