"""ConsumerGroupHeartbeat: members of groups whose partitions the server assigns."""

from typing import Any

from siltlog.consumers.groups.messages import Actor
from siltlog.consumers.kafka.classic import group_id_problem
from siltlog.consumers.kafka.consumer_members import Beat, ConsumerMembers, Told
from siltlog.consumers.reading.fetch import sources
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, group_error
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.topic_ids import TopicIds

OWN_ID_SINCE = 1
"""Since then a member has made its id itself."""
_OPERATION = "heartbeat"


class ConsumerHeartbeats:
    """Used on one event loop."""

    def __init__(self, members: ConsumerMembers, ids: TopicIds) -> None:
        self._members = members
        self._ids = ids

    async def heartbeat(self, call: Call) -> Answer:
        body = call.body
        group = names.kafka_group(body["group_id"])
        told = _wrong(call) or _forbidden(call, group)
        if told is None:
            beat = _beat(call)
            try:
                topic_names = self._ids.names(beat.owned or ())
                told = await self._members.heartbeat(group, beat, topic_names, Actor.of(call.session.granted, group))
            except SiltlogError as error:
                told = Told(body["member_id"], error=group_error(error), sentence=error.detail)
        answer: dict[str, Any] = {
            "error_code": told.error,
            "error_message": told.sentence,
            # Who made it himself knows it. librdkafka would take it up to the next zero byte: with our epoch behind it.
            "member_id": told.member_id if call.version < OWN_ID_SINCE else None,
            "member_epoch": told.epoch,
            "heartbeat_interval_ms": told.interval_ms,
        }
        if told.assignment is not None:
            answer["assignment"] = {
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in told.assignment.items()
                ]
            }
        return answer


def _wrong(call: Call) -> Told | None:
    member_id = call.body["member_id"]
    sentence = group_id_problem(call.body["group_id"])
    if sentence is not None:
        return Told(member_id, error=KafkaError.INVALID_GROUP_ID, sentence=sentence)
    if call.version >= OWN_ID_SINCE and not member_id:
        return Told(
            "", error=KafkaError.INVALID_REQUEST, sentence="a member makes its id itself, and has it from its join on"
        )
    return None


def _forbidden(call: Call, group: str) -> Told | None:
    member_id = call.body["member_id"]
    refusal = call.session.refusal(_OPERATION, "read", group, "group")
    if refusal is not None:
        return Told(member_id, error=KafkaError.GROUP_AUTHORIZATION_FAILED, sentence=refusal.detail)
    for topic in call.body["subscribed_topic_names"] or ():
        # Dead letters are records of their topic.
        for name in sources(topic):
            refusal = call.session.refusal(_OPERATION, "read", name)
            if refusal is not None:
                return Told(member_id, error=KafkaError.TOPIC_AUTHORIZATION_FAILED, sentence=refusal.detail)
    return None


def _beat(call: Call) -> Beat:
    body = call.body
    owned = body["topic_partitions"]
    return Beat(
        member_id=body["member_id"],
        epoch=body["member_epoch"],
        instance_id=body["instance_id"],
        client_id=call.client_id,
        client_host=call.session.connection.peer.address,
        rebalance_timeout_ms=body["rebalance_timeout_ms"],
        topics=body["subscribed_topic_names"],
        pattern=body["subscribed_topic_regex"],
        assignor=body["server_assignor"],
        owned=None if owned is None else {each["topic_id"]: each["partitions"] for each in owned},
    )
