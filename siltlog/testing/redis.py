"""What stands where the server has its Redis: the groups themselves are the server's own."""

from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.consumers.groups.scripts import TRANSITIONS, Reply, script_text
from siltlog.infra.clock import Clock
from siltlog.infra.redis.keys import group_key
from siltlog.testing.group import MemoryGroup


class MemoryRedis:
    """Stands for a `RedisConnection`, as much as groups ask of one, without a Redis."""

    place = "memory"
    is_cluster = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transitions = {script_text(name): name for name in TRANSITIONS}
        self.groups: dict[str, MemoryGroup] = {}

    def script(self, text: str) -> "MemoryScript":
        return MemoryScript(self, self._transitions[text])

    def transition(self, name: str, group: str, request: Mapping[str, Any]) -> Reply:
        state = self.groups.setdefault(group, MemoryGroup())
        state.begin(self._clock.now_us() // 1000)
        reply = state.finish(getattr(state, name)(request))
        if name == "delete" and reply["status"] == "ok":
            self.groups[group] = state.successor()
        return reply

    async def command(self, *arguments: str | bytes | int) -> Any:
        """Answers what the list of groups is asked: every group that exists is in it."""
        if arguments[0] == "ZRANGEBYLEX":
            after = str(arguments[2]).removeprefix("(").removeprefix("-")
            return [name.encode() for name, group in sorted(self.groups.items()) if group.exists and name > after]
        if arguments[0] == "HEXISTS":
            return any(group_key(name, "state") == arguments[1] and it.exists for name, it in self.groups.items())
        return None


class MemoryScript:
    """One transition, called as a script is."""

    def __init__(self, redis: MemoryRedis, name: str) -> None:
        self._redis = redis
        self._name = name

    async def __call__(self, keys: Sequence[str], request: Mapping[str, Any]) -> Reply:
        # A key has the group's name as its hash tag.
        return self._redis.transition(self._name, keys[0].partition("{")[2].partition("}")[0], request)
