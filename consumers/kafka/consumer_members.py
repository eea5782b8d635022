"""Clients of Kafka in groups whose partitions the server assigns (KIP-848): their heartbeats are those of any member,
so that they and members over HTTP share one group.

They begin where they choose themselves where the group has no offset, their topics need not exist, and an id that left
or was fenced may join again.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import PATTERN_CHARS_MAX, TOPICS_MAX, Actor, Membership, fields_of
from siltlog.consumers.groups.scripts import Reply
from siltlog.consumers.groups.topics import pattern_problem
from siltlog.consumers.kafka.classic import ID_CHARS_MAX
from siltlog.consumers.kafka.epoch import epoch_of, generation_of
from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.kafka.errors import KafkaError

JOINS, LEAVES, RESTS = 0, -1, -2
"""In place of an epoch: the member joins; is gone; is gone for a while, under an instance that comes back."""
ASSIGNOR = "uniform"
OWN_POLICY = ""
"""The reset policy of a member whose client has its own."""
UNCHANGED = -1
Partitions = Mapping[bytes, Sequence[int]]
"""Numbers of partitions by the id of their topic."""
_ERRORS = {
    "fenced_member": (KafkaError.FENCED_MEMBER_EPOCH, "the member left, was expired or was fenced: join again"),
    "fenced_instance": (KafkaError.FENCED_INSTANCE_ID, "another process runs under this group.instance.id"),
    "unknown_member": (KafkaError.UNKNOWN_MEMBER_ID, "the group has no such member: join again"),
    "other_principal": (KafkaError.GROUP_AUTHORIZATION_FAILED, "the member is another principal's"),
    "other_instance": (KafkaError.INVALID_REQUEST, "a member keeps its group.instance.id for life"),
    "foreign": (KafkaError.INVALID_REQUEST, "the members of this group read another log, on the same Redis"),
    "classic": (
        KafkaError.INVALID_REQUEST,
        "the members of this group share out its partitions themselves: stop them first, or use group.protocol=classic",
    ),
}
"""What the script says, as clients of Kafka know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat. None, or `UNCHANGED`: as before."""

    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: Sequence[str] | None
    pattern: str | None
    assignor: str | None
    owned: Partitions | None


@dataclass(frozen=True, slots=True)
class Told:
    """The answer. `assignment` None: unchanged."""

    member_id: str
    epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None
    error: KafkaError = KafkaError.NONE
    sentence: str | None = None


class ConsumerMembers:
    """Used on one event loop. Groups are named as in Redis (`names.kafka_group`)."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._transitions = groups.transitions
        self._timeouts = groups.members.timeouts

    async def heartbeat(self, group: str, beat: Beat, topic_names: Mapping[bytes, str], actor: Actor | None) -> Told:
        """`topic_names` are those of the topics that the member says it owns, of those that there are.

        Raises Unavailable without Redis, and Refused `cap_reached`.
        """
        wrong = _wrong(beat)
        if wrong is not None:
            return _refused(beat, *wrong)
        if beat.epoch == LEAVES:
            await self._groups.members.leave(group, beat.member_id, actor)
        if beat.epoch < JOINS:
            # Who comes back under its instance takes the place that is kept until the session ends.
            return Told(beat.member_id, beat.epoch)
        member_id = beat.member_id or str(uuid.uuid4())
        body = self._body(beat, member_id, topic_names, actor)
        if beat.epoch == JOINS:
            await self._groups.register.check_room(group, actor)
        first = {**body, "rejoins": True} if beat.epoch == JOINS else body
        reply = await self._transitions.run("heartbeat", group, first)
        if reply["status"] == "ok" and reply["plan"]:
            await self._transitions.plan(group)
            reply = await self._transitions.run("heartbeat", group, body)
        if reply["status"] != "ok":
            return _refused(beat, *_ERRORS[reply["status"]])
        return _told(member_id, reply)

    def _body(
        self, beat: Beat, member_id: str, topic_names: Mapping[bytes, str], actor: Actor | None
    ) -> dict[str, Any]:
        said = fields_of(actor)
        fields = self._fields(beat)
        body = {
            "member": member_id,
            "generation": generation_of(beat.epoch),
            "fields": fields,
            "poll": False,
            **said,
        }
        if beat.instance_id is not None:
            body["instance_id"] = beat.instance_id
        if beat.owned is not None:
            body["owned"] = _texts(beat.owned, topic_names)
        if beat.epoch == JOINS:
            body["join"] = {
                "instance_id": beat.instance_id or "",
                "topics": "",
                "topic_pattern": "",
                "client_id": beat.client_id,
                "client_host": beat.client_host,
                **self._timeouts.defaults(),
                "auto_offset_reset": OWN_POLICY,
                **fields,
                **{name: said[name] for name in ("principal", "principal_groups") if said},
            }
        return body

    def _fields(self, beat: Beat) -> dict[str, Any]:
        """Returns the fields that were sent. Clients take any time to let go: it has what is nearest."""
        fields: dict[str, Any] = {}
        if beat.topics is not None:
            # One that cannot be is never read.
            possible = {name for name in beat.topics if names.readable_topic_problem(name) is None}
            fields["topics"] = ",".join(sorted(possible))
        if beat.pattern is not None:
            fields["topic_pattern"] = beat.pattern
        if beat.rebalance_timeout_ms != UNCHANGED:
            least, most = self._timeouts.rebalance_ms_min, self._timeouts.rebalance_ms_max
            fields["rebalance_timeout_ms"] = min(max(beat.rebalance_timeout_ms, least), most)
        return fields


