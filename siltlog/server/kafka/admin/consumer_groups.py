"""ConsumerGroupDescribe: groups whose partitions the server assigns."""

from collections.abc import Iterable, Mapping
from typing import Any

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import GroupState, MemberState
from siltlog.consumers.kafka.consumer_members import ASSIGNOR
from siltlog.consumers.kafka.epoch import epoch_of
from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, group_error
from siltlog.server.kafka.admin.groups import STATES, host_of
from siltlog.server.kafka.admin.rights import operations
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.topic_ids import id_bytes

_CONSUMER = 1
"""The kind of a member that lets the server assign."""


class ConsumerGroups:
    """Used on one event loop."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def describe(self, call: Call) -> Answer:
        # Each once: else a small request would ask for a very large answer.
        return {"groups": [await self._described(call, each) for each in dict.fromkeys(call.body["group_ids"])]}

    async def _described(self, call: Call, group_id: str) -> dict[str, Any]:
        group = names.kafka_group(group_id)
        answer: dict[str, Any] = {"group_id": group_id, "group_state": "", "assignor_name": "", "members": []}
        error = call.session.refusal("describeGroup", "describe", group, "group")
        if error is None:
            try:
                state = (await self._groups.describe(group)).seen_by(call.session.granted)
            except SiltlogError as failed:
                error = failed
        if error is not None:
            return {**answer, "error_code": group_error(error), "error_message": error.detail}
        if state.classic is not None or state.offsets_alone:
            # Clients then ask for it as a classic group.
            sentence = f"the members of the group {group} share out its partitions themselves: it is a classic group"
            if state.offsets_alone:
                sentence = f"the group {group} has had no members yet: it is a classic group to Kafka's clients"
            return {**answer, "error_code": KafkaError.GROUP_ID_NOT_FOUND, "error_message": sentence}
        if call.body["include_authorized_operations"]:
            answer["authorized_operations"] = operations(call.session.granted, "group", group)
        return {**answer, **_shown(state)}


def _shown(state: GroupState) -> dict[str, Any]:
    epoch = epoch_of(state.generation)
    return {
        "error_code": KafkaError.NONE,
        "group_state": STATES[state.state],
        "group_epoch": epoch,
        "assignment_epoch": epoch,
        "assignor_name": ASSIGNOR,
        "members": [_member(member, state.moving, epoch) for member in state.members],
    }


def _member(member: MemberState, moving: Mapping[Key, str], epoch: int) -> dict[str, Any]:
    meant = [key for key in member.partitions if key not in moving]
    meant += [key for key, to in moving.items() if to == member.member]
    return {
        "member_id": member.member,
        "instance_id": member.instance_id or None,
        "member_epoch": epoch,
        "client_id": member.client_id,
        "client_host": host_of(member),
        "subscribed_topic_names": list(member.topics),
        "subscribed_topic_regex": member.topic_pattern or None,
        "assignment": {"topic_partitions": _by_topic(member.partitions)},
        "target_assignment": {"topic_partitions": _by_topic(meant)},
        "member_type": _CONSUMER,
    }


def _by_topic(keys: Iterable[Key]) -> list[dict[str, Any]]:
    topics: dict[tuple[str, str], list[int]] = {}
    for key in sorted(keys):
        topics.setdefault((key.topic, key.topic_id), []).append(key.partition)
    return [
        {"topic_id": id_bytes(topic_id), "topic_name": name, "partitions": numbers}
        for (name, topic_id), numbers in topics.items()
    ]
