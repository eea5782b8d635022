"""Holds in memory who has which partition of a group, and who is to have those that are on the move."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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


class Holdings:
    """Each partition has one holder at most, and one that is meant for another stays until its holder lets it go."""

    def __init__(self, change: Callable[[str], int]) -> None:
        """`change(member)` notes that what the member may read changes, and gives the generation in which it does."""
        self.by_member: dict[str, Held] = {}
        self.owners: dict[str, str] = {}
        self.moves: dict[str, str] = {}
        """Whom a partition is meant for that another still holds; nobody where it is empty."""
        self.revoked: dict[str, int] = {}
        """Until when holders have time to let go."""
        self._change = change

    def join(self, member: str) -> None:
        self.by_member[member] = Held()

    def take_over(self, former: str, member: str, generation: int) -> None:
        """What `former` holds goes over to a member in its place; what it was to let go of is free."""
        for partition, part in self.by_member.pop(former).parts.items():
            if part.revoked:
                self._free(partition)
            else:
                self.owners[partition] = member
                self.by_member[member].parts[partition] = Part(generation)
        for partition, target in self.moves.items():
            if target == former:
                self.moves[partition] = member

    def drop(self, member: str) -> None:
        """The member is gone: what it holds is free."""
        for partition in self.by_member.pop(member).parts:
            self._free(partition)
        if not self.by_member:
            self.moves.clear()

    def release(self, member: str, sent: int, owned: Collection[str]) -> None:
        """The member, which knows generation `sent`, has let go of what was revoked by then and is not in `owned`."""
        parts = self.by_member[member].parts
        released = [at for at, part in parts.items() if 0 < part.revoked <= sent and at not in owned]
        for partition in released:
            del parts[partition]
            self._free(partition)
        if released:
            self.settle()

    def assign(self, target: Mapping[str, str], patience_until: Callable[[str], int]) -> None:
        """Gives what is free to whom it is meant for, and revokes what others hold; `patience_until(member)` is until
        when a holder has time to let go."""
        self.moves = {partition: to for partition, to in self.moves.items() if target.get(partition) == to}
        for partition, owner in list(self.owners.items()):
            part = self.by_member[owner].parts[partition]
            if target.get(partition) != owner:
                self.moves[partition] = target.get(partition, "")
                if not part.revoked:
                    part.revoked = self._change(owner)
                    self.revoked[partition] = patience_until(owner)
            elif part.revoked:
                part.revoked = 0
                self.revoked.pop(partition, None)
                self.moves.pop(partition, None)
                self._change(owner)
        for partition, member in target.items():
            if partition not in self.owners:
                self._grant(partition, member)

    def settle(self) -> None:
        """Partitions that were let go reach the members they were meant for."""
        for partition, target in list(self.moves.items()):
            if partition in self.owners:
                continue
            if target == "":
                del self.moves[partition]
            elif target in self.by_member:
                self._grant(partition, target)

    def changed_in(self, generation: int, members: Collection[str]) -> None:
        """What these members may read, those who are left of them, has changed in that generation."""
        for member in self.by_member.keys() & members:
            self.by_member[member].changed = generation

    def meant(self) -> Mapping[str, str]:
        """By partition, who has it or is to have it next."""
        return self.owners | {at: target for at, target in self.moves.items() if target in self.by_member}

    def fenced(self, member: str, sent: int, newest: int, commits: Sequence[Sequence[Any]]) -> list[str]:
        """The commit rule: the partitions of `commits` that the member may not commit at generation `sent`."""
        parts = self.by_member.get(member, Held()).parts
        return [
            commit[0] for commit in commits if commit[0] not in parts or parts[commit[0]].since > sent or sent > newest
        ]

    def _grant(self, partition: str, member: str) -> None:
        self.owners[partition] = member
        self.moves.pop(partition, None)
        self.by_member[member].parts[partition] = Part(self._change(member))

    def _free(self, partition: str) -> None:
        del self.owners[partition]
        self.revoked.pop(partition, None)
