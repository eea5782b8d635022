"""The state of consumer groups in memory: the transitions that are Lua scripts in Redis, one method each.

`MemoryRedis` stands where the server has its Redis, so the groups themselves are the server's own. What is about a
Redis that restarts, or that several logs share, has no meaning here. A partition is one string, as in the scripts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from siltlog.consumers.groups.scripts import TRANSITIONS, Key, Reply, script_text
from siltlog.infra import names
from siltlog.infra.clock import Clock

REFUSED_MS = 86_400_000
"""How long a member that is gone is refused."""
DECIDE = ("topics", "topic_pattern", "principal", "principal_groups")
"""Fields of a member by which partitions are assigned."""
SUSPECT, GUILTY = 1, 2
"""A record that was counted because it may have ended its consumer; one that is known to have."""


@dataclass
class Part:
    """A partition that a member holds: since which generation, and in which it was revoked (0: it was not)."""

    since: int
    revoked: int = 0


@dataclass
class Held:
    changed: int = 0
    """The generation in which what the member may read last changed."""
    parts: dict[str, Part] = field(default_factory=dict)


@dataclass
class Open:
    """A record with an attempt, that the group has not passed."""

    offset: int
    member: str
    attempts: int = 0
    suspicion: int = 0


@dataclass
class Attempts:
    """`to`: below it records were handed out."""

    to: int = 0
    open: list[Open] = field(default_factory=list)


@dataclass
class Committed:
    offset: int
    metadata: str
    at_ms: int


class MemoryGroup:
    """One group. Every method that takes a request is one transition, between `begin` and `finish`."""

    def __init__(self) -> None:
        self.generation = 0
        self.revision = 0
        self.stale = False
        self.exists = False
        self.members: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, int] = {}
        self.held: dict[str, Held] = {}
        self.owners: dict[str, str] = {}
        self.moves: dict[str, str] = {}
        self.revoked: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        self.offsets: dict[str, Committed] = {}
        self.refused: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self.attempts_at: dict[str, Attempts] = {}
        self._now_ms = 0
        self._before = 0
        self._created = False
        self._changed: set[str] = set()
        self._evicted: dict[str, int] = {}

    def begin(self, now_ms: int) -> None:
        self._now_ms, self._before = now_ms, self.generation
        self._created, self._changed = False, set()
        self._evicted = {"session": 0, "rebalance": 0, "instance": 0}
        self._expire()

    def finish(self, reply: Reply) -> Reply:
        for member in self._changed & self.held.keys():
            self.held[member].changed = self.generation
        due = min([*self.sessions.values(), *self.revoked.values()], default=None)
        return reply | {
            "generation_before": self._before,
            "generation": self.generation,
            "changed": sorted(self._changed),
            "exists": self.exists,
            "created": self._created,
            "holding": False,
            "plan": self.stale,
            "due_ms": -1 if due is None else max(due - self._now_ms, 0),
            "member_count": len(self.sessions),
            "evicted": self._evicted,
            "unsaved": False,
            "urgent": False,
        }

    def heartbeat(self, request: Mapping[str, Any]) -> Reply:
        member_id, sent = request["member"], request["generation"]
        if member_id in self.refused:
            return {"status": self.refused[member_id]}
        member = self.members.get(member_id)
        if member is None and "join" not in request:
            return {"status": "unknown_member"}
        replaced = None if member is not None else self.instances.get(request["join"]["instance_id"])
        if self._is_anothers(replaced or member_id, request):
            return {"status": "other_principal"}
        if member is not None and request.get("instance_id") not in (None, member["instance_id"]):
            return {"status": "other_instance"}
        if "commits" in request:
            fenced = self._fenced(member_id, sent, request["commits"])
            if fenced:
                return {"status": "fenced_commits", "partitions": fenced}
            self._put_offsets(request["commits"])
        joined = member is None
        if member is None:
            member = self._join(member_id, request["join"])
        delayed, ahead = sent < member["seen"], sent > self._before
        if not delayed:
            self._renew(member_id, member, sent, self._fields(member, request))
        if ahead:
            self._change(member_id)
        elif not delayed and ("owned" in request or request["poll"]):
            self._release(member_id, sent, set(request.get("owned", ())))
        whole = request["poll"] or joined or ahead or delayed
        return self._told(member_id, member, whole or sent < self.held[member_id].changed)

    def _told(self, member_id: str, member: Mapping[str, Any], whole: bool) -> Reply:
        held = self.held[member_id].parts
        reply = {
            "status": "ok",
            "releasing": any(part.revoked for part in held.values()),
            "auto_offset_reset": member["auto_offset_reset"],
            "session_timeout_ms": member["session_timeout_ms"],
        }
        if whole or member_id in self._changed:
            read = [partition for partition, part in held.items() if not part.revoked]
            reply["assignment"] = [(partition, self._offset(partition)) for partition in read]
            told = [(partition, self._attempts(partition).to) for partition in read]
            reply["delivered"] = [(partition, to) for partition, to in told if to > 0]
        return reply

    def _join(self, member_id: str, joining: Mapping[str, Any]) -> dict[str, Any]:
        self._create()
        member = self.members[member_id] = {**joining, "seen": 0}
        self.held[member_id] = Held()
        self._change(member_id)
        instance = member["instance_id"]
        former = self.instances.get(instance) if instance else None
        if instance:
            self.instances[instance] = member_id
        if former is None:
            self._outdate()
        else:
            self._take_over(former, member_id, member)
        return member

    def _take_over(self, former: str, member_id: str, joining: Mapping[str, Any]) -> None:
        """A new member of an instance that has one is in its place: what it holds goes over."""
        was, parts = self.members[former], self.held[former].parts
        self._forget(former, "fenced_instance")
        self._evicted["instance"] = 1
        for partition, part in parts.items():
            if part.revoked:
                del self.owners[partition]
                self.revoked.pop(partition, None)
            else:
                self.owners[partition] = member_id
                self.held[member_id].parts[partition] = Part(self.generation)
        for partition, target in self.moves.items():
            if target == former:
                self.moves[partition] = member_id
        if all(was.get(name) == joining.get(name) for name in DECIDE):
            self.revision += 1
        else:
            self._outdate()
        self._settle()

    def _renew(self, member_id: str, member: dict[str, Any], sent: int, fields: Mapping[str, Any]) -> None:
        if member["seen"] < sent <= self._before:
            member["seen"] = sent
        if any(member.get(name) != fields[name] for name in DECIDE if name in fields):
            self._outdate()
        member |= fields
        self.sessions[member_id] = self._now_ms + member["session_timeout_ms"]

    def _release(self, member_id: str, sent: int, owned: set[str]) -> None:
        parts = self.held[member_id].parts
        released = [at for at, part in parts.items() if 0 < part.revoked <= sent and at not in owned]
        for partition in released:
            del parts[partition]
            del self.owners[partition]
            self.revoked.pop(partition, None)
        if released:
            self._settle()

    @staticmethod
    def _fields(member: Mapping[str, Any], request: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was sent, and whose the member is, where it is nobody's yet or the sender's."""
        if request.get("principal") is None or member.get("principal", "") not in ("", request["principal"]):
            return dict(request["fields"])
        return {**request["fields"], **{name: request[name] for name in ("principal", "principal_groups")}}

    def _is_anothers(self, member_id: str, request: Mapping[str, Any]) -> bool:
        if request.get("principal") is None or request["for_others"]:
            return False
        return self.members.get(member_id, {}).get("principal", "") not in ("", request["principal"])

    def leave(self, request: Mapping[str, Any]) -> Reply:
        if self._is_anothers(request["member"], request):
            return {"status": "other_principal"}
        if request["member"] in self.members:
            self._remove(request["member"])
            self._settle()
        elif self.exists:
            self.refused[request["member"]] = "fenced_member"
        return {"status": "ok"}

    def commit(self, request: Mapping[str, Any]) -> Reply:
        if "member" in request:
            if self._is_anothers(request["member"], request):
                return {"status": "other_principal"}
            fenced = self._fenced(request["member"], request["generation"], request["commits"])
            if fenced:
                return {"status": "fenced_commits", "partitions": fenced}
        elif self.sessions:
            return {"status": "group_not_empty"}
        self._create()
        self._put_offsets(request["commits"])
        return {"status": "ok"}

    def sweep(self, request: Mapping[str, Any]) -> Reply:
        return {"status": "ok"}

    def inputs(self, request: Mapping[str, Any]) -> Reply:
        meant = {partition: target for partition, target in self.moves.items() if target in self.members}
        return {
            "status": "ok",
            "revision": self.revision,
            "members": [
                (member_id, it["topics"], it["topic_pattern"], it.get("principal", ""), it.get("principal_groups", ""))
                for member_id, it in self.members.items()
            ],
            "current": list((self.owners | meant).items()),
            "unresolved": [partition for partition in self.owners if partition not in self.offsets],
        }

    def assign(self, request: Mapping[str, Any]) -> Reply:
        if request["revision"] != self.revision:
            return {"status": "outdated"}
        for topic, partitions in request["topics"]:
            self.topics.setdefault(topic, partitions)
        target: dict[str, str] = dict(request["target"])
        self.moves = {partition: to for partition, to in self.moves.items() if target.get(partition) == to}
        for partition, owner in list(self.owners.items()):
            part = self.held[owner].parts[partition]
            if target.get(partition) != owner:
                self.moves[partition] = target.get(partition, "")
                if not part.revoked:
                    self._change(owner)
                    part.revoked = self.generation
                    self.revoked[partition] = self._now_ms + self.members[owner]["rebalance_timeout_ms"]
            elif part.revoked:
                part.revoked = 0
                self.revoked.pop(partition, None)
                self.moves.pop(partition, None)
                self._change(owner)
        for partition, member in target.items():
            if partition not in self.owners:
                self._grant(partition, member)
        self._reset(request["bounds"])
        self.stale = False
        self.revision += 1
        return {"status": "ok"}

    def _reset(self, bounds: Sequence[tuple[str, str, int, int, int]]) -> None:
        """The reset policy, applied once; partitions that a topic gained later are read from their beginning."""
        for partition, topic, number, earliest, latest in bounds:
            owner = self.owners.get(partition)
            if partition in self.offsets or owner is None:
                continue
            policy = self.members[owner]["auto_offset_reset"]
            if number >= self.topics[topic]:
                self._put_offset(partition, 0, "")
            elif policy != "error":
                self._put_offset(partition, latest if policy == "latest" else earliest, "")
            else:
                continue
            self._change(owner)

    def attempts(self, request: Mapping[str, Any]) -> Reply:
        partition, offset, member = request["partition"], request["offset"], request["member"]
        if self._is_anothers(member, request):
            return {"status": "other_principal"}
        fenced = self._fenced(member, request["generation"], [(partition,)])
        if fenced:
            return {"status": "fenced_commits", "partitions": fenced}
        committed, known = self._offset(partition), self._attempts(partition)
        lower = [entry.offset for entry in known.open if entry.offset < offset and entry.member == member]
        found = next((entry for entry in known.open if entry.offset == offset), None)
        spent = False
        if request["count"] and offset >= committed:
            suspect_max = request.get("suspect_max")
            if found is None:
                if len(known.open) >= request["open_max"]:
                    return {"status": "too_many"}
                found = Open(offset, member, suspicion=0 if suspect_max is None else SUSPECT)
                known.open.append(found)
            if suspect_max is not None:
                # Whoever counted it as a suspect has ended as well: it ended the one before, who did not count it.
                if found.suspicion == SUSPECT and found.member != member:
                    found.attempts, found.suspicion = found.attempts + 1, GUILTY
                spent = found.attempts >= suspect_max
            found.member = member
            found.attempts += not spent
            self._keep(partition, known)
        attempts = 0 if found is None else found.attempts
        return {"status": "ok", "attempts": attempts, "spent": spent, "committed": committed, "lower": lower}

    def describe(self, request: Mapping[str, Any]) -> Reply:
        if not self.exists:
            return {"status": "unknown_group"}
        state = "rebalancing" if self.stale or self.moves else "stable"
        columns = ("client_id", "topics", "topic_pattern", "auto_offset_reset")
        return {
            "status": "ok",
            "state": state if self.members else "empty",
            "members": [
                (member_id, *(it[name] for name in columns), list(self.held[member_id].parts), it["instance_id"])
                for member_id, it in self.members.items()
            ],
            "moving": list(self.moves.items()),
            "offsets": [(partition, it.offset, it.metadata, it.at_ms) for partition, it in self.offsets.items()],
        }

    def forget(self, request: Mapping[str, Any]) -> Reply:
        """Drops what was committed in topics that are gone."""
        gone = set(request["topics"])
        self.offsets = {partition: it for partition, it in self.offsets.items() if _topic(partition) not in gone}
        self.attempts_at = {at: known for at, known in self.attempts_at.items() if _topic(at) not in gone}
        self.topics = {topic: count for topic, count in self.topics.items() if topic not in gone}
        return {"status": "ok"}

    def delete(self, request: Mapping[str, Any]) -> Reply:
        if not self.exists:
            return {"status": "unknown_group"}
        if self.sessions:
            return {"status": "group_not_empty"}
        return {"status": "ok"}

    def successor(self) -> "MemoryGroup":
        """The rest of a group that was deleted: its generation and revision, and who is refused."""
        left = MemoryGroup()
        left.generation, left.revision, left.refused = self.generation, self.revision, self.refused
        return left

    def _create(self) -> None:
        self._created |= not self.exists
        self.exists = True

    def _outdate(self) -> None:
        """Notes that what the assignment is computed from has changed."""
        self.stale = True
        self.revision += 1

    def _raise_generation(self) -> None:
        if self.generation == self._before:
            self.generation = max(self._before + 1, self._now_ms)

    def _change(self, member_id: str) -> None:
        """Notes that what the member may read has changed, in this generation."""
        self._raise_generation()
        self._changed.add(member_id)

    def _grant(self, partition: str, member_id: str) -> None:
        self.owners[partition] = member_id
        self.moves.pop(partition, None)
        self._change(member_id)
        self.held[member_id].parts[partition] = Part(self.generation)

    def _forget(self, member_id: str, refusal: str) -> None:
        del self.held[member_id], self.members[member_id]
        self.sessions.pop(member_id, None)
        self.refused[member_id] = refusal
        self._change(member_id)

    def _remove(self, member_id: str) -> None:
        """The member is gone, and its id with it."""
        for partition in self.held[member_id].parts:
            del self.owners[partition]
            self.revoked.pop(partition, None)
        instance = self.members[member_id]["instance_id"]
        if instance and self.instances.get(instance) == member_id:
            del self.instances[instance]
        self._forget(member_id, "fenced_member")
        self._outdate()
        if not self.sessions:
            self.moves.clear()
            self.stale = False

    def _settle(self) -> None:
        """Partitions that were let go reach the members they were meant for."""
        for partition, target in list(self.moves.items()):
            if partition in self.owners:
                continue
            if target == "":
                del self.moves[partition]
            elif target in self.members:
                self._grant(partition, target)

    def _expire(self) -> None:
        """Sessions, and the patience with those that do not let go, run out."""
        due = False
        for member_id in [it for it, until in self.sessions.items() if until <= self._now_ms]:
            self._remove(member_id)
            self._evicted["session"] += 1
            due = True
        for partition in [it for it, until in self.revoked.items() if until <= self._now_ms]:
            if partition in self.owners:
                self._remove(self.owners[partition])
                self._evicted["rebalance"] += 1
                due = True
        if due:
            self._settle()

    def _offset(self, partition: str) -> int:
        found = self.offsets.get(partition)
        return -1 if found is None else found.offset

    def _fenced(self, member_id: str, sent: int, commits: Sequence[Sequence[Any]]) -> list[str]:
        """The commit rule: the partitions of `commits` that the member may not commit at generation `sent`."""
        parts = self.held.get(member_id, Held()).parts
        return [
            commit[0]
            for commit in commits
            if commit[0] not in parts or parts[commit[0]].since > sent or sent > self._before
        ]

    def _put_offsets(self, commits: Sequence[Sequence[Any]]) -> None:
        for partition, offset, metadata, *delivered in commits:
            self._put_offset(partition, offset, metadata, *delivered)

    def _put_offset(self, partition: str, offset: int, metadata: str, delivered: int | None = None) -> None:
        before = self._offset(partition)
        known = Attempts() if offset < before else self._attempts(partition)
        to = known.to if delivered is None else delivered
        passed = Attempts(to if to > offset else 0, [entry for entry in known.open if entry.offset >= offset])
        self._keep(partition, passed)
        self.offsets[partition] = Committed(offset, metadata, self._now_ms)

    def _attempts(self, partition: str) -> Attempts:
        return self.attempts_at.get(partition, Attempts())

    def _keep(self, partition: str, known: Attempts) -> None:
        if known.to == 0 and not known.open:
            self.attempts_at.pop(partition, None)
        else:
            self.attempts_at[partition] = known


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
            return any(names.group_key(name, "state") == arguments[1] and it.exists for name, it in self.groups.items())
        return None


class MemoryScript:
    """One transition, called as a script is."""

    def __init__(self, redis: MemoryRedis, name: str) -> None:
        self._redis = redis
        self._name = name

    async def __call__(self, keys: Sequence[str], request: Mapping[str, Any]) -> Reply:
        # A key has the group's name as its hash tag.
        return self._redis.transition(self._name, keys[0].partition("{")[2].partition("}")[0], request)


def _topic(partition: str) -> str:
    return Key.parse(partition).topic_text()
