"""CreateTopics and DeleteTopics."""

from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.settings.topic_config import TopicConfig, validated_partitions
from siltlog.ingest.topics.kafka_settings import KAFKAS_OWN, own_settings
from siltlog.ingest.topics.room import room_of
from siltlog.ingest.topics.topics import PARTITIONS_DEFAULT, Topics
from siltlog.server.kafka.admin.assignments import UNSAID, Misassigned, by_partition, leader_of
from siltlog.server.kafka.admin.configs import told_configs
from siltlog.server.kafka.at_owner import AtOwner, Change
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import Leaders, numbers
from siltlog.server.kafka.metadata import CREATED
from siltlog.server.kafka.topic_ids import TopicIds, id_bytes

_DELETED = 204
"""The status by which HTTP answers it."""
_AS_SERVER_SAYS = -1
_IDS_SINCE = 6
_REPLICAS = 1
_BOTH = "an assignment of replicas says how many partitions and replicas there are: leave both counts at -1"


class TopicsKept:
    """Used on one event loop."""

    def __init__(
        self,
        log: LogView,
        topics: Topics,
        at_owner: AtOwner,
        ids: TopicIds,
        leaders: Leaders,
        auto_create_partitions: int,
    ) -> None:
        self._log = log
        self._topics = topics
        self._at_owner = at_owner
        self._ids = ids
        self._leaders = leaders
        self._partitions = auto_create_partitions or PARTITIONS_DEFAULT

    async def create(self, call: Call) -> Answer:
        answers = []
        for wanted in call.body["topics"]:
            name = wanted["name"]
            try:
                answers.append(await self._create(call, wanted))
            except SiltlogError as error:
                answers.append(_refused(name, kafka_error(error), error.detail))
        return {"topics": answers}

    async def _create(self, call: Call, wanted: Mapping[str, Any]) -> dict[str, Any]:
        name, count = wanted["name"], wanted["num_partitions"]
        refusal = call.session.refusal("createTopic", "create", name)
        if refusal is not None:
            raise refusal
        wrong = names.topic_name_problem(name)
        if wrong is not None:
            return _refused(name, KafkaError.INVALID_TOPIC_EXCEPTION, wrong)
        node = ""
        if wanted["assignments"]:
            if (count, wanted["replication_factor"]) != (UNSAID, UNSAID):
                return _refused(name, KafkaError.INVALID_REQUEST, _BOTH)
            try:
                node, count = self._assigned(call, wanted["assignments"])
            except Misassigned as error:
                return _refused(name, KafkaError.INVALID_REPLICA_ASSIGNMENT, str(error))
        partitions = self._partitions if count == _AS_SERVER_SAYS else count
        try:
            validated_partitions(partitions)
        except SiltlogError as error:
            return _refused(name, KafkaError.INVALID_PARTITIONS, error.detail)
        config = {**KAFKAS_OWN, **own_settings({entry["name"]: entry["value"] for entry in wanted["configs"]})}
        if call.body["validate_only"]:
            return _made(name, bytes(16), partitions, TopicConfig(config))
        async with call.session.changing("createTopic", f"topic/{name}", CREATED):
            room = room_of(lambda: self._log, call.session.granted)
            topic = await self._topics.create(name, partitions, config, room, node)
        return _made(name, id_bytes(topic.topic_id), partitions, topic.config)

    def _assigned(self, call: Call, assignments: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
        """The node that is to own a topic, and how many partitions that has. Raises Misassigned."""
        assigned = by_partition(assignments)
        leader = leader_of(assigned, numbers(self._leaders, call.session.connection.own_address))
        return self._leaders.node(leader), len(assigned)

    async def delete(self, call: Call) -> Answer:
        wanted = call.body["topics"]
        if call.version < _IDS_SINCE:
            wanted = [{"name": name, "topic_id": bytes(16)} for name in call.body["topic_names"]]
        known = self._ids.names(each["topic_id"] for each in wanted if each["name"] is None)
        return {"responses": [await self._delete(call, each["name"], each["topic_id"], known) for each in wanted]}

    async def _delete(
        self, call: Call, name: str | None, topic_id: bytes, known: Mapping[bytes, str]
    ) -> dict[str, Any]:
        answer = {"name": name, "topic_id": topic_id}
        if name is None:
            name = known.get(topic_id)
            if name is None:
                return {**answer, "error_code": KafkaError.UNKNOWN_TOPIC_ID}
        error = call.session.refusal("deleteTopic", "delete", name)
        if error is None:
            try:
                await self._delete_at_owner(call, name)
            except SiltlogError as failed:
                error = failed
        if error is not None:
            return {**answer, "error_message": error.detail, "error_code": kafka_error(error)}
        return {**answer, "name": name, "error_code": KafkaError.NONE}

    async def _delete_at_owner(self, call: Call, name: str) -> None:
        change = Change(name, "deleteTopic", "DELETE", _DELETED)
        await self._at_owner.make(call.session, change, lambda: self._topics.delete(name))


def _refused(name: str, error: KafkaError, sentence: str) -> dict[str, Any]:
    return {"name": name, "error_code": error, "error_message": sentence, "configs": []}


def _made(name: str, topic_id: bytes, partitions: int, config: TopicConfig) -> dict[str, Any]:
    shown = ("name", "value", "read_only", "config_source", "is_sensitive")
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": KafkaError.NONE,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": _REPLICAS,
        "configs": [{field: entry[field] for field in shown} for entry in told_configs(config)],
    }
