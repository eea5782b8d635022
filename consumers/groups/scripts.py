"""The transitions of a group: one Lua script each, `consumers/scripts/{name}.lua` behind `prelude.lua`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from siltlog.infra import names

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
    "attempts",
    "unsaved",
    "saved",
    "restore",
)
_FOLDER = Path(__file__).parent / "lua"

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
    return "".join((_FOLDER / f"{name}.lua").read_text("utf-8") for name in ("prelude", transition))


class GroupScripts:
    def __init__(self, redis: "RedisConnection") -> None:
        self._scripts: dict[str, Script] = {name: redis.script(script_text(name)) for name in TRANSITIONS}

    async def run(self, transition: str, group: str, request: Mapping[str, Any]) -> Reply:
        """One transition of `group`, atomic, in one round trip. Raises Unavailable without Redis."""
        keys = [names.group_key(group, part) for part in names.GROUP_PARTS]
        reply: Reply = await self._scripts[transition](keys, request)
        return reply
