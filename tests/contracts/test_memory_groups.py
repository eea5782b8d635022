"""The transitions of groups in memory are held to the Lua scripts in a real Valkey: seeded lives, reply by reply.

Generations are milliseconds, so both worlds number them in the order they came up.
"""

import asyncio
import random
from typing import Any

import pytest
from groups_rig import SkewedRedis

from siltlog.consumers.groups.assignment import assign
from siltlog.consumers.groups.scripts import GroupScripts
from siltlog.infra.clock import SystemClock
from siltlog.testing.redis import MemoryRedis

STEPS = 300
OFFSETS = 6
TOPIC_ID = "00000000-0000-0000-0000-000000000001"
TOPICS = {f"t{number}/{TOPIC_ID}": partitions for number, partitions in ((1, 3), (2, 2))}
PARTITIONS = [f"{topic}/{number}" for topic, count in TOPICS.items() for number in range(count)]
SESSION_MS = 20_000
REBALANCE_MS = 30_000
PASS_MS = (4_100, 7_300, 23_000)
START_MS = 1_800_000_000_000
"""When both worlds begin. Time passes in neither by itself: they are asked one after the other."""
SPOKEN = ("heartbeat", "leave", "commit", "attempts")
"""What is said by a principal, where there are any."""
PRINCIPALS = ("key:a", "key:a", "key:a", "key:b")
GENERATIONS = ("generation", "generation_before")
PASSING = ("due_ms", "had", "version")
"""What only hangs on the time, or is told to whoever keeps offsets beside Redis, as the memory has nobody do."""


class SkewedClock(SystemClock):
    skew_ms = 0

    def now_us(self) -> int:
        return (START_MS + self.skew_ms) * 1000


class StillRedis(SkewedRedis):
    """Its time is what was added up alone."""

    def _now(self, line: str) -> str:
        return f"local now = {START_MS}"


class World:
    """One of the two, which hears generations by their number."""

    def __init__(self, redis: Any) -> None:
        self._scripts = GroupScripts(redis)
        self._generations = [0]

    async def run(self, transition: str, request: dict[str, Any]) -> dict[str, Any]:
        """The reply with what is not the same by nature made the same."""
        if "generation" in request:
            number = request["generation"]
            known = self._generations
            request = {**request, "generation": known[number] if number < len(known) else known[-1] + 10**9}
        reply = await self._scripts.run(transition, "g", request)
        for name in GENERATIONS:
            if reply[name] not in self._generations:
                self._generations.append(reply[name])
            reply[name] = self._generations.index(reply[name])
        return {name: comparable(value, name) for name, value in reply.items() if name not in PASSING}


def comparable(value: Any, name: str) -> Any:
    if name == "offsets":
        return sorted([partition, offset, metadata] for partition, offset, metadata, *_ in value)
    if name == "members" and value and len(value[0]) > 5:
        return sorted([*row[:5], sorted(row[5]), row[6], row[7] > 0] for row in value)
    if name == "resting":
        return sorted(partition for partition, _ in value)
    if name in ("rest_ms", "rebalanced_ms"):
        return value > 0
    if isinstance(value, list | tuple):
        return sorted((list(each) if isinstance(each, list | tuple) else each for each in value), key=repr)
    # An empty table of Lua is neither a list nor a map.
    return [] if value == {} else value


