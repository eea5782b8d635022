"""ListGroups, DescribeGroups and DeleteGroups: groups as Kafka's tools know them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import GroupRow, GroupState, MemberState, Phase, Stability
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.consumer_protocol import PROTOCOL_TYPE, assignment_of, subscription_of
from siltlog.infra.kafka.errors import KafkaError, group_error
from siltlog.server.kafka.admin.rights import operations
from siltlog.server.kafka.call import Answer, Call

STATES: Mapping[Stability, str] = {"empty": "Empty", "stable": "Stable", "rebalancing": "Reconciling"}
_CLASSIC_STATES: Mapping[Stability, str] = {**STATES, "rebalancing": "PreparingRebalance"}
"""The states of groups whose partitions the server assigns, for who asks as if their members did."""
_PHASES: Mapping[Phase, str] = {
    "empty": "Empty",
    "preparing": "PreparingRebalance",
    "completing": "CompletingRebalance",
    "stable": "Stable",
}
_DEAD = "Dead"
_ERRORS_SINCE = 6
_PAGE = 1_000
_DELETED = 204
"""The status by which HTTP answers it."""


class GroupsKept:
    """Used on one event loop."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def list(self, call: Call) -> Answer:
        states = {state.lower() for state in call.body["states_filter"]}
        types = {kind.lower() for kind in call.body["types_filter"]}
        visible = call.session.granted.filter("group")
        sees = None if visible is None else partial(_those, visible)
        found: list[dict[str, Any]] = []
        after: str | None = ""
        try:
            while after is not None:
                rows, after = await self._groups.list_groups("", after, _PAGE, sees)
                found += map(_listed, rows)
        except SiltlogError as error:
            return {"error_code": group_error(error)}
        shown = [
            each
            for each in found
            if (not states or each["group_state"].lower() in states)
            and (not types or each["group_type"].lower() in types)
        ]
        return {"groups": shown}

    async def describe(self, call: Call) -> Answer:
        # Each once: else a small request would ask for a very large answer.
        return {"groups": [await self._described(call, name) for name in dict.fromkeys(call.body["groups"])]}

    async def _described(self, call: Call, group_id: str) -> dict[str, Any]:
        name = names.kafka_group(group_id)
        answer: dict[str, Any] = {"group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": ""}
        refusal = call.session.refusal("describeGroup", "describe", name, "group")
        if refusal is not None:
            return {**answer, "error_code": group_error(refusal), "error_message": refusal.detail}
        try:
            state = await self._groups.describe(name)
            seen = state.seen_by(call.session.granted)
        except SiltlogError as error:
            answer |= {"error_code": group_error(error), "error_message": error.detail}
            if error.error_code == "unknown_group":
                answer["group_state"] = _DEAD
                if call.version < _ERRORS_SINCE:
                    # Such a client goes by the state alone.
                    answer["error_code"] = KafkaError.NONE
            return answer
        if call.body["include_authorized_operations"]:
            answer["authorized_operations"] = operations(call.session.granted, "group", name)
        return answer | _shown(state, seen)

    async def delete(self, call: Call) -> Answer:
        return {"results": [await self._deleted(call, name) for name in dict.fromkeys(call.body["groups_names"])]}

    async def _deleted(self, call: Call, group_id: str) -> dict[str, Any]:
        name = names.kafka_group(group_id)
        refusal = call.session.refusal("deleteGroup", "delete", name, "group")
        if refusal is None:
            try:
                async with call.session.changing("deleteGroup", f"group/{name}", _DELETED):
                    await self._groups.delete(name)
            except SiltlogError as error:
                refusal = error
        return {"group_id": group_id, "error_code": KafkaError.NONE if refusal is None else group_error(refusal)}


def _listed(row: GroupRow) -> dict[str, Any]:
    return {
        "group_id": names.kafka_group_id(row.group),
        "protocol_type": PROTOCOL_TYPE if row.type == "consumer" and not row.offsets_alone else row.protocol_type,
        "group_state": STATES[row.state] if row.phase is None else _PHASES[row.phase],
        # So Kafka's brokers call one that only has offsets, whoever joins it first.
        "group_type": "classic" if row.offsets_alone else row.type,
    }


def _shown(state: GroupState, seen: GroupState) -> dict[str, Any]:
    """A group of which a caller may know what is in `seen`."""
    classic = state.classic
    if classic is None:
        return {
            "error_code": KafkaError.NONE,
            "group_state": _CLASSIC_STATES[state.state],
            "protocol_type": "" if state.offsets_alone else PROTOCOL_TYPE,
            "members": [_told(member) | _as_consumers_say(member) for member in seen.members],
        }
    members = []
    for member, shown in zip(state.members, seen.members, strict=True):
        own = classic.members[member.member]
        said = {"member_metadata": own.metadata, "member_assignment": own.assignment}
        # In what members say themselves there may be topics that are not to be seen.
        said = said if shown == member else _as_consumers_say(shown)
        members.append(_told(member) | said)
    return {
        "error_code": KafkaError.NONE,
        "group_state": _PHASES[classic.phase],
        "protocol_type": classic.protocol_type,
        "protocol_data": classic.protocol,
        "members": members,
    }


def _told(member: MemberState) -> dict[str, Any]:
    return {
        "member_id": member.member,
        "group_instance_id": member.instance_id or None,
        "client_id": member.client_id,
        "client_host": host_of(member),
    }


def host_of(member: MemberState) -> str:
    """Where a member's client is, as Kafka's brokers write it; empty for one over HTTP."""
    return f"/{member.client_host}" if member.client_host else ""


def _as_consumers_say(member: MemberState) -> dict[str, Any]:
    held: dict[str, list[int]] = {}
    for key in member.partitions:
        held.setdefault(key.topic, []).append(key.partition)
    return {"member_metadata": subscription_of(member.topics), "member_assignment": assignment_of(held)}


def _those(visible: Any, groups: list[str]) -> list[str]:
    return [group for group in groups if visible(group)]
