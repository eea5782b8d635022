"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: the settings of topics."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.ingest.topics.kafka_settings import (
    PUT_BACK,
    THROTTLES,
    Edit,
    changed_settings,
    replaced_settings,
    told_settings,
)
from siltlog.ingest.topics.topics import Topics
from siltlog.server.kafka.admin.checked import check_change
from siltlog.server.kafka.at_owner import AtOwner, Change
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import Leaders
from siltlog.server.kafka.turns import CHANGES_A_TURN, in_turns

TOPIC, BROKER = 2, 4
"""The kinds of what settings are asked for."""
_SOURCES = {"topic": 1, "server": 4, "default": 5}
"""Where a value comes from: the topic's own, of the server's settings, by default."""
_TEXT, _NUMBER, _LIST = 2, 5, 7
RESOURCES_A_TURN = 32
"""Each has dozens of settings."""
_CHANGED = 200
"""The status by which HTTP answers it."""
_LOGGER, _CLIENT_METRICS, _GROUP = 8, 16, 32
_LISTED = frozenset((TOPIC, BROKER))
_ALL_LISTED_SINCE = 1
_NOTHING_SET = (BROKER, _CLIENT_METRICS)
_KINDS = frozenset((TOPIC, BROKER, _LOGGER, _CLIENT_METRICS, _GROUP))
"""All that there is in Kafka, whether or not anything of it is here."""
_NO_KIND = "settings are those of topics (2)"
_NOT_HERE = {
    BROKER: f"{_NO_KIND}; the server's are changed by `silt config set`, without a restart",
    _LOGGER: f"{_NO_KIND}; what the server logs is its setting log_level (docs/logs.md)",
    _CLIENT_METRICS: f"{_NO_KIND}; clients are asked for no metrics: those of the server are at GET /metrics",
    _GROUP: f"{_NO_KIND}; members of a group say their timeouts themselves, within the server's bounds "
    "(`silt config show`)",
}
"""What is said to who asks for other settings, by what they are of."""
Changes = Mapping[str, Value | None]