def _wrong(beat: Beat) -> tuple[KafkaError, str] | None:
    """Why a heartbeat makes no sense, whatever the group."""
    ids = (beat.member_id, beat.instance_id or "")
    if beat.epoch < RESTS or max(map(len, ids)) > ID_CHARS_MAX or beat.instance_id == "":
        return KafkaError.INVALID_REQUEST, "the epoch is below -2, or an id is empty or too long"
    if beat.epoch == RESTS and beat.instance_id is None:
        return KafkaError.INVALID_REQUEST, "the epoch -2 is for members with a group.instance.id"
    if beat.epoch != JOINS and not beat.member_id:
        return KafkaError.INVALID_REQUEST, "a heartbeat has the id of its member"
    # Of none at all: a client that matches names itself has found none yet, and says so once there is one.
    if beat.epoch == JOINS and beat.topics is None and not beat.pattern:
        return KafkaError.INVALID_REQUEST, "a join names what it wants to read: topics, or a regular expression"
    if len(beat.topics or ()) > TOPICS_MAX:
        return KafkaError.INVALID_REQUEST, f"a member names {TOPICS_MAX} topics at most"
    if beat.assignor not in (None, ASSIGNOR):
        return KafkaError.UNSUPPORTED_ASSIGNOR, f"the assignor is {ASSIGNOR}, or left out"
    if len(beat.pattern or "") > PATTERN_CHARS_MAX:
        return KafkaError.INVALID_REGULAR_EXPRESSION, f"a regular expression has {PATTERN_CHARS_MAX} characters at most"
    problem = pattern_problem(beat.pattern) if beat.pattern else None
    return None if problem is None else (KafkaError.INVALID_REGULAR_EXPRESSION, problem)


def _texts(owned: Partitions, topic_names: Mapping[bytes, str]) -> list[str]:
    """Names partitions as the scripts do, those of topics that there are: of others nobody holds any."""
    return [
        Key(topic_names[topic_id], str(uuid.UUID(bytes=topic_id)), number).text()
        for topic_id, numbers in owned.items()
        if topic_id in topic_names
        for number in numbers
    ]


def _told(member_id: str, reply: Reply) -> Told:
    assignment: dict[bytes, list[int]] | None = None
    if "assignment" in reply:
        assignment = {}
        for key in sorted(Key.parse(text) for text, _ in reply["assignment"]):
            assignment.setdefault(uuid.UUID(key.topic_id).bytes, []).append(key.partition)
    interval_ms = Membership(0, None, False, reply["session_timeout_ms"]).heartbeat_interval_ms
    return Told(member_id, epoch_of(reply["generation"]), interval_ms, assignment)


def _refused(beat: Beat, error: KafkaError, sentence: str) -> Told:
    return Told(beat.member_id, error=error, sentence=sentence)
