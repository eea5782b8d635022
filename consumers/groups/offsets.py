"""How far groups are: what they have committed, and how often they have tried a record."""

from collections.abc import Sequence
from typing import Any, get_args

from siltlog.consumers.groups.messages import (
    OPEN_ATTEMPTS_MAX,
    Actor,
    Attempted,
    AttemptRequest,
    CommitRequest,
    CommitStatus,
    CommittedOffset,
    CommittedState,
    Committing,
    PartitionName,
    fields_of,
)
from siltlog.consumers.groups.runner import GroupRunner
from siltlog.consumers.groups.scripts import Reply, keys_of, raise_for, unknown_group
from siltlog.consumers.groups.topics import Commit, GroupTopics
from siltlog.consumers.reading.view import Key
from siltlog.infra.errors import SiltlogError, problem


class Offsets:
    """Runs the scripts `commit`, `offsets`, `forget_offsets` and `attempts`. Used on one event loop."""

    def __init__(self, runner: GroupRunner, topics: GroupTopics) -> None:
        self._runner = runner
        self._topics = topics

    async def commit(
        self, group: str, request: CommitRequest, topic_id: str | None = None, actor: Actor | None = None
    ) -> None:
        """All of it or nothing. Raises Fenced `fenced_member` with the partitions that are not the member's,
        Refused `group_not_empty` without a member while there are some, and what `GroupTopics.commits` does."""
        if (request.member_id is None) != (request.generation is None):
            raise problem("invalid_request", "member_id and generation come together: give both or neither")
        await self._topics.learn(request.offsets)
        commits = self._topics.commits(request.offsets, topic_id, by_member=request.member_id is not None)
        reply = await self._commit(group, request, commits, actor)
        if reply["status"] == "group_not_empty":
            raise problem(
                "group_not_empty",
                f"the group {group} has members: commit as one of them, with member_id and generation, "
                "or stop them first",
            )
        raise_for(reply, group, request.member_id or "")

    def commit_problem(self, offset: CommittedOffset) -> SiltlogError | None:
        """Why a client of Kafka cannot commit an offset, whoever holds its partition; it may be anywhere."""
        try:
            self._topics.commits((offset,), anywhere=True)
        except SiltlogError as error:
            return error
        return None

    async def try_commit(
        self, group: str, request: CommitRequest, actor: Actor | None = None, *, instance_id: str = ""
    ) -> Committing:
        """Commits offsets that have no problem, all of them or none; also below the log start, and beyond the end.
        `instance_id` is that of a static member of a classic group.

        Raises Refused `forbidden` where the member is another's.
        """
        commits = self._topics.commits(request.offsets, anywhere=True)
        reply = await self._commit(group, request, commits, actor, instance_id)
        if reply["status"] == "fenced_commits":
            return Committing("fenced" if reply["known"] else "unknown_member", keys_of(reply["partitions"]))
        if reply["status"] in get_args(CommitStatus):
            return Committing(reply["status"])
        raise_for(reply, group, request.member_id or "")
        return Committing("ok")

    async def _commit(
        self,
        group: str,
        request: CommitRequest,
        commits: Sequence[Commit],
        actor: Actor | None,
        instance_id: str = "",
    ) -> Reply:
        body: dict[str, Any] = {"commits": commits, "generation": request.generation, **fields_of(actor)}
        if instance_id:
            body["instance_id"] = instance_id
        if request.member_id is not None:
            body["member"] = request.member_id
        return await self._runner.run("commit", group, body)

    async def committed(
        self,
        group: str,
        partitions: Sequence[PartitionName] | None = None,
        member: str | None = None,
        generation: int = 0,
    ) -> dict[Key, CommittedState]:
        """What a group has committed, in some partitions or, None, in all; nothing where topic or group is unknown.

        Raises Fenced `unknown_member` and `fenced_member` where a `member` asks that there is not, or one whose
        `generation` was lost.
        """
        body: dict[str, Any] = {}
        if partitions is not None:
            body["partitions"] = await self._topics.owned(partitions)
        if member is not None:
            body |= {"member": member, "generation": generation}
        reply = await self._runner.run("offsets", group, body)
        raise_for(reply, group, member or "")
        found = (CommittedState(Key.parse(text), *rest) for text, *rest in reply["offsets"])
        return {entry.key: entry for entry in found if self._topics.has(entry.key)}

    async def forget(self, group: str, partitions: Sequence[PartitionName]) -> frozenset[Key]:
        """Forgets what a group has committed, but where members read the topic; returns those partitions.

        Raises Refused `unknown_group`, and `group_not_empty` where nobody knows what its members read.
        """
        status, subscribed = await self._runner.forget(group, await self._topics.owned(partitions))
        if status == "unknown_group":
            raise unknown_group(group)
        if status == "group_not_empty":
            raise problem(
                "group_not_empty", f"the group {group} has members, which do not say what they read: stop them"
            )
        return frozenset(keys_of(list(subscribed)))

    async def attempt(
        self,
        group: str,
        request: AttemptRequest,
        actor: Actor | None = None,
        *,
        count: bool,
        suspect_max: int | None = None,
        backoff_ms: tuple[int, int] | None = None,
    ) -> Attempted:
        """Tells the attempts at a record, and counts one more with `count`, but never at one that was committed.

        With `suspect_max` the record may have ended a former holder, and is about to be handled: it is counted while
        it has fewer attempts, the one by which it ended a consumer among them. With `backoff_ms`, the pause after the
        first attempt and the longest one, polls leave its partition out until the pause is over; what is said again
        meanwhile counts no other attempt.

        Raises Fenced where the member does not hold the partition, what `GroupTopics.record` does, and Refused
        `invalid_request` where too many records of the partition have attempts and none is committed.
        """
        await self._topics.learn((request,))
        key = self._topics.record(request)
        body = {
            "member": request.member_id,
            "generation": request.generation,
            "partition": key.text(),
            "offset": request.offset,
            "count": count,
            "open_max": OPEN_ATTEMPTS_MAX,
            **fields_of(actor),
        }
        if suspect_max is not None:
            body["suspect_max"] = suspect_max
        if backoff_ms is not None:
            body["backoff_ms"], body["backoff_ms_max"] = backoff_ms
        reply = await self._runner.run("attempts", group, body)
        raise_for(reply, group, request.member_id)
        if reply["status"] == "too_many":
            raise problem(
                "invalid_request",
                f"{OPEN_ATTEMPTS_MAX} records of {request.topic}/{request.partition} have attempts and are not "
                f"committed by the group {group}: commit what is done before another one is begun",
            )
        counted = reply["attempts"], reply["committed"], list(reply["lower"]), reply["spent"], int(reply["rest_ms"])
        return Attempted(key, *counted)