class Configs:
    """Used on one event loop."""

    def __init__(self, log: LogView, topics: Topics, at_owner: AtOwner, leaders: Leaders) -> None:
        self._log = log
        self._topics = topics
        self._at_owner = at_owner
        self._leaders = leaders

    async def list(self, call: Call) -> Answer:
        """What has settings that can be described; before version 1 only metrics of clients were asked for."""
        asked = set(call.body["resource_types"])
        if not asked <= _KINDS:
            return {"error_code": KafkaError.UNSUPPORTED_VERSION, "config_resources": []}
        wanted = asked or _LISTED
        found: list[dict[str, Any]] = []
        if call.version >= _ALL_LISTED_SINCE:
            if TOPIC in wanted:
                seen = call.session.granted.sees("topic", [topic.name for topic in self._log.topics()])
                found += [{"resource_name": name, "resource_type": TOPIC} for name in seen]
            if BROKER in wanted:
                found += [{"resource_name": name, "resource_type": BROKER} for name in self._broker_ids(call)]
        return {"error_code": KafkaError.NONE, "config_resources": found}

    async def describe(self, call: Call) -> Answer:
        # Each once: else a small request would ask for a very large answer.
        wanted = {(each["resource_type"], each["resource_name"]): each for each in call.body["resources"]}
        in_order = in_turns(wanted.values(), RESOURCES_A_TURN)
        return {"results": [self._described(call, each) async for each in in_order]}

    def _described(self, call: Call, wanted: Mapping[str, Any]) -> dict[str, Any]:
        kind, name = wanted["resource_type"], wanted["resource_name"]
        answer = {"resource_type": kind, "resource_name": name, "configs": [], "error_message": None}
        if kind == BROKER and name and name not in self._broker_ids(call):
            sentence = f"there is no broker {name[:200]!r}: name one by its number, or none for what all of them have"
            return {**answer, "error_code": KafkaError.INVALID_REQUEST, "error_message": sentence}
        if kind in _NOTHING_SET:
            # What a server is set to is told by its own API.
            return answer
        if kind != TOPIC:
            return {**answer, "error_code": KafkaError.INVALID_REQUEST, "error_message": _NOT_HERE.get(kind, _NO_KIND)}
        wrong = names.readable_topic_problem(name)
        if wrong is not None:
            return {**answer, "error_code": KafkaError.INVALID_TOPIC_EXCEPTION, "error_message": wrong}
        error = call.session.refusal("describeTopic", "describe", name)
        if error is None:
            try:
                config = self._log.topic(name).config
            except SiltlogError as unknown:
                error = unknown
            else:
                # None of them are all of them, as with Kafka's brokers.
                keys, body = wanted["configuration_keys"] or None, call.body
                told = told_configs(
                    config, keys, synonyms=body["include_synonyms"], documentation=body["include_documentation"]
                )
                return {**answer, "configs": told}
        return {**answer, "error_message": error.detail, "error_code": kafka_error(error)}

    def _broker_ids(self, call: Call) -> Collection[str]:
        return [str(broker.node_id) for broker in self._leaders.brokers(call.session.connection.own_address)]

    async def replace(self, call: Call) -> Answer:
        """Puts back what a request does not name."""

        def changes(entries: Collection[Mapping[str, Any]], config: TopicConfig) -> Changes:
            _check_once(entries)
            return replaced_settings({each["name"]: each["value"] for each in entries}, config)

        return await self._altered(call, changes)

    async def change(self, call: Call) -> Answer:
        def changes(entries: Collection[Mapping[str, Any]], config: TopicConfig) -> Changes:
            _check_once(entries)
            edits = (Edit(each["name"], each["config_operation"], each["value"]) for each in entries)
            return changed_settings(edits, config)

        return await self._altered(call, changes)

    async def _altered(
        self, call: Call, changes: Callable[[Collection[Mapping[str, Any]], TopicConfig], Changes]
    ) -> Answer:
        wanted = call.body["resources"]
        times = Counter((each["resource_type"], each["resource_name"]) for each in wanted)
        responses = []
        async for each in in_turns(wanted, CHANGES_A_TURN):
            kind, name = each["resource_type"], each["resource_name"]
            error: SiltlogError | None = None
            try:
                if kind == BROKER and all(map(_lifts_throttle, each["configs"])):
                    responses.append({"resource_type": kind, "resource_name": name, "error_message": None})
                    continue
                if kind != TOPIC:
                    raise problem("invalid_request", _NOT_HERE.get(kind, _NO_KIND))
                if times[kind, name] > 1:
                    raise problem("invalid_request", f"the topic {name[:200]!r} is named twice: name it once")
                await self._alter(call, name, each["configs"], changes)
            except SiltlogError as failed:
                error = failed
            responses.append(
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "error_code": KafkaError.NONE if error is None else kafka_error(error),
                    "error_message": None if error is None else error.detail,
                }
            )
        return {"responses": responses}

    async def _alter(
        self,
        call: Call,
        name: str,
        entries: Collection[Mapping[str, Any]],
        changes: Callable[[Collection[Mapping[str, Any]], TopicConfig], Changes],
    ) -> None:
        refusal = call.session.refusal("alterTopic", "alter", name)
        if refusal is not None:
            raise refusal
        wanted = changes(entries, self._log.topic(name).config)
        if call.body["validate_only"]:
            check_change(self._log, self._topics, name, None, wanted)
            return
        change = Change(name, "alterTopic", "PATCH", _CHANGED, body={"config": wanted})
        await self._at_owner.make(call.session, change, lambda: self._topics.alter(name, None, wanted))


def told_configs(
    config: TopicConfig, keys: Collection[str] | None = None, *, synonyms: bool = False, documentation: bool = False
) -> list[dict[str, Any]]:
    """The settings of a topic, all or those with some names, as clients of Kafka are told of them."""
    return [
        {
            "name": told.name,
            "value": told.value,
            "read_only": told.is_fixed,
            "config_source": _SOURCES[told.source],
            "is_sensitive": False,
            "synonyms": [
                {"name": told.name, "value": value, "source": _SOURCES[source]} for source, value in told.layers
            ]
            if synonyms
            else [],
            "config_type": _LIST if told.is_list else _NUMBER if told.is_number else _TEXT,
            "documentation": told.meaning if documentation else None,
        }
        for told in told_settings(config)
        if keys is None or told.name in keys
    ]


def _check_once(entries: Collection[Mapping[str, Any]]) -> None:
    """Raises Refused `invalid_request`."""
    for name, times in Counter(each["name"] for each in entries).items():
        if times > 1:
            raise problem("invalid_request", f"the setting {name[:100]!r} comes {times} times: send it once")


def _lifts_throttle(entry: Mapping[str, Any]) -> bool:
    """Whether it puts back what slows down copies between brokers, as tools do after each move: there are none."""
    return entry.get("config_operation") == PUT_BACK and entry["name"] in THROTTLES
