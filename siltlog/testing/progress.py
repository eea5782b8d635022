"""How far a group is, in memory: what it committed, what was handed out, and the attempts at what it has not passed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from siltlog.consumers.groups.scripts import Reply
from siltlog.consumers.reading.view import Key

SUSPECT, GUILTY = 1, 2
"""A record that was counted because it may have ended its consumer; one that is known to have."""


@dataclass
class Open:
    """A record with an attempt, that the group has not passed."""

    offset: int
    member: str
    attempts: int = 0
    suspicion: int = 0
    rests_until_ms: int = 0
    """Its partition is not delivered before."""


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


class GroupProgress:
    """By partition. Whether a member may commit or count is asked before."""

    def __init__(self) -> None:
        self.committed: dict[str, Committed] = {}
        self._attempts: dict[str, Attempts] = {}

    def offset(self, partition: str) -> int:
        """The committed one; -1 where there is none."""
        found = self.committed.get(partition)
        return -1 if found is None else found.offset

    def handed_out_to(self, partition: str) -> int:
        return self._known(partition).to

    def attempts(self, partition: str, offset: int) -> int:
        """Counts those at one record; 0 once it is passed."""
        return next((entry.attempts for entry in self._known(partition).open if entry.offset == offset), 0)

    def commit(self, commits: Sequence[Sequence[Any]], now_ms: int) -> None:
        for partition, offset, metadata, *delivered in commits:
            known = Attempts() if offset < self.offset(partition) else self._known(partition)
            to = delivered[0] if delivered and delivered[0] is not None else known.to
            passed = [entry for entry in known.open if entry.offset >= offset]
            self._keep(partition, Attempts(to if to > offset else 0, passed))
            self.committed[partition] = Committed(offset, metadata, now_ms)

    def resting_ms(self, partition: str, now_ms: int) -> int:
        """How long it is not delivered yet, as a record of it failed."""
        return max([0, *(entry.rests_until_ms - now_ms for entry in self._known(partition).open)])

    def attempt(self, request: Mapping[str, Any], now_ms: int) -> Reply:
        """Tells the attempts at a record, and counts one more where that is asked for."""
        partition, offset, member = request["partition"], request["offset"], request["member"]
        committed, known = self.offset(partition), self._known(partition)
        lower = [entry.offset for entry in known.open if entry.offset < offset and entry.member == member]
        found = next((entry for entry in known.open if entry.offset == offset), None)
        spent, backoff_ms = False, request.get("backoff_ms")
        rest_ms = max(found.rests_until_ms - now_ms, 0) if found is not None and backoff_ms is not None else 0
        if not rest_ms and request["count"] and offset >= committed:
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
            if backoff_ms is not None:
                rest_ms = min(backoff_ms << (found.attempts - 1), request["backoff_ms_max"])
                found.rests_until_ms = now_ms + rest_ms
            self._keep(partition, known)
        attempts = 0 if found is None else found.attempts
        told = {"status": "ok", "attempts": attempts, "spent": spent, "committed": committed, "lower": lower}
        return {**told, "rest_ms": rest_ms}

    def forget(self, topics: Iterable[str]) -> None:
        """Drops what is known of topics that are gone."""
        gone = set(topics)
        self.committed = {at: it for at, it in self.committed.items() if Key.parse(at).topic_text() not in gone}
        self._attempts = {at: it for at, it in self._attempts.items() if Key.parse(at).topic_text() not in gone}

    def forget_partitions(self, partitions: Iterable[str]) -> None:
        for partition in partitions:
            self.committed.pop(partition, None)
            self._attempts.pop(partition, None)

    def _known(self, partition: str) -> Attempts:
        return self._attempts.get(partition, Attempts())

    def _keep(self, partition: str, known: Attempts) -> None:
        if known.to == 0 and not known.open:
            self._attempts.pop(partition, None)
        else:
            self._attempts[partition] = known
