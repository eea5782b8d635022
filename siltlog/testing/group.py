"""The state of consumer groups in memory: the transitions that are Lua scripts in Redis, one method each.

What is about a Redis that restarts, or that several logs share, has no meaning here. A partition is one string, as in
the scripts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from siltlog.consumers.groups.scripts import Reply
from siltlog.testing.holdings import Holdings
from siltlog.testing.progress import GroupProgress

DECIDE = ("topics", "topic_pattern", "principal", "principal_groups")
"""Fields of a member by which partitions are assigned."""


class MemoryGroup:
    """One group. Every method that takes a request is one transition, between `begin` and `finish`."""

    def __init__(self) -> None:
        self.generation = 0
        self.revision = 0
        self.stale = False
        self.exists = False
        self.members: dict[str, dict[str, Any]] = {}
        self.sessions: dict[str, int] = {}
        self.holdings = Holdings(self._change)
        self.topics: dict[str, int] = {}
        self.progress = GroupProgress()
        self.refused: dict[str, str] = {}
        self.instances: dict[str, str] = {}
        self._rebalanced_ms = 0
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
        self.holdings.changed_in(self.generation, self._changed)
        due = min([*self.sessions.values(), *self.holdings.revoked.values()], default=None)
        return reply | {
            "generation_before": self._before,
            "generation": self.generation,
            "changed": sorted(self._changed),
            "exists": self.exists,
            "created": self._created,
            "classic": False,
            "holding": False,
            "plan": self.stale,
            "due_ms": -1 if due is None else max(due - self._now_ms, 0),
            "member_count": len(self.sessions),
            "evicted": self._evicted,
            "unsaved": False,
            "urgent": False,
            "keeper": "",
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
            fenced = self.holdings.fenced(member_id, sent, self._before, request["commits"])
            if fenced:
                return {"status": "fenced_commits", "partitions": fenced}
            self.progress.commit(request["commits"], self._now_ms)
        joined = member is None
        if member is None:
            member = self._join(member_id, request["join"])
        delayed, ahead = sent < member["seen"], sent > self._before
        if not delayed:
            self._renew(member_id, member, sent, self._fields(member, request))
        if ahead:
            self._change(member_id)
        elif not delayed and ("owned" in request or request["poll"]):
            self.holdings.release(member_id, sent, set(request.get("owned", ())))
        whole = request["poll"] or joined or ahead or delayed
        return self._told(member_id, member, whole or sent < self.holdings.by_member[member_id].changed)

    def _told(self, member_id: str, member: Mapping[str, Any], whole: bool) -> Reply:
        held = self.holdings.by_member[member_id].parts
        reply = {
            "status": "ok",
            "releasing": any(part.revoked for part in held.values()),
            "auto_offset_reset": member["auto_offset_reset"],
            "session_timeout_ms": member["session_timeout_ms"],
        }
        if whole or member_id in self._changed:
            read = [partition for partition, part in held.items() if not part.revoked]
            reply["assignment"] = [(partition, self.progress.offset(partition)) for partition in read]
            told = [(partition, self.progress.handed_out_to(partition)) for partition in read]
            reply["delivered"] = [(partition, to) for partition, to in told if to > 0]
            rests = [(partition, self.progress.resting_ms(partition, self._now_ms)) for partition in read]
            reply["resting"] = [(partition, rest_ms) for partition, rest_ms in rests if rest_ms > 0]
        return reply

    def _join(self, member_id: str, joining: Mapping[str, Any]) -> dict[str, Any]:
        self._create()
        member = self.members[member_id] = {**joining, "seen": 0, "joined_ms": self._now_ms}
        self.holdings.join(member_id)
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
        was = self.members[former]
        self._forget(former, "fenced_instance")
        self._evicted["instance"] = 1
        self.holdings.take_over(former, member_id, self.generation)
        if all(was.get(name) == joining.get(name) for name in DECIDE):
            self.revision += 1
        else:
            self._outdate()
        self.holdings.settle()

    def _renew(self, member_id: str, member: dict[str, Any], sent: int, fields: Mapping[str, Any]) -> None:
        if member["seen"] < sent <= self._before:
            member["seen"] = sent
        if any(member.get(name) != fields[name] for name in DECIDE if name in fields):
            self._outdate()
        member |= fields
        self.sessions[member_id] = self._now_ms + member["session_timeout_ms"]

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
            self.holdings.settle()
        elif self.exists:
            self.refused[request["member"]] = "fenced_member"
        return {"status": "ok"}

    def commit(self, request: Mapping[str, Any]) -> Reply:
        if "member" in request:
            if self._is_anothers(request["member"], request):
                return {"status": "other_principal"}
            fenced = self.holdings.fenced(request["member"], request["generation"], self._before, request["commits"])
            if fenced:
                return {"status": "fenced_commits", "partitions": fenced, "known": request["member"] in self.members}
        elif self.sessions:
            return {"status": "group_not_empty"}
        self._create()
        self.progress.commit(request["commits"], self._now_ms)
        return {"status": "ok"}

    def offsets(self, request: Mapping[str, Any]) -> Reply:
        if "member" in request:
            if request["member"] not in self.members:
                return {"status": "unknown_member"}
            if request["generation"] > self._before:
                return {"status": "fenced_member"}
        asked = request.get("partitions", self.progress.committed)
        found = [(partition, self.progress.committed.get(partition)) for partition in asked]
        rows = [(partition, it.offset, it.metadata, it.at_ms) for partition, it in found if it is not None]
        return {"status": "ok", "offsets": rows}

    def forget_offsets(self, request: Mapping[str, Any]) -> Reply:
        if not self.exists:
            return {"status": "unknown_group"}
        read = {partition.partition("/")[0] for partition in self.holdings.owners}
        read.update(topic for member in self.members.values() for topic in member["topics"].split(","))
        subscribed = [partition for partition in request["partitions"] if partition.partition("/")[0] in read]
        self.progress.forget_partitions(set(request["partitions"]).difference(subscribed))
        return {"status": "ok", "subscribed": subscribed}

    def sweep(self, request: Mapping[str, Any]) -> Reply:
        return {"status": "ok"}

    def inputs(self, request: Mapping[str, Any]) -> Reply:
        return {
            "status": "ok",
            "revision": self.revision,
            "members": [
                (member_id, it["topics"], it["topic_pattern"], it.get("principal", ""), it.get("principal_groups", ""))
                for member_id, it in self.members.items()
            ],
            "current": list(self.holdings.meant().items()),
            "unresolved": [at for at in self.holdings.owners if at not in self.progress.committed],
        }

    def assign(self, request: Mapping[str, Any]) -> Reply:
        if request["revision"] != self.revision:
            return {"status": "outdated"}
        for topic, partitions in request["topics"]:
            self.topics.setdefault(topic, partitions)
        target: dict[str, str] = dict(request["target"])
        self.holdings.assign(target, lambda member: self._now_ms + self.members[member]["rebalance_timeout_ms"])
        self._reset(request["bounds"])
        self.stale = False
        self.revision += 1
        self._rebalanced_ms = self._now_ms
        return {"status": "ok"}

    def _reset(self, bounds: Sequence[tuple[str, str, int, int, int]]) -> None:
        """The reset policy, applied once; partitions that a topic gained later are read from their beginning."""
        for partition, topic, number, earliest, latest in bounds:
            owner = self.holdings.owners.get(partition)
            if partition in self.progress.committed or owner is None:
                continue
            policy = self.members[owner]["auto_offset_reset"]
            if number >= self.topics[topic]:
                offset = 0
            elif policy != "error":
                offset = latest if policy == "latest" else earliest
            else:
                continue
            self.progress.commit([(partition, offset, "")], self._now_ms)
            self._change(owner)

    def attempts(self, request: Mapping[str, Any]) -> Reply:
        if self._is_anothers(request["member"], request):
            return {"status": "other_principal"}
        partition = (request["partition"],)
        fenced = self.holdings.fenced(request["member"], request["generation"], self._before, [partition])
        if fenced:
            return {"status": "fenced_commits", "partitions": fenced}
        return self.progress.attempt(request, self._now_ms)

    def describe(self, request: Mapping[str, Any]) -> Reply:
        if not self.exists:
            return {"status": "unknown_group"}
        state = "rebalancing" if self.stale or self.holdings.moves else "stable"
        columns = ("client_id", "topics", "topic_pattern", "auto_offset_reset")
        return {
            "status": "ok",
            "state": state if self.members else "empty",
            "members": [
                (
                    *(member_id, *(it[name] for name in columns), list(self.holdings.by_member[member_id].parts)),
                    *(it["instance_id"], it["joined_ms"], ""),
                )
                for member_id, it in self.members.items()
            ],
            "moving": list(self.holdings.moves.items()),
            "rebalanced_ms": self._rebalanced_ms,
            "offsets": [
                (partition, it.offset, it.metadata, it.at_ms) for partition, it in self.progress.committed.items()
            ],
        }

    def forget(self, request: Mapping[str, Any]) -> Reply:
        self.progress.forget(request["topics"])
        self.topics = {topic: count for topic, count in self.topics.items() if topic not in request["topics"]}
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
            # A time in whole seconds, as in the scripts.
            self.generation = max(self._before // 1000 + 1, self._now_ms // 1000) * 1000

    def _change(self, member_id: str) -> int:
        """Notes that what the member may read has changed, and gives the generation in which it has."""
        self._raise_generation()
        self._changed.add(member_id)
        return self.generation

    def _forget(self, member_id: str, refusal: str) -> None:
        del self.members[member_id]
        self.sessions.pop(member_id, None)
        self.refused[member_id] = refusal
        self._change(member_id)

    def _remove(self, member_id: str) -> None:
        """The member is gone, and its id with it."""
        self.holdings.drop(member_id)
        instance = self.members[member_id]["instance_id"]
        if instance and self.instances.get(instance) == member_id:
            del self.instances[instance]
        self._forget(member_id, "fenced_member")
        self._outdate()
        if not self.sessions:
            self.stale = False

    def _expire(self) -> None:
        """Sessions, and the patience with those that do not let go, run out."""
        due = False
        for member_id in [it for it, until in self.sessions.items() if until <= self._now_ms]:
            self._remove(member_id)
            self._evicted["session"] += 1
            due = True
        for partition in [it for it, until in self.holdings.revoked.items() if until <= self._now_ms]:
            if partition in self.holdings.owners:
                self._remove(self.holdings.owners[partition])
                self._evicted["rebalance"] += 1
                due = True
        if due:
            self.holdings.settle()
