"""CreatePartitions: topics grow."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.consumers.reading.view import LogView
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.infra.settings.topic_config import validated_partitions
from siltlog.ingest.topics.room import check_partitions
from siltlog.ingest.topics.topics import Topics
from siltlog.server.kafka.admin.assignments import Misassigned, leader_of
from siltlog.server.kafka.admin.checked import check_change
from siltlog.server.kafka.at_owner import AtOwner, Change
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import Leaders, destined, numbers
from siltlog.server.kafka.turns import CHANGES_A_TURN, in_turns

_GROWN = 200
"""The status by which HTTP answers it."""
Refusal = tuple[KafkaError, str]


class Partitions:
    """Used on one event loop."""

    def __init__(self, log: LogView, topics: Topics, at_owner: AtOwner, leaders: Leaders) -> None:
        self._log = log
        self._topics = topics
        self._at_owner = at_owner
        self._leaders = leaders

    async def create(self, call: Call) -> Answer:
        wanted = call.body["topics"]
        times = Counter(each["name"] for each in wanted)
        results = []
        once = {each["name"]: each for each in wanted}
        async for name, each in in_turns(once.items(), CHANGES_A_TURN):
            refusal: Refusal | None = (KafkaError.INVALID_REQUEST, "the topic is named twice: name it once")
            if times[name] == 1:
                try:
                    refusal = await self._grown(call, each)
                except SiltlogError as error:
                    refusal = kafka_error(error), error.detail
            code, sentence = refusal or (KafkaError.NONE, None)
            results.append({"name": name, "error_code": code, "error_message": sentence})
        return {"results": results}

    async def _grown(self, call: Call, wanted: Mapping[str, Any]) -> Refusal | None:
        """None where the topic has grown. Raises SiltlogError."""
        name, count = wanted["name"], wanted["count"]
        not_his = call.session.refusal("alterTopic", "alter", name)
        if not_his is not None:
            raise not_his
        refusal = self._refusal(call, len(self._log.topic(name).partitions), wanted)
        if refusal is None and not call.body["validate_only"]:
            change = Change(name, "alterTopic", "PATCH", _GROWN, body={"partitions": count})
            await self._at_owner.make(call.session, change, lambda: self._topics.alter(name, count, {}))
        return refusal

    def _refusal(self, call: Call, there: int, wanted: Mapping[str, Any]) -> Refusal | None:
        name, count = wanted["name"], wanted["count"]
        if count <= there:
            sentence = f"the topic {name} has {there} partitions, and only grows: ask for more than that, not {count}"
            return KafkaError.INVALID_PARTITIONS, sentence
        try:
            validated_partitions(count)
        except SiltlogError as error:
            return KafkaError.INVALID_PARTITIONS, error.detail
        if wanted["assignments"]:
            try:
                self._check_assigned(call, name, range(there, count), wanted["assignments"])
            except Misassigned as error:
                return KafkaError.INVALID_REPLICA_ASSIGNMENT, str(error)
        check_partitions(lambda: self._log, call.session.granted, count - there)
        try:
            check_change(self._log, self._topics, name, count, {})
        except SiltlogError as error:
            if error.error_code != "invalid_request":
                raise
            # A topic may have so many, but this one may not grow.
            return KafkaError.POLICY_VIOLATION, error.detail
        return None

    def _check_assigned(self, call: Call, topic: str, new: range, assignments: Sequence[Mapping[str, Any]]) -> None:
        """Raises Misassigned unless it is the topic's owner that is to lead its new partitions."""
        if len(assignments) != len(new):
            raise Misassigned(f"{len(new)} partitions are new, and {len(assignments)} are assigned: assign each once")
        assigned = {number: each["broker_ids"] for number, each in zip(new, assignments, strict=True)}
        leader = leader_of(assigned, numbers(self._leaders, call.session.connection.own_address))
        owner = destined(self._leaders, topic)
        if leader != owner:
            raise Misassigned(
                f"node {owner} leads the topic {topic} in all its partitions: name it first in each, or move the topic"
            )
