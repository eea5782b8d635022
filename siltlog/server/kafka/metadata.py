"""Metadata, DescribeTopicPartitions, DescribeCluster, FindCoordinator: what there is, and who answers for it."""

from collections.abc import Mapping
from typing import Any

from siltlog.consumers.reading.view import LogView, TopicView
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.ingest.topics.kafka_settings import KAFKAS_OWN
from siltlog.ingest.topics.topics import AutoCreate
from siltlog.server.kafka.admin.rights import operations
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.leaders import NOBODY, Leaders, find_coordinator
from siltlog.server.kafka.topic_ids import TopicIds, id_bytes
from siltlog.server.kafka.turns import in_turns

CREATED = 201
"""The status by which HTTP answers what makes a topic."""
GROUP, TRANSACTION = 0, 1
"""What a coordinator is asked for."""
BROKERS, CONTROLLERS = 1, 2
"""What is asked for of a cluster."""
_NO_CONTROLLER = "there are no controllers here: give the address as --bootstrap-server, not as --bootstrap-controller"
NO_ID = bytes(16)
NULL_IS_ALL_SINCE = 1
"""Before, no list could be null, and an empty one was of all topics."""
BY_ID_SINCE = 12
"""Since then topics may be asked for by their ids."""
PARTITIONS_MAX = 2_000
"""So many partitions there are in an answer at most that goes on by a cursor. It is Kafka's own default
(`max.request.partition.size.limit`)."""
_COORDINATORS_SINCE = 4
_NO_TRANSACTIONS = (
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "this server has no transactions: leave out transactional.id; an idempotent producer writes exactly once "
    "(docs/kafka.md)",
)
"""An error on which clients fail at once: on others they ask for ever."""
_NO_SUCH = (KafkaError.INVALID_REQUEST, "this server has no coordinator of that kind")


