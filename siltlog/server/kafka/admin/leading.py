"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: which node leads a topic."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from siltlog.consumers.reading.view import LogView, TopicView
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.server.kafka.admin.assignments import Misassigned, leader_of
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import NOBODY, Leaders, destined, numbers
from siltlog.server.kafka.turns import CHANGES_A_TURN, Turns, in_turns

Move = Callable[[str, str], Awaitable[None]]
"""Has a node own a topic, by both names. Raises SiltlogError."""
Refusal = tuple[KafkaError, str]
_MOVED = 200
"""The status by which HTTP answers it."""
_PREFERRED, _UNCLEAN = 0, 1
_NO_KIND = "an election is of the preferred leader (0) or an unclean one (1)"
_NO_SUCH_PARTITION = "the topic has no such partition"
_LED = "its leader is there: the topic's owner leads all its partitions, and there is no other to prefer"
_NOBODY_LEADS = (
    "nobody owns the topic now: it goes on by itself, or waits for a node that is away; what only that has is given "
    "up by `silt topic abandon`"
)
_COPIES = "name one replica: the object store keeps the copies of a topic, and no other node has one"
_WHOLE = "a topic goes to another node as a whole: name all its partitions, with the same node first in each"
_NOTHING_MOVES = "the topic is not on its way to another node"


class Leading:
    """Used on one event loop."""

    def __init__(self, log: LogView, leaders: Leaders, move: Move | None) -> None:
        """Without `move` there is no node but this one."""
        self._log = log
        self._leaders = leaders
        self._move = move

    async def elect(self, call: Call) -> Answer:
        """Nothing is ever to be done: where nobody leads a topic, an election by hand would lose records."""
        wanted = call.body["topic_partitions"]
        is_known = not call.version or call.body["election_type"] in (_PREFERRED, _UNCLEAN)
        error = KafkaError.NONE if is_known else KafkaError.INVALID_REQUEST
        if wanted is None:
            # As Kafka's brokers: what needs no election is left out where nobody asked for it by name.
            return {"error_code": error, "replica_election_results": []}
        results, turns = [], Turns()
        async for each in turns.over(wanted):
            name, numbers = each["topic"], turns.over(dict.fromkeys(each["partitions"]))
            found = [
                {"partition_id": number}
                | ({"error_code": error, "error_message": _NO_KIND} if error else self._elected(call, name, number))
                async for number in numbers
            ]
            results.append({"topic": name, "partition_result": found})
        return {"error_code": error, "replica_election_results": results}

    def _elected(self, call: Call, name: str, number: int) -> dict[str, Any]:
        refusal = call.session.refusal("describeTopic", "describe", name)
        try:
            if refusal is not None:
                raise refusal
            there = range(len(self._log.topic(name).partitions))
        except SiltlogError as error:
            return {"error_code": kafka_error(error), "error_message": error.detail}
        if number not in there:
            code, sentence = KafkaError.UNKNOWN_TOPIC_OR_PARTITION, _NO_SUCH_PARTITION
        elif self._leaders.leader(name).node_id != NOBODY:
            code, sentence = KafkaError.ELECTION_NOT_NEEDED, _LED
        elif call.version and call.body["election_type"] == _UNCLEAN:
            code, sentence = KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE, _NOBODY_LEADS
        else:
            code, sentence = KafkaError.PREFERRED_LEADER_NOT_AVAILABLE, _NOBODY_LEADS
        return {"error_code": code, "error_message": sentence}

    async def reassign(self, call: Call) -> Answer:
        """Topics go to other nodes, as by `silt topic move`."""
        responses = []
        async for each in in_turns(call.body["topics"], CHANGES_A_TURN):
            refusal: Refusal | None
            try:
                refusal = await self._reassigned(call, each["name"], each["partitions"])
            except SiltlogError as error:
                refusal = kafka_error(error), error.detail
            except Misassigned as error:
                refusal = KafkaError.INVALID_REPLICA_ASSIGNMENT, str(error)
            code, sentence = refusal or (KafkaError.NONE, None)
            parts = [
                {"partition_index": part["partition_index"], "error_code": code, "error_message": sentence}
                for part in each["partitions"]
            ]
            responses.append({"name": each["name"], "partitions": parts})
        return {"error_code": KafkaError.NONE, "error_message": None, "responses": responses}

    async def _reassigned(self, call: Call, name: str, parts: Sequence[Mapping[str, Any]]) -> Refusal | None:
        """None where the topic goes, or is there; canceled, it goes back. Raises Misassigned, SiltlogError."""
        not_his = call.session.refusal("moveTopic", "alter", name)
        if not_his is not None:
            raise not_his
        topic = self._log.topic(name)
        wanted: dict[int, Sequence[int] | None] = {part["partition_index"]: part["replicas"] for part in parts}
        if not wanted.keys() <= set(range(len(topic.partitions))):
            return KafkaError.UNKNOWN_TOPIC_OR_PARTITION, _NO_SUCH_PARTITION
        assigned: dict[int, Sequence[int]] = {at: replicas for at, replicas in wanted.items() if replicas is not None}
        if not assigned:
            if self._leaders.going_to(name) == NOBODY:
                return KafkaError.NO_REASSIGNMENT_IN_PROGRESS, _NOTHING_MOVES
            # A hand-over that was begun comes to its end: it is canceled by one back.
            back = [self._leaders.replica(name)]
            assigned = dict.fromkeys(wanted, back)
        leader = leader_of(assigned, numbers(self._leaders, call.session.connection.own_address))
        if any(len(replicas) > 1 for replicas in assigned.values()):
            raise Misassigned(_COPIES)
        if leader == destined(self._leaders, name):
            return None
        if len(assigned) < len(topic.partitions):
            raise Misassigned(_WHOLE)
        assert self._move is not None, "a node that is alone is the only one there is"
        async with call.session.changing("moveTopic", f"topic/{name}", _MOVED):
            await self._move(name, self._leaders.node(leader))
        return None

    async def reassignments(self, call: Call) -> Answer:
        """Lists the topics that are on their way to another node."""
        wanted = call.body["topics"]
        numbers = None if wanted is None else {each["name"]: set(each["partition_indexes"]) for each in wanted}
        seen = call.session.granted.filter("topic")
        topics = []
        async for topic in in_turns(self._log.topics()):
            of_it = None if numbers is None else numbers.get(topic.name, set())
            if of_it != set() and (seen is None or seen(topic.name)):
                topics += self._going(topic, of_it)
        return {"error_code": KafkaError.NONE, "error_message": None, "topics": topics}

    def _going(self, topic: TopicView, numbers: set[int] | None) -> list[dict[str, Any]]:
        to, here = self._leaders.going_to(topic.name), self._leaders.replica(topic.name)
        if to == NOBODY:
            return []
        parts = [
            {
                "partition_index": view.partition,
                "replicas": [to, here],
                "adding_replicas": [to],
                "removing_replicas": [here],
            }
            for view in topic.partitions
            if numbers is None or view.partition in numbers
        ]
        return [{"name": topic.name, "partitions": parts}]
