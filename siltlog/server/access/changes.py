"""Changes of the access document, each as a function from one document to the next. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import Binding, Entry, Policy, Role, Subject
from siltlog.infra.security.callers.api_keys import KEY_PREFIX
from siltlog.infra.security.document import AccessDocument, KeptKey
from siltlog.infra.security.documents import Change
from siltlog.infra.security.quotas import Quota

Part = Literal["bindings", "entries", "quotas"]
KEYS_MAX = 10_000
PARTS_MAX = 10_000
"""Each part may have so many: every node reads the whole document at each change."""
KEY_NAME_CHARS_MAX = 64
NO_ADMINISTRATOR = (
    "no administrator is left: `silt access key create NAME --role admin` makes one, as the user of the server, on its "
    "machine"
)


def checked_name(name: str) -> str:
    """Raises Refused `invalid_request` for what cannot name a key."""
    wrong = names.name_problem(name)
    if wrong is None and len(name) > KEY_NAME_CHARS_MAX:
        wrong = f"the name of a key has at most {KEY_NAME_CHARS_MAX} characters; this one has {len(name)}"
    if wrong is not None:
        raise problem("invalid_request", wrong)
    return name


def with_key(key_id: str, key: KeptKey, roles: Iterable[tuple[Role, str]], now_us: int) -> Change:
    """Adds a key of a new name, bound to `roles`, each with a prefix."""

    def change(document: AccessDocument) -> AccessDocument:
        if any(other.name == key.name and not _has_expired(other, now_us) for other in document.keys.values()):
            raise problem(
                "key_exists", f"there is a key called {key.name}; rotate it, or revoke it, or choose another name"
            )
        bindings = dict(document.bindings)
        for role, prefix in roles:
            binding, part_id = Binding(KEY_PREFIX + key.name, role, prefix), binding_id(key.name, role, prefix)
            # Names have dots too, so another's may be called the same.
            while bindings.get(part_id, binding) != binding:
                part_id += "_"
            bindings[part_id] = binding
        return msgspec.structs.replace(
            document,
            keys=_bounded({**document.keys, key_id: key}, KEYS_MAX),
            bindings=_bounded(bindings, PARTS_MAX),
        )

    return change


def with_another(key_id: str, key_hash: bytes, old_id: str, old_until_us: int, now_us: int) -> Change:
    """Adds another key of the same name, and has the old one end."""

    def change(document: AccessDocument) -> AccessDocument:
        old = document.keys.get(old_id)
        if old is None:
            raise unknown_key(old_id)
        if _has_expired(old, now_us):
            raise problem("unknown_key", f"the key {old_id} has expired; make another")
        until_us = old_until_us if old.expires_us is None else min(old_until_us, old.expires_us)
        keys = {
            **document.keys,
            old_id: msgspec.structs.replace(old, expires_us=until_us),
            key_id: KeptKey(old.name, key_hash, now_us, old.expires_us),
        }
        return msgspec.structs.replace(document, keys=_bounded(keys, KEYS_MAX))

    return change


def without_keys(key_ids: Collection[str]) -> Change:
    """Removes keys; with the last of a name also all that the name was given: who has it next begins with nothing.

    What denies it something, or bounds it, stays: a key that is made anew must not pass by that.
    """

    def change(document: AccessDocument) -> AccessDocument:
        removed = {key.name for key_id, key in document.keys.items() if key_id in key_ids}
        if not removed:
            return document
        keys = {key_id: key for key_id, key in document.keys.items() if key_id not in key_ids}
        gone = {KEY_PREFIX + name for name in removed.difference(key.name for key in keys.values())}
        bindings = {each: binding for each, binding in document.bindings.items() if binding.principal not in gone}
        entries = {
            each: entry
            for each, entry in document.entries.items()
            if entry.principal not in gone or entry.effect == "deny"
        }
        return msgspec.structs.replace(document, keys=keys, bindings=bindings, entries=entries)

    return change


def with_part(part: Part, part_id: str, value: Binding | Entry | Quota, now_us: int) -> Change:
    def change(document: AccessDocument) -> AccessDocument:
        parts = _bounded({**getattr(document, part), part_id: value}, PARTS_MAX)
        return _administered(document, msgspec.structs.replace(document, **{part: parts}), now_us)

    return change


def without_part(part: Part, part_id: str, now_us: int) -> Change:
    def change(document: AccessDocument) -> AccessDocument:
        parts = {name: value for name, value in getattr(document, part).items() if name != part_id}
        if len(parts) == len(getattr(document, part)):
            raise problem("not_found", f"there is nothing called {part_id[:200]!r} among these")
        return _administered(document, msgspec.structs.replace(document, **{part: parts}), now_us)

    return change


def binding_id(name: str, role: Role, prefix: str) -> str:
    """Names the binding that a key is made with."""
    return f"{name}.{role}.{prefix}" if prefix else f"{name}.{role}"


def administrators(document: AccessDocument, now_us: int) -> set[str]:
    """Lists the principals who administer everything, and may; of keys those that somebody can have."""
    policy = Policy(document.entries, document.bindings)
    return _who_may(document, policy, policy.admins(), now_us)


def without_administrator(document: AccessDocument, revoked: Collection[str], now_us: int) -> str:
    """A sentence where nobody, by a role or an entry, may change who may do what, once the keys with these ids count no
    more; else empty."""
    kept = {key_id: key for key_id, key in document.keys.items() if key_id not in revoked}
    left = msgspec.structs.replace(document, keys=kept)
    by_entries = {entry.principal for entry in left.entries.values() if "admin" in entry.operations}
    policy = Policy(left.entries, left.bindings)
    return "" if _who_may(left, policy, by_entries | policy.admins(), now_us) else NO_ADMINISTRATOR


def _who_may(document: AccessDocument, policy: Policy, principals: Iterable[str], now_us: int) -> set[str]:
    named = {KEY_PREFIX + key.name for key in document.keys.values() if not _has_expired(key, now_us)}
    return {
        principal
        for principal in principals
        if (principal in named or not principal.startswith(KEY_PREFIX))
        and policy.decide(Subject(principal), "admin", "cluster", "cluster").allowed
    }


def unknown_key(key_id: str) -> SiltlogError:
    return problem("unknown_key", f"there is no key with the id {key_id[:80]!r}")


def _administered(before: AccessDocument, after: AccessDocument, now_us: int) -> AccessDocument:
    if administrators(before, now_us) and not administrators(after, now_us):
        raise problem("last_admin", "nobody would administer access any more; give somebody else the role admin first")
    return after


def _has_expired(key: KeptKey, now_us: int) -> bool:
    return key.expires_us is not None and now_us >= key.expires_us


def _bounded(parts: Mapping[str, Any], maximum: int) -> Mapping[str, Any]:
    if len(parts) > maximum:
        raise problem("invalid_request", f"there are {maximum} of these, and there can be no more; remove some")
    return parts
