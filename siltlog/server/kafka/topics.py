"""CreateTopics and DeleteTopics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.settings.topic_config import TopicConfig, validated_partitions
from siltlog.ingest.topics.kafka_settings import KAFKAS_OWN, own_settings
from siltlog.ingest.topics.room import room_of
from siltlog.ingest.topics.topics import PARTITIONS_DEFAULT, Topics, check_free
from siltlog.server.kafka.admin.assignments import UNSAID, Misassigned, by_partition, leader_of
from siltlog.server.kafka.admin.configs import told_configs
from siltlog.server.kafka.at_owner import AtOwner, Change
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import Leaders, numbers
from siltlog.server.kafka.metadata import CREATED, NO_ID
from siltlog.server.kafka.topic_ids import TopicIds, id_bytes
from siltlog.server.kafka.turns import CHANGES_A_TURN, in_turns

_DELETED = 204
"""The status by which HTTP answers it."""
_AS_SERVER_SAYS = -1
_IDS_SINCE = 6
_REPLICAS = 1
_TWICE = "the topic is named twice: name it once"
_NAME_OR_ID = "a topic is named by its name or its id: send one of them"
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
        wanted = call.body["topics"]
        times = Counter(each["name"] for each in wanted)
        answers = []
        there: Mapping[str, str] = {}
        if call.body["validate_only"]:
            known = (*self._log.opening(), *(topic.name for topic in self._log.topics()))
            there = {name.lower(): name for name in known}
        once = {each["name"]: each for each in wanted}
        async for name, each in in_turns(once.items(), CHANGES_A_TURN):
            if times[name] > 1:
                answers.append(_refused(name, KafkaError.INVALID_REQUEST, _TWICE))
                continue
            try:
                answers.append(await self._create(call, each, there))
            except SiltlogError as error:
                answers.append(_refused(name, kafka_error(error), error.detail))
        return {"topics": answers}

    async def _create(self, call: Call, wanted: Mapping[str, Any], there: Mapping[str, str]) -> dict[str, Any]:
        """`there` has the topics that there are, by their names in small letters, where it is only looked at."""
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
        room = room_of(lambda: self._log, call.session.granted)
        if call.body["validate_only"]:
            made = _made(name, bytes(16), partitions, TopicConfig(config))
            check_free(name, [known for known in (there.get(name.lower()),) if known is not None])
            self._topics.check_room(name, partitions, room)
            return made
        async with call.session.changing("createTopic", f"topic/{name}", CREATED):
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
            wanted = [{"name": name, "topic_id": NO_ID} for name in call.body["topic_names"]]
        known = self._ids.names(each["topic_id"] for each in wanted if each["name"] is None)
        times = Counter((each["name"], each["topic_id"]) for each in wanted)
        responses = []
        async for (name, topic_id), count in in_turns(times.items(), CHANGES_A_TURN):
            answer = {"name": name, "topic_id": topic_id}
            if count > 1:
                answer |= {"error_code": KafkaError.INVALID_REQUEST, "error_message": _TWICE}
            elif (name is None) == (topic_id == NO_ID):
                answer |= {"error_code": KafkaError.INVALID_REQUEST, "error_message": _NAME_OR_ID}
            else:
                answer |= await self._delete(call, name, topic_id, known)
            responses.append(answer)
        return {"responses": responses}

    async def _delete(
        self, call: Call, asked: str | None, topic_id: bytes, known: Mapping[bytes, str]
    ) -> dict[str, Any]:
        name = known.get(topic_id) if asked is None else asked
        if name is None:
            return {"error_code": KafkaError.UNKNOWN_TOPIC_ID}
        refusal = call.session.refusal("deleteTopic", "delete", name)
        if refusal is not None:
            told = call.session.without_name(refusal, name) if asked is None else refusal.detail
            return {"error_message": told, "error_code": kafka_error(refusal)}
        try:
            await self._delete_at_owner(call, name)
        except SiltlogError as error:
            return {"error_message": error.detail, "error_code": kafka_error(error)}
        return {"name": name, "error_code": KafkaError.NONE}

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
