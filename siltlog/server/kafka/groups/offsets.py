"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups are. It is the same that HTTP commits and tells."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from siltlog.consumers.groups.messages import (
    METADATA_CHARS_MAX,
    OFFSET_MAX,
    Actor,
    CommitRequest,
    CommitStatus,
    CommittedOffset,
    CommittedState,
    Committing,
    KafkaOffset,
    PartitionName,
)
from siltlog.consumers.groups.offsets import Offsets
from siltlog.consumers.kafka.classic import group_id_problem
from siltlog.consumers.kafka.epoch import generation_of
from siltlog.consumers.kafka.offsets import EARLIEST, LATEST, KafkaOffsets
from siltlog.consumers.reading.fetch import sources
from siltlog.consumers.reading.view import Key
from siltlog.infra import names
from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, group_error
from siltlog.infra.records import NO_LEADER_EPOCH
from siltlog.infra.security.access import Right
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.topic_ids import TopicIds, id_bytes
from siltlog.server.kafka.turns import Turns, in_turns

TOPIC_ID_SINCE = 10
GROUPS_SINCE = 8
"""Since then a request names several groups."""
ERROR_SINCE = 2
"""Since then an answer has one error of its group; before it every partition had it."""
NOTHING = -1
_FORGOTTEN = 200
"""The status by which HTTP answers what moves a group."""
_COMMITTED: Mapping[CommitStatus, KafkaError] = {
    "ok": KafkaError.NONE,
    "unknown_member": KafkaError.UNKNOWN_MEMBER_ID,
    "fenced": KafkaError.STALE_MEMBER_EPOCH,
    # As Kafka's brokers: who is no member may only speak for a group that has none.
    "group_not_empty": KafkaError.UNKNOWN_MEMBER_ID,
    "fenced_instance": KafkaError.FENCED_INSTANCE_ID,
    "illegal_generation": KafkaError.ILLEGAL_GENERATION,
    "rebalance_in_progress": KafkaError.REBALANCE_IN_PROGRESS,
}
Topic = Mapping[str, Any]
"""A topic of a request, by its name or its id."""


@dataclass(slots=True)
class _Wanted:
    """An offset that is to be committed, and where the answer says what became of it."""

    offset: CommittedOffset
    answers: list[dict[str, Any]]

    def ended(self, error: KafkaError) -> None:
        for answer in self.answers:
            answer["error_code"] = error


