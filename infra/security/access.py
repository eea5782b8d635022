"""Decides who may do what: entries, roles, and the one decision that both make. Pure.

Nothing is allowed that was not granted. A matching entry that denies wins over any that allows, and over roles.
`LOCAL`, who owns the machine, may do everything: a mistake in the entries can be mended from there.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from siltlog.infra import names

Kind = Literal["topic", "group", "cluster"]
Right = Literal["read", "write", "create", "alter", "delete", "describe", "admin"]
Pattern = Literal["literal", "prefix"]
Effect = Literal["allow", "deny"]
Role = Literal["admin", "operator", "producer", "consumer", "viewer"]

RIGHTS: Mapping[Kind, frozenset[Right]] = {
    "topic": frozenset({"read", "write", "create", "alter", "delete", "describe"}),
    "group": frozenset({"read", "alter", "delete", "describe"}),
    "cluster": frozenset({"describe", "write", "alter", "admin"}),
}
IMPLY_DESCRIBE: frozenset[Right] = frozenset({"read", "write", "alter", "delete", "admin"})
"""Whoever is allowed one of them may see what it is of."""
ROLES: Mapping[Role, Mapping[Kind, frozenset[Right]]] = {
    "admin": RIGHTS,
    "operator": {
        "topic": frozenset({"describe", "create", "alter", "delete"}),
        "group": frozenset({"describe", "alter", "delete"}),
        "cluster": frozenset({"describe", "write", "alter"}),
    },
    "producer": {"topic": frozenset({"write"})},
    "consumer": {"topic": frozenset({"read"}), "group": frozenset({"read"})},
    "viewer": {
        "topic": frozenset({"describe"}),
        "group": frozenset({"describe"}),
        "cluster": frozenset({"describe"}),
    },
}
LOCAL = "local"
EVERYBODY = "*"
"""Any caller who said who he is."""
GROUP_PREFIX = "group:"
"""Begins the principal that stands for all who have a group in their token."""
CLUSTER = "cluster"
"""The name of the one resource of its kind."""
_SYSTEM = "_"
"""Begins the names that a prefix does not match: a right to everything would be one to the audit log."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Allows or denies a principal some rights to what its name or prefix matches."""

    principal: str
    kind: Kind
    name: str
    operations: tuple[Right, ...]
    pattern: Pattern = "literal"
    effect: Effect = "allow"

    def names(self, kind: Kind, name: str) -> bool:
        return self.kind == kind and matches(self.pattern, self.name, name)