class Described:
    def __init__(
        self,
        log: LogView,
        ids: TopicIds,
        auto_create: AutoCreate | None,
        leaders: Leaders,
        *,
        cluster_id: str,
    ) -> None:
        self._log = log
        self._ids = ids
        self._auto_create = auto_create
        self._leaders = leaders
        self._cluster_id = cluster_id

    async def metadata(self, call: Call) -> Answer:
        wanted = call.body["topics"]
        if wanted is None or (not wanted and call.version < NULL_IS_ALL_SINCE):
            grant = call.session.granted
            seen = set(grant.sees("topic", [topic.name for topic in self._log.topics()]))
            topics = [self._topic(topic) async for topic in in_turns(self._log.topics()) if topic.name in seen]
        else:
            # Clients that give an id leave the name out, or empty.
            known = self._ids.names(each["topic_id"] for each in wanted if each["topic_id"] != NO_ID)
            # Each once, as Kafka's brokers do: else a small request would ask for a very large answer.
            once = {(each["name"], each["topic_id"]): each for each in wanted}
            topics = [await self._asked(call, each, known) async for each in in_turns(once.values())]
        if call.body["include_topic_authorized_operations"]:
            for told in topics:
                if not told["error_code"]:
                    told["topic_authorized_operations"] = operations(call.session.granted, "topic", told["name"])
        return {
            **_cluster_operations(call),
            "brokers": [broker._asdict() for broker in self._leaders.brokers(call.session.connection.own_address)],
            "cluster_id": self._cluster_id,
            # Any node takes what is for all of them.
            "controller_id": self._leaders.own_id(),
            "topics": topics,
        }

    async def topic_partitions(self, call: Call) -> Answer:
        """Tells of topics in the order of their names, on from a cursor, and of only so many partitions at once."""
        body = call.body
        asked = dict.fromkeys(each["name"] for each in body["topics"])
        first, start = ("", 0) if (at := body["cursor"]) is None else (at["topic_name"], at["partition_index"])
        if start < 0 or (asked and at is not None and first not in asked):
            return {"topics": [_no_topic(name, NO_ID, KafkaError.INVALID_REQUEST) for name in asked]}
        seen, refused = await self._from(call, asked, first)
        room = min(max(body["response_partition_limit"], 1), PARTITIONS_MAX)
        topics: list[dict[str, Any]] = []
        following: tuple[str, int] | None = None
        async for name in in_turns(seen):
            if not room:
                following = name, 0
                break
            begin = start if name == first else 0
            told, left = self._some_of(name, begin, begin + room)
            if told["error_code"] and not asked:
                continue
            if not told["error_code"]:
                told["topic_authorized_operations"] = operations(call.session.granted, "topic", name)
            topics.append(told)
            room -= len(told["partitions"])
            if left:
                following = name, begin + len(told["partitions"])
                break
        cursor = None if following is None else dict(zip(("topic_name", "partition_index"), following, strict=True))
        return {"topics": topics + refused, "next_cursor": cursor}

    async def _from(self, call: Call, asked: Mapping[str, Any], first: str) -> tuple[list[str], list[dict[str, Any]]]:
        """The names from `first` on that are told of, those that were asked for or all, and what is told of others."""
        if not asked:
            there = [each.name for each in self._log.topics() if each.name >= first]
            return sorted(call.session.granted.sees("topic", there)), []
        seen, refused = [], []
        async for name in in_turns(sorted(asked)):
            refusal = call.session.refusal("describeTopic", "describe", name) if name >= first else None
            if refusal is not None:
                refused.append(_no_topic(name, NO_ID, kafka_error(refusal)))
            elif name >= first:
                seen.append(name)
        return seen, refused

    def _some_of(self, name: str, begin: int, end: int) -> tuple[dict[str, Any], bool]:
        """Partitions of a topic, and whether there are more."""
        try:
            topic = self._log.topic(name)
        except SiltlogError as error:
            return _no_topic(name, NO_ID, _why_none(name, error)), False
        told = self._topic(topic, begin, end)
        for part in told["partitions"]:
            # Who may lead next is every node: there is no list of some.
            part |= {"eligible_leader_replicas": [], "last_known_elr": []}
        return told, end < len(topic.partitions)

    async def describe_cluster(self, call: Call) -> Answer:
        asked = call.body["endpoint_type"]
        if asked != BROKERS:
            code = KafkaError.MISMATCHED_ENDPOINT_TYPE if asked == CONTROLLERS else KafkaError.UNSUPPORTED_ENDPOINT_TYPE
            return {"error_code": code, "error_message": _NO_CONTROLLER, "cluster_id": "", "brokers": []}
        return {
            **_cluster_operations(call),
            "cluster_id": self._cluster_id,
            "controller_id": self._leaders.own_id(),
            "endpoint_type": BROKERS,
            "brokers": [
                {"broker_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
                for broker in self._leaders.brokers(call.session.connection.own_address)
            ],
        }

    async def find_coordinator(self, call: Call) -> Answer:
        if call.version < _COORDINATORS_SINCE:
            return self._coordinator(call, call.body["key"])
        keys = in_turns(dict.fromkeys(call.body["coordinator_keys"]))
        return {"coordinators": [{"key": key, **self._coordinator(call, key)} async for key in keys]}

    def _coordinator(self, call: Call, key: str) -> dict[str, Any]:
        refused = self._refused(call, key)
        found = find_coordinator(self._leaders, call.session.connection.own_address)
        if refused is None and found is None:
            refused = KafkaError.COORDINATOR_NOT_AVAILABLE, "no node has a number yet by which it could be named"
        if refused is not None or found is None:
            error, sentence = refused or _NO_SUCH
            return {"error_code": error, "error_message": sentence, "node_id": NOBODY, "host": "", "port": -1}
        return {
            "error_code": KafkaError.NONE,
            "error_message": None,
            "node_id": found.node_id,
            "host": found.host,
            "port": found.port,
        }

    def _refused(self, call: Call, key: str) -> tuple[KafkaError, str] | None:
        """Says why no coordinator is told, whoever would be it."""
        if call.body["key_type"] == TRANSACTION:
            return _NO_TRANSACTIONS
        if call.body["key_type"] != GROUP:
            return _NO_SUCH
        refusal = call.session.refusal("describeGroup", "describe", names.kafka_group(key), "group")
        return None if refusal is None else (KafkaError.GROUP_AUTHORIZATION_FAILED, refusal.detail)

    async def _asked(self, call: Call, wanted: Mapping[str, Any], known: Mapping[bytes, str]) -> dict[str, Any]:
        name, topic_id = wanted["name"], wanted["topic_id"]
        if call.version < BY_ID_SINCE and (name is None or topic_id != NO_ID):
            # An answer has to have a name, and an id alone has none.
            return _no_topic(name or "", topic_id, KafkaError.INVALID_REQUEST)
        if name is None or topic_id != NO_ID:
            found = known.get(topic_id)
            if found is None or call.session.refusal("describeTopic", "describe", found) is not None:
                return _no_topic(None, topic_id, KafkaError.UNKNOWN_TOPIC_ID)
            try:
                return self._topic(self._log.topic(found))
            except SiltlogError as error:
                return _no_topic(None, topic_id, _untold(error))
        refusal = call.session.refusal("describeTopic", "describe", name)
        if refusal is not None:
            return _no_topic(name, NO_ID, kafka_error(refusal))
        try:
            return self._topic(self._log.topic(name))
        except SiltlogError as error:
            none = _why_none(name, error)
        if none != KafkaError.UNKNOWN_TOPIC_OR_PARTITION:
            return _no_topic(name, NO_ID, none)
        if not call.body["allow_auto_topic_creation"] or self._auto_create is None or names.is_system_topic(name):
            return _no_topic(name, NO_ID, none)
        return await self._made(call, self._auto_create, name)

    async def _made(self, call: Call, auto_create: AutoCreate, name: str) -> dict[str, Any]:
        refusal = call.session.refusal("createTopic", "create", name)
        if refusal is not None:
            return _no_topic(name, NO_ID, kafka_error(refusal))
        try:
            async with call.session.changing("createTopic", f"topic/{name}", CREATED):
                await auto_create.make(name, call.session.granted, KAFKAS_OWN)
            return self._topic(self._log.topic(name))
        except SiltlogError as error:
            # Metadata has no place for a sentence, and of a name that is refused clients know this.
            if error.error_code != "topic_exists":
                return _no_topic(name, NO_ID, _untold(error))
            # Another node made it just now, or there is one whose name differs only by case.
            known = {*self._log.opening(), *(topic.name for topic in self._log.topics())}
            is_alike = any(other != name and other.lower() == name.lower() for other in known)
            code = KafkaError.INVALID_TOPIC_EXCEPTION if is_alike else KafkaError.LEADER_NOT_AVAILABLE
            return _no_topic(name, NO_ID, code)

    def _topic(self, topic: TopicView, begin: int = 0, end: int | None = None) -> dict[str, Any]:
        leader, replica = self._leaders.leader(topic.name), self._leaders.replica(topic.name)
        is_led = leader.node_id != NOBODY
        if is_led:
            replica = leader.node_id
        return {
            "error_code": KafkaError.NONE,
            "name": topic.name,
            "topic_id": id_bytes(topic.topic_id),
            "is_internal": names.is_system_topic(topic.name),
            "partitions": [
                {
                    "error_code": KafkaError.NONE if is_led else KafkaError.LEADER_NOT_AVAILABLE,
                    "partition_index": view.partition,
                    "leader_id": leader.node_id,
                    "leader_epoch": leader.epoch,
                    "replica_nodes": [replica],
                    "isr_nodes": [replica] if is_led else [],
                    "offline_replicas": [] if is_led else [replica],
                }
                for view in topic.partitions[begin:end]
            ],
        }


def _untold(error: SiltlogError) -> KafkaError:
    """The code for a topic that there is, and of which nothing can be told now: clients ask again."""
    return KafkaError.LEADER_NOT_AVAILABLE if error.error_code == "topic_unavailable" else kafka_error(error)


def _why_none(name: str, error: SiltlogError) -> KafkaError:
    """The code for a topic that was asked for by its name, and was not found."""
    if error.error_code != "unknown_topic":
        return _untold(error)
    is_one = names.readable_topic_problem(name) is None
    return KafkaError.UNKNOWN_TOPIC_OR_PARTITION if is_one else KafkaError.INVALID_TOPIC_EXCEPTION


def _cluster_operations(call: Call) -> dict[str, int]:
    """What a caller may do with the cluster, where he asks for it."""
    if not call.body["include_cluster_authorized_operations"]:
        return {}
    return {"cluster_authorized_operations": operations(call.session.granted, "cluster")}


def _no_topic(name: str | None, topic_id: bytes, error: KafkaError) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": []}
