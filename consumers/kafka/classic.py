"""Classic groups of Kafka: members join, the server gives them a generation, and one of them, the leader, shares out
the partitions. The server hands its word to the others, and sees to it that nobody speaks of a generation that is over.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import TOPICS_MAX, WAITS_PER_SESSION, Actor, fields_of
from siltlog.consumers.groups.scripts import Reply
from siltlog.consumers.kafka.epoch import epoch_of, generation_of
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.kafka.consumer_protocol import PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from siltlog.infra.kafka.errors import KafkaError

MEMBERS_MAX = 1_000
"""A group has no more: each join and each rebalance looks at all of them."""
PROTOCOLS_MAX = 100
METADATA_BYTES_MAX = 1024 * 1024
"""A member says no more, with all of its protocols."""
GROUP_BYTES_MAX = 16 * 1024 * 1024
"""The same of all members of a group, of which its leader is told."""
ASSIGNMENTS_BYTES_MAX = 16 * 1024 * 1024
"""All members of a group are assigned no more."""
ID_CHARS_MAX = 1_000
"""The name of a group, a member, an instance, a protocol or its type has no more."""
_CLIENT_CHARS_MAX = 100
_NO_NAME = re.compile(r"[^a-zA-Z0-9._-]")
_ERRORS = {
    "ok": KafkaError.NONE,
    "unknown_member": KafkaError.UNKNOWN_MEMBER_ID,
    "fenced_member": KafkaError.UNKNOWN_MEMBER_ID,
    "fenced_instance": KafkaError.FENCED_INSTANCE_ID,
    "illegal_generation": KafkaError.ILLEGAL_GENERATION,
    "rebalance_in_progress": KafkaError.REBALANCE_IN_PROGRESS,
    "inconsistent": KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    "other_type": KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    "foreign": KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    "other_principal": KafkaError.GROUP_AUTHORIZATION_FAILED,
    "full": KafkaError.GROUP_MAX_SIZE_REACHED,
}
"""What the scripts say, as clients of Kafka know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A member that joins. `member_id` and `instance_id` are empty where it has none."""

    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    """Names and metadata, those that it would rather have first."""
    asks_for_id: bool
    """It joins a second time with the id that it is given, so that one which is gone meanwhile leaves nothing."""
    skips: bool
    """It knows that a leader may have nothing to share out."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join. The leader alone is told of the `members`; with `skip` it shares out nothing."""

    error: KafkaError
    member_id: str
    epoch: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    skip: bool = False
    members: Sequence[JoinedMember] = ()


class Speaker(NamedTuple):
    """Says who speaks as a member, of which epoch."""

    member_id: str
    instance_id: str
    epoch: int

    def fields(self) -> dict[str, Any]:
        return {
            "member": self.member_id,
            "instance_id": self.instance_id,
            "generation": generation_of(self.epoch),
        }


@dataclass(frozen=True, slots=True)
class Synced:
    error: KafkaError
    assignment: bytes = b""
    protocol_type: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    error: KafkaError
    members: Sequence[KafkaError] = ()
    """The error of each that was to leave."""