class GroupOffsets:
    """Used on one event loop."""

    def __init__(self, offsets: Offsets, ids: TopicIds, ends: KafkaOffsets) -> None:
        self._offsets = offsets
        self._ids = ids
        self._ends = ends

    async def commit(self, call: Call) -> Answer:
        body = call.body
        group, error = _group(call, body["group_id"], "commitOffsets", "read")
        wanted: dict[tuple[str, int], _Wanted] = {}
        topics, turns = [], Turns()
        async for topic, name in turns.over(self._named(call, body["topics"])):
            refused = error or (_not_read(call, name) if name is not None else KafkaError.UNKNOWN_TOPIC_ID)
            answers = []
            async for part in turns.over(topic["partitions"]):
                answer = {"partition_index": part["partition_index"], "error_code": refused or _wrong(part)}
                answers.append(answer)
                if name is not None and not answer["error_code"]:
                    at = KafkaOffset(
                        *(name, part["partition_index"], part["committed_offset"], part["committed_metadata"] or ""),
                        leader_epoch=part["committed_leader_epoch"],
                    )
                    # Of two for a partition the last one holds, as with Kafka's brokers.
                    kept = wanted.setdefault((name, at.partition), _Wanted(at, []))
                    kept.offset = at
                    kept.answers.append(answer)
            topics.append({"name": topic["name"], "topic_id": topic["topic_id"], "partitions": answers})
        possible = await self._possible(wanted.values())
        if possible:
            await self._commit(call, group, possible)
        return {"topics": topics}

    async def _possible(self, wanted: Collection[_Wanted]) -> list[_Wanted]:
        """Gives those whose partition there is; the others have their error."""
        possible = []
        async for each in in_turns(wanted):
            if each.offset.offset < 0:
                # By these kafkajs resets a group. Kafka keeps them as they are, for the client to look the end up.
                end = await self._ends.offset(each.offset.topic, each.offset.partition, each.offset.offset)
                if end.error:
                    each.ended(end.error)
                    continue
                each.offset = msgspec.structs.replace(each.offset, offset=end.offset)
            problem = self._offsets.commit_problem(each.offset)
            if problem is None:
                possible.append(each)
            else:
                each.ended(group_error(problem))
        return possible

    async def _commit(self, call: Call, group: str, wanted: Sequence[_Wanted]) -> None:
        """Partitions that are another member's by now have their error; the others are committed without them."""
        try:
            told = await self._try(call, group, wanted)
            if told.status == "fenced":
                fenced = {(key.topic, key.partition) for key in told.fenced}
                left = [each for each in wanted if (each.offset.topic, each.offset.partition) not in fenced]
                for each in wanted:
                    each.ended(_COMMITTED["fenced"])
                wanted = left
                if left:
                    told = await self._try(call, group, left)
            error = _COMMITTED[told.status]
        except SiltlogError as refused:
            error = group_error(refused)
        for each in wanted:
            each.ended(error)

    async def _try(self, call: Call, group: str, wanted: Sequence[_Wanted]) -> Committing:
        body = call.body
        epoch = body["generation_id_or_member_epoch"]
        is_member = epoch >= 0
        request = CommitRequest(
            [each.offset for each in wanted],
            body["member_id"] if is_member else None,
            generation_of(epoch) if is_member else None,
        )
        actor = Actor.of(call.session.granted, group)
        instance_id = body["group_instance_id"] or "" if is_member else ""
        return await self._offsets.try_commit(group, request, actor, instance_id=instance_id)

    async def fetch(self, call: Call) -> Answer:
        body = call.body
        if call.version >= GROUPS_SINCE:
            # Each once: else a small request would ask for a very large answer.
            asked = {each["group_id"]: each for each in body["groups"]}
            return {"groups": [await self._fetched(call, each) for each in asked.values()]}
        alone = {"group_id": body["group_id"], "topics": body["topics"], "member_id": None, "member_epoch": NOTHING}
        found = await self._fetched(call, alone)
        error, topics = found["error_code"], found["topics"]
        if error and call.version < ERROR_SINCE:
            topics = _refused(body["topics"], error)
        told = [{"name": topic["name"], "partitions": topic["partitions"]} for topic in topics]
        return {"error_code": error, "topics": told}

    async def _fetched(self, call: Call, asked: Mapping[str, Any]) -> dict[str, Any]:
        group, error = _group(call, asked["group_id"], "listGroupOffsets", "describe")
        topics: list[dict[str, Any]] = []
        if not error:
            try:
                topics = await self._found(call, group, asked)
            except SiltlogError as refused:
                error = group_error(refused)
        return {"group_id": asked["group_id"], "topics": topics, "error_code": error}

    async def _found(self, call: Call, group: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        by_member = asked["member_id"] is not None and asked["member_epoch"] >= 0
        member = asked["member_id"] if by_member else None
        generation = generation_of(asked["member_epoch"]) if by_member else 0
        if asked["topics"] is None:
            every = await self._offsets.committed(group, None, member, generation)
            return _all_of(every, set(call.session.granted.sees("topic", {key.topic for key in every})))
        named = list(self._named(call, asked["topics"]))
        wanted = [PartitionName(name, number) for topic, name in named if name for number in topic["partition_indexes"]]
        committed = await self._offsets.committed(group, wanted, member, generation)
        found = {(key.topic, key.partition): entry for key, entry in committed.items()}
        topics = []
        async for topic, name in in_turns(named):
            if name is None:
                topics += _refused([topic], KafkaError.UNKNOWN_TOPIC_ID)
            elif call.session.refusal("listGroupOffsets", "describe", name) is not None:
                topics += _refused([topic], KafkaError.TOPIC_AUTHORIZATION_FAILED)
            else:
                parts = [
                    _told(number, found.get((name, number))) for number in dict.fromkeys(topic["partition_indexes"])
                ]
                topics.append({"name": topic["name"], "topic_id": topic.get("topic_id"), "partitions": parts})
        return topics

    async def delete(self, call: Call) -> Answer:
        """Forgets what a group has committed in topics that none of its members reads."""
        body = call.body
        group, error = _group(call, body["group_id"], "resetGroupOffsets", "alter")
        if error:
            return {"error_code": error, "topics": []}
        wanted = []
        topics, turns = [], Turns()
        async for topic in turns.over(body["topics"]):
            name = topic["name"]
            refusal = call.session.refusal("resetGroupOffsets", "describe", name)
            code = KafkaError.NONE if refusal is None else KafkaError.TOPIC_AUTHORIZATION_FAILED
            parts = []
            async for number in turns.over(dict.fromkeys(part["partition_index"] for part in topic["partitions"])):
                there = code
                if not there:
                    problem = self._offsets.commit_problem(CommittedOffset(name, number, 0))
                    there = KafkaError.NONE if problem is None else group_error(problem)
                parts.append({"partition_index": number, "error_code": there})
                if not there:
                    wanted.append(PartitionName(name, number))
            topics.append({"name": name, "partitions": parts})
        try:
            async with call.session.changing("resetGroupOffsets", f"group/{group}", _FORGOTTEN):
                subscribed = await self._offsets.forget(group, wanted)
        except SiltlogError as refused:
            return {"error_code": group_error(refused), "topics": []}
        read = {(key.topic, key.partition) for key in subscribed}
        for topic in topics:
            for part in topic["partitions"]:
                if (topic["name"], part["partition_index"]) in read:
                    part["error_code"] = KafkaError.GROUP_SUBSCRIBED_TO_TOPIC
        return {"error_code": KafkaError.NONE, "topics": topics}

    def _named(self, call: Call, topics: Sequence[Topic]) -> Iterator[tuple[Topic, str | None]]:
        """Each with its name; None where no topic has its id."""
        has_ids = call.version >= TOPIC_ID_SINCE
        known = self._ids.names(topic["topic_id"] for topic in topics) if has_ids else {}
        for topic in topics:
            yield topic, known.get(topic["topic_id"]) if has_ids else topic["name"]


def _group(call: Call, group_id: str, operation: str, right: Right) -> tuple[str, KafkaError]:
    """The name of the group, and why nothing is done with it."""
    if group_id_problem(group_id) is not None:
        return "", KafkaError.INVALID_GROUP_ID
    group = names.kafka_group(group_id)
    refusal = call.session.refusal(operation, right, group, "group")
    return group, KafkaError.NONE if refusal is None else KafkaError.GROUP_AUTHORIZATION_FAILED


def _not_read(call: Call, topic: str) -> KafkaError:
    # Dead letters are records of their topic.
    refused = any(call.session.refusal("commitOffsets", "read", name) is not None for name in sources(topic))
    return KafkaError.TOPIC_AUTHORIZATION_FAILED if refused else KafkaError.NONE


def _wrong(part: Mapping[str, Any]) -> KafkaError:
    if len(part["committed_metadata"] or "") > METADATA_CHARS_MAX:
        return KafkaError.OFFSET_METADATA_TOO_LARGE
    # Negative ones stand for the ends of a partition, as where offsets are asked for.
    is_one = 0 <= part["committed_offset"] <= OFFSET_MAX or part["committed_offset"] in (LATEST, EARLIEST)
    return KafkaError.NONE if is_one else KafkaError.INVALID_COMMIT_OFFSET_SIZE


def _told(partition: int, entry: CommittedState | None, error: KafkaError = KafkaError.NONE) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": NOTHING if entry is None else entry.offset,
        "committed_leader_epoch": NO_LEADER_EPOCH if entry is None else entry.leader_epoch,
        "metadata": "" if entry is None else entry.metadata,
        "error_code": error,
    }


def _refused(topics: Sequence[Topic], error: KafkaError) -> list[dict[str, Any]]:
    return [
        {
            "name": topic["name"],
            "topic_id": topic.get("topic_id"),
            "partitions": [_told(number, None, error) for number in dict.fromkeys(topic["partition_indexes"])],
        }
        for topic in topics
    ]


def _all_of(committed: Mapping[Key, CommittedState], seen: Collection[str]) -> list[dict[str, Any]]:
    """What a group has committed in the topics that are `seen`, topic by topic."""
    topics: dict[str, dict[str, Any]] = {}
    for key in sorted(committed):
        if key.topic in seen:
            topic = {"name": key.topic, "topic_id": id_bytes(key.topic_id), "partitions": []}
            topics.setdefault(key.topic, topic)["partitions"].append(_told(key.partition, committed[key]))
    return list(topics.values())