class Life:
    """Chooses what happens next by what was answered so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.principals = seed % 2 == 1
        self.generations: dict[str, int] = {}
        self.held: dict[str, list[str]] = {}
        self.counts = dict.fromkeys(TOPICS, 1)

    def step(self) -> tuple[str, dict[str, Any]]:
        transition, request = self.random.choices(
            (
                *(self.join, self.beat, self.leave, self.commit, self.attempt),
                *(self.told, self.offsets, self.forget, self.forget_offsets, self.delete),
            ),
            (8, 30, 3, 12, 40, 5, 4, 0.3, 0.5, 0.5),
        )[0]()
        if self.principals and transition in SPOKEN and self.random.random() < 0.9:
            principal = self.random.choice(PRINCIPALS)
            said = {"principal": principal, "principal_groups": self.random.choice(("[]", "[]", '["ops"]'))}
            request |= {**said, "for_others": self.random.random() < 0.2}
            if "join" in request:
                request["join"] |= said
        return transition, request

    def member(self) -> str:
        return self.random.choice(sorted(self.generations) or ["nobody"])

    def generation(self, member: str) -> int:
        own = self.generations.get(member, 0)
        return self.random.choice((own, own, own, own, max(own - 1, 0), own + 50))

    def holder(self) -> tuple[str, int, str]:
        """A member, a generation and a partition, which mostly belong together."""
        holding = sorted(member for member, held in self.held.items() if held and member in self.generations)
        if not holding or self.random.random() < 0.2:
            member = self.member()
            return member, self.generation(member), self.random.choice(PARTITIONS)
        member = self.random.choice(holding)
        return member, self.generations[member], self.random.choice(self.held[member])

    def heard(self, request: dict[str, Any], reply: dict[str, Any]) -> None:
        """Takes note of the answer to a heartbeat, as a member does."""
        member = request["member"]
        if reply["status"] == "ok":
            self.generations[member] = reply["generation"]
            if "assignment" in reply:
                self.held[member] = [partition for partition, _ in reply["assignment"] or ()]
        elif reply["status"] not in ("fenced_commits", "other_principal"):
            self.generations.pop(member, None)

    def grow(self) -> None:
        topic = self.random.choice(sorted(TOPICS))
        self.counts[topic] = min(self.counts[topic] + 1, TOPICS[topic])

    def join(self) -> tuple[str, dict[str, Any]]:
        member = self.random.choice(("a", "b", "c", "d", f"m{self.random.randrange(1_000)}"))
        instance = self.random.choice(("", "", "one", "two"))
        joining = {
            "instance_id": instance,
            "topics": self.random.choice(("t1", "t2", "t1,t2")),
            "topic_pattern": "",
            "client_id": "",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "auto_offset_reset": self.random.choice(("earliest", "latest", "error")),
        }
        request = {"member": member, "generation": 0, "fields": {}, "poll": False, "join": joining}
        return "heartbeat", request | ({"instance_id": instance} if instance else {})

    def beat(self) -> tuple[str, dict[str, Any]]:
        member = self.member()
        request: dict[str, Any] = {
            "member": member,
            "generation": self.generation(member),
            "fields": self.random.choice(({}, {}, {}, {"topics": "t2"}, {"client_id": "c"})),
            "poll": self.random.random() < 0.2,
        }
        if self.random.random() < 0.6:
            request["owned"] = self.random.sample(PARTITIONS, self.random.randrange(3))
        if request["poll"] and self.random.random() < 0.5:
            request["member"], request["generation"], partition = self.holder()
            request["commits"] = [(partition, self.random.randrange(OFFSETS), "")]
        return "heartbeat", request

    def leave(self) -> tuple[str, dict[str, Any]]:
        return "leave", {"member": self.random.choice((self.member(), "stranger"))}

    def commit(self) -> tuple[str, dict[str, Any]]:
        member, generation, partition = self.holder()
        commits: list[tuple[Any, ...]] = []
        for at in sorted({partition, *self.random.sample(PARTITIONS, self.random.randrange(2))}):
            offset = self.random.randrange(OFFSETS)
            told = self.random.choice(((), (), (offset + self.random.randrange(5),)))
            commits.append((at, offset, "text", *told))
        if self.random.random() < 0.1:
            return "commit", {"commits": commits, "generation": 0}
        return "commit", {"commits": commits, "member": member, "generation": generation}

    def attempt(self) -> tuple[str, dict[str, Any]]:
        member, generation, partition = self.holder()
        request = {
            "member": member,
            "generation": generation,
            "partition": partition,
            "offset": self.random.randrange(OFFSETS),
            "count": self.random.random() < 0.8,
            "open_max": 3,
        }
        kind = self.random.choice(
            ({"suspect_max": 2}, {}, {"backoff_ms": 3_000, "backoff_ms_max": 6_000, "count": True})
        )
        return "attempts", request | kind

    def told(self) -> tuple[str, dict[str, Any]]:
        return "describe", {}

    def forget(self) -> tuple[str, dict[str, Any]]:
        return "forget", {"topics": [self.random.choice(sorted(TOPICS))]}

    def offsets(self) -> tuple[str, dict[str, Any]]:
        request: dict[str, Any] = {}
        if self.random.random() < 0.5:
            request["partitions"] = self.random.sample(PARTITIONS, self.random.randrange(1, 4))
        if self.random.random() < 0.5:
            request["member"] = self.member()
            request["generation"] = self.generation(request["member"])
        return "offsets", request

    def forget_offsets(self) -> tuple[str, dict[str, Any]]:
        return "forget_offsets", {"partitions": self.random.sample(PARTITIONS, 2)}

    def delete(self) -> tuple[str, dict[str, Any]]:
        return "delete", {}


def assignment(inputs: dict[str, Any], counts: dict[str, int]) -> dict[str, Any]:
    """What a planner installs for these inputs."""
    named = {topic.partition("/")[0]: topic for topic in TOPICS}
    current = {(at.rpartition("/")[0], int(at.rpartition("/")[2])): member for at, member in inputs["current"]}
    wanted = {member: [named[name] for name in topics.split(",")] for member, topics, *_ in inputs["members"]}
    target = assign(wanted, counts, current)
    return {
        "revision": inputs["revision"],
        "target": [(f"{topic}/{number}", member) for (topic, number), member in target.items()],
        "topics": list(counts.items()),
        "bounds": [(f"{topic}/{number}", topic, number, 2, OFFSETS) for topic, number in target],
    }


@pytest.mark.parametrize("seed", range(12))
def test_both_answer_the_same_whatever_happens(valkey_url: str, seed: int) -> None:
    async def live() -> None:
        clock = SkewedClock()
        redis = StillRedis(valkey_url)
        await redis.command("FLUSHALL")
        real, memory = World(redis), World(MemoryRedis(clock))
        life = Life(seed)

        async def both(transition: str, request: dict[str, Any]) -> dict[str, Any]:
            expected = await real.run(transition, request)
            assert await memory.run(transition, request) == expected, (transition, request)
            return expected

        try:
            for _ in range(STEPS):
                if life.random.random() < 0.1:
                    passing = life.random.choice(PASS_MS)
                    clock.skew_ms += passing
                    await redis.pass_ms(passing)
                transition, request = life.step()
                reply = await both(transition, request)
                if transition == "heartbeat":
                    life.heard(request, reply)
                if life.random.random() < 0.03:
                    life.grow()
                if reply["plan"]:
                    await both("assign", assignment(await both("inputs", {}), life.counts))
                if life.random.random() < 0.02:
                    await both("assign", assignment({"revision": -1, "members": [], "current": []}, life.counts))
        finally:
            await redis.close()

    asyncio.run(live())
