"""The transitions of a group: one Lua script each, `lua/{name}.lua` behind `prelude.lua`.

Those of a classic group, and the one by which time passes in it, stand behind `classic.lua` too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from siltlog.infra import names
from siltlog.infra.errors import problem

if TYPE_CHECKING:
    from siltlog.infra.redis.connection import RedisConnection, Script

TRANSITIONS = (
    "heartbeat",
    "leave",
    "commit",
    "sweep",
    "inputs",
    "assign",
    "describe",
    "delete",
    "forget",
    "forget_offsets",
    "offsets",
    "attempts",
    "unsaved",
    "saved",
    "restore",
    "classic_join",
    "classic_sync",
    "classic_beat",
    "classic_leave",
)
_OF_CLASSIC_GROUPS = ("describe", "sweep", "classic_join", "classic_sync", "classic_beat", "classic_leave")
_FOLDER = Path(__file__).parent / "lua"
LISTED_IN_PROBLEM_MAX = 10
_REFUSALS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "unknown_member": (
        "unknown_member",
        "the group {group} has no member {member}: drop everything and join anew with generation 0",
        {},
    ),
    "other_principal": (
        "forbidden",
        "the member {member} of the group {group}, or the one whose instance_id it gives, is another principal's: join "
        "under an id of your own, or be allowed to alter the group",
        {},
    ),
    "fenced_member": (
        "fenced_member",
        "the member {member} of the group {group} left, was expired or was fenced: drop everything and join anew under "
        "a new id",
        {},
    ),
    "fenced_instance": (
        "fenced_member",
        "another member joined the group {group} with the instance_id of {member} and has its partitions: drop "
        "everything, and do not join anew unless no other process runs under that instance_id",
        {"fenced_by": "instance_id"},
    ),
    "other_instance": (
        "invalid_request",
        "instance_id: the member {member} of the group {group} joined with another or without one; a member keeps it "
        "for life: join under a new member id",
        {},
    ),
    "classic": (
        "group_not_empty",
        "the group {group} has members that share out its partitions among themselves, as clients of Kafka do: stop "
        "them first, or take another name for the group",
        {},
    ),
    "illegal_generation": (
        "fenced_member",
        "the members of the group {group} have shared out its partitions anew: nothing was committed; {member} is to "
        "join again",
        {"fenced_by": "generation"},
    ),
    "rebalance_in_progress": (
        "fenced_member",
        "the members of the group {group} are about to share out its partitions anew: nothing was committed; {member} "
        "is to hear what it has first",
        {"fenced_by": "rebalance"},
    ),
    "foreign": (
        "group_not_empty",
        "the group {group} has members that read another log, whose server uses the same Redis: take another name for "
        "the group, or give each log a Redis of its own",
        {},
    ),
}
"""What scripts refuse: the error, its sentence, and its members."""

Reply = dict[str, Any]
"""The answer of a script: its own members and those that `finish` of the prelude adds."""


class Key(NamedTuple):
    """A partition as the scripts name it. It carries the topic's id: a successor of the same name is another topic."""

    topic: str
    topic_id: str
    partition: int

    def text(self) -> str:
        return f"{self.topic}/{self.topic_id}/{self.partition}"

    def topic_text(self) -> str:
        """Names the topic as the scripts do."""
        return f"{self.topic}/{self.topic_id}"

    @classmethod
    def parse(cls, text: str) -> "Key":
        topic, topic_id, partition = text.split("/")
        return cls(topic, topic_id, int(partition))


def script_text(transition: str) -> str:
    """The Lua text of a transition."""
    before = ("prelude", "classic") if transition in _OF_CLASSIC_GROUPS else ("prelude",)
    return "".join((_FOLDER / f"{name}.lua").read_text("utf-8") for name in (*before, transition))


class RestoredMark:
    """Says in Redis that all groups were restored since it was emptied, or became another process, which may have come
    back with older files."""

    def __init__(self, redis: "RedisConnection", cluster_id: str) -> None:
        self._redis = redis
        self._key = names.restored_key(cluster_id)
        self._script = redis.script((_FOLDER / "restored.lua").read_text("utf-8"))

    async def read(self) -> tuple[int, str]:
        """The epoch of the keeper that has restored them, -1 for nobody; and the process of Redis."""
        reply = await self._script([self._key], {})
        return int(reply["epoch"]), reply["run_id"]

    async def write(self, epoch: int, run_id: str) -> None:
        await self._redis.command("HSET", self._key, "epoch", epoch, "run_id", run_id)


class GroupScripts:
    def __init__(self, redis: "RedisConnection") -> None:
        self._scripts: dict[str, Script] = {name: redis.script(script_text(name)) for name in TRANSITIONS}

    async def run(self, transition: str, group: str, request: Mapping[str, Any]) -> Reply:
        """One transition of `group`, atomic, in one round trip. Raises Unavailable without Redis."""
        keys = [names.group_key(group, part) for part in names.GROUP_PARTS]
        reply: Reply = await self._scripts[transition](keys, request)
        return reply


def raise_for(reply: Reply, group: str, member: str) -> None:
    """Raises what a script has refused to a member."""
    status = reply["status"]
    if status in _REFUSALS:
        code, sentence, members = _REFUSALS[status]
        raise problem(code, sentence.format(group=group, member=member), **members)
    if status == "fenced_commits":
        keys = keys_of(reply["partitions"])
        raise problem(
            "fenced_member",
            f"the member {member} of the group {group} does not hold {listed(keys)} "
            "in that generation: nothing was committed; drop these partitions",
            partitions=[{"topic": key.topic, "partition": key.partition} for key in keys],
        )


def keys_of(texts: Sequence[str]) -> list[Key]:
    return sorted(Key.parse(text) for text in texts)


def listed(keys: Sequence[Key]) -> str:
    """Names partitions, the first of them where they are many."""
    shown = ", ".join(f"{key.topic}/{key.partition}" for key in keys[:LISTED_IN_PROBLEM_MAX])
    return shown + (" ..." if len(keys) > LISTED_IN_PROBLEM_MAX else "")