class ClassicGroups:
    """Used on one event loop. Groups are named as in Redis (`names.kafka_group`).

    Every call raises Unavailable without Redis, and where a wait ends because the server does.
    """

    def __init__(self, groups: Groups, delay_ms: int, draining: Callable[[], bool]) -> None:
        """The first rebalance of a group waits for `delay_ms`, for more members."""
        self._groups = groups
        self._transitions = groups.transitions
        self._timeouts = groups.members.timeouts
        self._delay_ms = delay_ms
        self._draining = draining

    async def join(self, group: str, joining: Joining, actor: Actor | None) -> Joined:
        """Returns once all members have joined, or those that are left at the end of their time. Raises Refused
        `cap_reached`."""
        error = self._wrong(joining)
        if error:
            return Joined(error, joining.member_id)
        member_id = joining.member_id or _new_id(joining)
        if not (joining.member_id or joining.instance_id) and joining.asks_for_id:
            return Joined(KafkaError.MEMBER_ID_REQUIRED, member_id)
        await self._groups.register.check_room(group, actor)
        body = {
            "member": member_id,
            "fresh": not joining.member_id,
            "promised": joining.asks_for_id,
            "join": self._fields(joining, actor),
            "protocol_type": joining.protocol_type,
            "metadata": {name: _text(metadata) for name, metadata in joining.protocols},
            "delay_ms": self._delay_ms,
            "members_max": MEMBERS_MAX,
            "metadata_bytes_max": GROUP_BYTES_MAX,
            "skips": joining.skips,
            **fields_of(actor),
        }
        reply = await self._waited("classic_join", group, member_id, body, {"member": member_id, "again": True})
        error = _ERRORS[reply["status"]]
        if error:
            return Joined(error, joining.member_id)
        return Joined(
            error,
            member_id,
            epoch_of(int(reply["joined"])),
            reply["protocol_type"],
            reply["protocol"],
            reply["leader"],
            reply["skip"],
            [JoinedMember(member, instance, _bytes(metadata)) for member, instance, metadata in reply["members"]],
        )

    async def sync(
        self,
        group: str,
        speaker: Speaker,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Sequence[tuple[str, bytes]],
        actor: Actor | None,
    ) -> Synced:
        """Returns once the leader has shared out; `assignments` are its word. None: what the client does not say."""
        size = sum(len(assignment) for _, assignment in assignments)
        if len(assignments) > MEMBERS_MAX or size > ASSIGNMENTS_BYTES_MAX:
            return Synced(KafkaError.INVALID_REQUEST)
        told = [(member, _text(given), assigned_partitions(given)) for member, given in assignments]
        body = {**speaker.fields(), "assignments": told, **fields_of(actor)}
        body |= {"protocol_type": protocol_type} if protocol_type is not None else {}
        body |= {"protocol": protocol} if protocol is not None else {}
        reply = await self._waited("classic_sync", group, speaker.member_id, body, {**body, "assignments": []})
        error = _ERRORS[reply["status"]]
        if error:
            return Synced(error)
        return Synced(error, _bytes(reply["assignment"]), reply["protocol_type"], reply["protocol"])

    async def heartbeat(self, group: str, speaker: Speaker, actor: Actor | None) -> KafkaError:
        reply = await self._transitions.run("classic_beat", group, {**speaker.fields(), **fields_of(actor)})
        return _ERRORS[reply["status"]]

    async def leave(self, group: str, members: Sequence[tuple[str, str]], actor: Actor | None) -> Left:
        """Members by their id, or by their instance where that is empty."""
        if len(members) > MEMBERS_MAX or any(len(text) > ID_CHARS_MAX for member in members for text in member):
            return Left(KafkaError.INVALID_REQUEST)
        body = {"members": members, **fields_of(actor)}
        reply = await self._transitions.run("classic_leave", group, body)
        return Left(KafkaError.NONE, [_ERRORS[status] for status in reply["statuses"]])

    async def _waited(
        self, transition: str, group: str, member: str, first: Mapping[str, Any], again: Mapping[str, Any]
    ) -> Reply:
        """The answer of a transition that others have to bring about. Whoever waits is there: its session goes on."""
        with self._groups.members.waiting(group, member) as waiter:
            reply = await self._transitions.run(transition, group, first)
            while reply["status"] == "waiting":
                if waiter.ended or self._draining():
                    raise problem(
                        "coordinator_unavailable", f"this server ends, or has lost the group {group}: join anew"
                    )
                waiter.told(reply["generation"])
                wait_ms = min(max(reply["due_ms"], 1), reply["session_timeout_ms"] // WAITS_PER_SESSION)
                await waiter.wait(wait_ms / 1000)
                reply = await self._transitions.run(transition, group, again)
            return reply

    def _wrong(self, joining: Joining) -> KafkaError:
        protocols = [name for name, _ in joining.protocols]
        texts = (joining.member_id, joining.instance_id, joining.protocol_type, *protocols)
        if max(map(len, texts)) > ID_CHARS_MAX or len(protocols) > PROTOCOLS_MAX:
            return KafkaError.INVALID_REQUEST
        if sum(len(metadata) for _, metadata in joining.protocols) > METADATA_BYTES_MAX:
            return KafkaError.INVALID_REQUEST
        # Of two that have one name nobody knows which is meant.
        if not all(protocols) or not protocols or len(set(protocols)) < len(protocols) or not joining.protocol_type:
            return KafkaError.INCONSISTENT_GROUP_PROTOCOL
        try:
            self._timeouts.check(joining.session_timeout_ms, None)
        except SiltlogError:
            return KafkaError.INVALID_SESSION_TIMEOUT
        return KafkaError.NONE

    def _fields(self, joining: Joining, actor: Actor | None) -> dict[str, Any]:
        """All fields of the member. Clients take any time for a rebalance: it has what is nearest."""
        timeouts = self._timeouts
        topics: list[str] = []
        if joining.protocol_type == PROTOCOL_TYPE:
            topics = subscribed_topics(joining.protocols[0][1])[:TOPICS_MAX]
        return {
            "instance_id": joining.instance_id,
            "client_id": joining.client_id,
            "client_host": joining.client_host,
            "topics": ",".join(sorted({name for name in topics if names.readable_topic_problem(name) is None})),
            "topic_pattern": "",
            "auto_offset_reset": "",
            "session_timeout_ms": joining.session_timeout_ms,
            "rebalance_timeout_ms": min(
                max(joining.rebalance_timeout_ms, timeouts.rebalance_ms_min), timeouts.rebalance_ms_max
            ),
            "protocols": [name for name, _ in joining.protocols],
            "metadata_bytes": sum(len(metadata) for _, metadata in joining.protocols),
            "principal": "" if actor is None else actor.subject.principal,
        }


def group_id_problem(group_id: str) -> str | None:
    """Says what is wrong with the id of a group; None where nothing is."""
    return None if 0 < len(group_id) <= ID_CHARS_MAX else f"the id of a group has 1 to {ID_CHARS_MAX} characters"


def _new_id(joining: Joining) -> str:
    """Makes an id as Kafka does: people see in it whose it is."""
    whose = _NO_NAME.sub("_", joining.instance_id or joining.client_id)[:_CLIENT_CHARS_MAX]
    return f"{whose}-{uuid.uuid4()}"


def _text(content: bytes) -> str:
    """Bytes as the scripts keep them: of what they are given as bytes they give back text."""
    return bytes(content).decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
