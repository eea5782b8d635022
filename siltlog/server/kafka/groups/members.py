"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: members of classic groups."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from siltlog.consumers.groups.messages import Actor
from siltlog.consumers.kafka.classic import ClassicGroups, Joined, Joining, Left, Speaker, Synced, group_id_problem
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, group_error
from siltlog.server.kafka.call import Answer, Call

REBALANCE_TIMEOUT_SINCE = 1
ASKS_FOR_ID_SINCE = 4
SKIPS_SINCE = 9
NO_PROTOCOL_SINCE = 7
"""Since then a refused join has none; before it was empty."""
MEMBERS_SINCE = 3
"""Since then a request to leave is of several."""
T = TypeVar("T")


class Members:
    """Used on one event loop."""

    def __init__(self, groups: ClassicGroups) -> None:
        self._groups = groups

    async def join(self, call: Call) -> Answer:
        body = call.body
        joining = Joining(
            member_id=body["member_id"],
            instance_id=body["group_instance_id"] or "",
            client_id=call.client_id,
            client_host=call.session.connection.peer.address,
            session_timeout_ms=body["session_timeout_ms"],
            rebalance_timeout_ms=body[
                "rebalance_timeout_ms" if call.version >= REBALANCE_TIMEOUT_SINCE else "session_timeout_ms"
            ],
            protocol_type=body["protocol_type"],
            protocols=[(each["name"], each["metadata"]) for each in body["protocols"]],
            asks_for_id=call.version >= ASKS_FOR_ID_SINCE,
            skips=call.version >= SKIPS_SINCE,
        )
        refused = partial(Joined, member_id=joining.member_id)
        joined = await self._asked(call, "heartbeat", refused, partial(self._groups.join, joining=joining))
        return {
            "error_code": joined.error,
            "generation_id": joined.epoch,
            "protocol_type": None if joined.error else joined.protocol_type,
            "protocol_name": joined.protocol if not joined.error or call.version < NO_PROTOCOL_SINCE else None,
            "leader": joined.leader,
            "skip_assignment": joined.skip,
            "member_id": joined.member_id,
            "members": [
                {"member_id": at.member_id, "group_instance_id": at.instance_id or None, "metadata": at.metadata}
                for at in joined.members
            ],
        }

    async def sync(self, call: Call) -> Answer:
        body = call.body
        sync = partial(
            self._groups.sync,
            speaker=_speaker(call),
            protocol_type=body["protocol_type"],
            protocol=body["protocol_name"],
            assignments=[(each["member_id"], each["assignment"]) for each in body["assignments"]],
        )
        synced = await self._asked(call, "heartbeat", Synced, sync)
        return {
            "error_code": synced.error,
            "protocol_type": None if synced.error else synced.protocol_type,
            "protocol_name": None if synced.error else synced.protocol,
            "assignment": synced.assignment,
        }

    async def heartbeat(self, call: Call) -> Answer:
        beat = partial(self._groups.heartbeat, speaker=_speaker(call))
        return {"error_code": await self._asked(call, "heartbeat", lambda error: error, beat)}

    async def leave(self, call: Call) -> Answer:
        body = call.body
        if call.version < MEMBERS_SINCE:
            members = [(body["member_id"], "")]
        else:
            members = [(each["member_id"], each["group_instance_id"] or "") for each in body["members"]]
        leave = partial(self._groups.leave, members=members)
        left = await self._asked(call, "leaveGroup", Left, leave)
        if left.error or call.version < MEMBERS_SINCE:
            return {"error_code": left.error or left.members[0], "members": []}
        return {
            "error_code": KafkaError.NONE,
            "members": [
                {"member_id": each["member_id"], "group_instance_id": each["group_instance_id"], "error_code": error}
                for each, error in zip(body["members"], left.members, strict=True)
            ],
        }

    async def _asked(
        self, call: Call, operation: str, refused: Callable[[KafkaError], T], ask: Callable[..., Awaitable[T]]
    ) -> T:
        """What is asked of a group by whom may, or a refusal made of its error."""
        if group_id_problem(call.body["group_id"]) is not None:
            return refused(KafkaError.INVALID_GROUP_ID)
        group = names.kafka_group(call.body["group_id"])
        session = call.session
        if session.refusal(operation, "read", group, "group") is not None:
            return refused(KafkaError.GROUP_AUTHORIZATION_FAILED)
        try:
            answer = await ask(group, actor=Actor.of(session.granted, group))
        except SiltlogError as error:
            # At no other code do all clients ask again, whatever they have asked for.
            return refused(group_error(error, KafkaError.COORDINATOR_NOT_AVAILABLE))
        # The right may have been taken away while it waited.
        if session.refusal(operation, "read", group, "group") is not None:
            return refused(KafkaError.GROUP_AUTHORIZATION_FAILED)
        return answer


def _speaker(call: Call) -> Speaker:
    body = call.body
    return Speaker(body["member_id"], body["group_instance_id"] or "", body["generation_id"])