class Binding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Gives a principal a role, for all names or for those of a prefix.

    A role that is for a prefix gives no right to the cluster, and `admin` for all names reaches system topics too.
    """

    principal: str
    role: Role
    prefix: str = ""

    def gives(self, kind: Kind, name: str) -> frozenset[Right]:
        given = ROLES[self.role].get(kind, frozenset())
        if not self.prefix and (self.role == "admin" or kind == "cluster"):
            return given
        return given if kind != "cluster" and matches("prefix", self.prefix, name) else frozenset()


class Subject(NamedTuple):
    """A principal, and the groups that its token names."""

    principal: str
    groups: tuple[str, ...] = ()

    def answers_to(self, principal: str) -> bool:
        return principal in (self.principal, EVERYBODY) or principal in {GROUP_PREFIX + group for group in self.groups}


Cap = Literal["topics", "partitions", "groups"]


class Caps(NamedTuple):
    """How many of each there may be among the names that somebody may make; None where that has no bound."""

    topics: int | None = None
    partitions: int | None = None
    groups: int | None = None


class Decision(NamedTuple):
    """`because` names the entry or binding that decided; empty where nothing allows it."""

    allowed: bool
    because: str


def matches(pattern: Pattern, wanted: str, name: str) -> bool:
    """Says whether a pattern matches a name; system names only match literally."""
    if pattern == "literal":
        return wanted == name
    return name.startswith(wanted) and not name.startswith(_SYSTEM)


class Policy:
    """All entries and bindings, each by its id, and caps by whose they are; `*` is each that has no own."""

    def __init__(
        self, entries: Mapping[str, Entry], bindings: Mapping[str, Binding], caps: Mapping[str, Caps] | None = None
    ) -> None:
        self._entries = entries
        self._bindings = bindings
        self._caps = caps or {}

    def cap(self, principal: str, of: Cap) -> int | None:
        if principal == LOCAL or not self._caps:
            return None
        found: int | None = getattr(self._caps.get(principal) or self._caps.get(EVERYBODY) or Caps(), of)
        return found

    def decide(self, subject: Subject, right: Right, kind: Kind, name: str) -> Decision:
        if subject.principal == LOCAL:
            return Decision(True, "the machine's own user may do everything")
        sufficient = {right} | (IMPLY_DESCRIBE if right == "describe" else frozenset())
        allowed = ""
        for entry_id, entry in self._entries_of(subject):
            if not entry.names(kind, name):
                continue
            if entry.effect == "deny" and right in entry.operations:
                return Decision(False, f"entry {entry_id} denies it")
            if entry.effect == "allow" and not sufficient.isdisjoint(entry.operations):
                allowed = allowed or f"entry {entry_id} allows it"
        if not allowed:
            for binding_id, binding in self._bindings_of(subject):
                if not sufficient.isdisjoint(binding.gives(kind, name)):
                    allowed = f"binding {binding_id} gives the role {binding.role}"
                    break
        return Decision(bool(allowed), allowed)

    def admins(self) -> set[str]:
        """Lists the principals that a binding makes administrators of everything."""
        return {
            binding.principal for binding in self._bindings.values() if binding.role == "admin" and not binding.prefix
        }

    def _entries_of(self, subject: Subject) -> Iterator[tuple[str, Entry]]:
        return (pair for pair in self._entries.items() if subject.answers_to(pair[1].principal))

    def _bindings_of(self, subject: Subject) -> Iterator[tuple[str, Binding]]:
        return (pair for pair in self._bindings.items() if subject.answers_to(pair[1].principal))


def checked_entry(entry: Entry) -> Entry:
    """Raises ValueError for an entry that could never decide anything, or more than it says."""
    wrong = [right for right in entry.operations if right not in RIGHTS[entry.kind]]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: a {entry.kind} knows {', '.join(sorted(RIGHTS[entry.kind]))}")
    if not entry.operations:
        raise ValueError("it names no operation")
    if entry.kind == "cluster" and (entry.name, entry.pattern) != (CLUSTER, "literal"):
        raise ValueError(f"there is one cluster: its name is {CLUSTER!r}, and its pattern literal")
    if entry.pattern == "prefix" and entry.name.startswith(_SYSTEM):
        raise ValueError(f"no prefix matches names that begin with {_SYSTEM!r}; name each literally")
    misnamed = _name_problem(entry)
    if misnamed is not None:
        raise ValueError(misnamed)
    checked_principal(entry.principal)
    return entry


def _name_problem(entry: Entry) -> str | None:
    if entry.kind == "cluster":
        return None
    if entry.pattern == "prefix":
        return names.name_problem(entry.name) if entry.name else None
    return names.readable_topic_problem(entry.name) if entry.kind == "topic" else names.name_problem(entry.name)


def checked_binding(binding: Binding) -> Binding:
    """Raises ValueError for a role of what no caller can ever be, or for names that nothing can have."""
    wrong = names.name_problem(binding.prefix) if binding.prefix else None
    if wrong is not None:
        raise ValueError(wrong)
    if binding.prefix.startswith(_SYSTEM):
        raise ValueError(f"no prefix matches names that begin with {_SYSTEM!r}; an entry names each literally")
    checked_principal(binding.principal)
    return binding


PRINCIPAL_CHARS_MAX = 1_000
PRINCIPAL_KINDS = ("key:", "user:", "cert:", GROUP_PREFIX)


def checked_principal(principal: str) -> str:
    """Raises ValueError for what no caller can ever be."""
    known = any(principal.startswith(kind) and len(principal) > len(kind) for kind in PRINCIPAL_KINDS)
    if principal != EVERYBODY and not (known and principal.isprintable() and len(principal) <= PRINCIPAL_CHARS_MAX):
        raise ValueError(
            f"{principal!r} is no principal: write key:NAME, user:SUBJECT, cert:NAME, group:NAME or {EVERYBODY}"
        )
    return principal


def visible(policy: Policy, subject: Subject, kind: Kind, found: Iterable[str]) -> list[str]:
    """Keeps of some names those that the subject may see."""
    return [name for name in found if policy.decide(subject, "describe", kind, name).allowed]
