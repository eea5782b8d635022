from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.access import (
    CLUSTER,
    LOCAL,
    RIGHTS,
    ROLES,
    Binding,
    Entry,
    Kind,
    Policy,
    Right,
    Role,
    Subject,
    checked_entry,
    checked_principal,
    matches,
    visible,
)

NAMES = ["orders", "orders.dlq", "or", "_audit", "_offsets", "o", CLUSTER]
PRINCIPALS = ["key:a", "key:b", "user:a", "group:team", "*"]
CALLERS = [Subject("key:a"), Subject("key:b", ("team",)), Subject("user:a", ("team", "key:a")), Subject(LOCAL)]
kinds = st.sampled_from(get_args(Kind))
entries = st.builds(
    Entry,
    st.sampled_from(PRINCIPALS),
    kinds,
    st.sampled_from([*NAMES, "", "ord", "_"]),
    st.lists(st.sampled_from(get_args(Right)), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["literal", "prefix"]),
    st.sampled_from(["allow", "deny"]),
)
bindings = st.builds(
    Binding, st.sampled_from(PRINCIPALS), st.sampled_from(get_args(Role)), st.sampled_from(["", "or", "_", "x"])
)


def naive(
    all_entries: list[Entry], all_bindings: list[Binding], subject: Subject, right: str, kind: str, name: str
) -> bool:
    """Decides by the sentences of the documentation, one after the other, with nothing shared."""
    if subject.principal == "local":
        return True
    mine = [subject.principal, "*"] + ["group:" + group for group in subject.groups]
    ours = [entry for entry in all_entries if entry.principal in mine and entry.kind == kind]
    ours = [
        entry
        for entry in ours
        if (entry.pattern == "literal" and entry.name == name)
        or (entry.pattern == "prefix" and name[: len(entry.name)] == entry.name and name[0] != "_")
    ]
    if [entry for entry in ours if entry.effect == "deny" and right in entry.operations]:
        return False
    granted = {operation for entry in ours if entry.effect == "allow" for operation in entry.operations}
    for binding in all_bindings:
        if binding.principal not in mine:
            continue
        role = dict(ROLES[binding.role])
        everything = binding.prefix == ""
        reaches = name[: len(binding.prefix)] == binding.prefix and name[0] != "_"
        if everything and (kind == "cluster" or binding.role == "admin"):
            reaches = True
        elif kind == "cluster":
            reaches = False
        granted |= role.get(kind, frozenset()) if reaches else frozenset()  # type: ignore[call-overload]
    if right == "describe" and granted & {"read", "write", "alter", "delete", "admin"}:
        return True
    return right in granted


@given(
    st.lists(entries, max_size=6),
    st.lists(bindings, max_size=3),
    st.sampled_from(CALLERS),
    st.sampled_from(get_args(Right)),
    kinds,
    st.sampled_from(NAMES),
)
def test_two_deciders_agree(
    all_entries: list[Entry], all_bindings: list[Binding], subject: Subject, right: Right, kind: Kind, name: str
) -> None:
    policy = Policy(
        {f"e{at}": entry for at, entry in enumerate(all_entries)},
        {f"b{at}": binding for at, binding in enumerate(all_bindings)},
    )
    decision = policy.decide(subject, right, kind, name)
    assert decision.allowed == naive(all_entries, all_bindings, subject, right, kind, name)
    assert decision.because or not decision.allowed


def test_nothing_is_allowed_that_was_not_granted() -> None:
    policy = Policy({}, {})
    for kind, rights in RIGHTS.items():
        for right in rights:
            assert not policy.decide(Subject("key:a"), right, kind, "orders").allowed
            assert policy.decide(Subject(LOCAL), right, kind, "orders").allowed


def test_the_decision_names_what_decided() -> None:
    policy = Policy(
        {
            "a1": Entry("key:a", "topic", "orders", ("read",)),
            "d1": Entry("group:team", "topic", "orders", ("read",), effect="deny"),
        },
        {"b1": Binding("key:b", "viewer")},
    )
    assert policy.decide(Subject("key:a"), "read", "topic", "orders") == (True, "entry a1 allows it")
    assert policy.decide(Subject("key:a", ("team",)), "read", "topic", "orders") == (False, "entry d1 denies it")
    assert policy.decide(Subject("key:a", ("team",)), "describe", "topic", "orders").allowed
    assert policy.decide(Subject("key:b"), "describe", "cluster", CLUSTER) == (True, "binding b1 gives the role viewer")
    assert policy.decide(Subject("key:c"), "read", "topic", "orders") == (False, "")


def test_a_right_to_everything_is_none_to_system_topics() -> None:
    policy = Policy({"e": Entry("key:a", "topic", "", ("read",), "prefix")}, {"b": Binding("key:b", "consumer")})
    for principal in ("key:a", "key:b"):
        assert policy.decide(Subject(principal), "read", "topic", "orders").allowed
        assert not policy.decide(Subject(principal), "read", "topic", "_audit").allowed
    assert not matches("prefix", "_", "_audit")
    assert matches("literal", "_audit", "_audit")


def test_a_role_for_a_prefix_gives_nothing_of_the_cluster() -> None:
    policy = Policy({}, {"b": Binding("key:a", "admin", "team-a.")})
    assert policy.decide(Subject("key:a"), "delete", "topic", "team-a.orders").allowed
    assert not policy.decide(Subject("key:a"), "delete", "topic", "team-b.orders").allowed
    for right in RIGHTS["cluster"]:
        assert not policy.decide(Subject("key:a"), right, "cluster", CLUSTER).allowed
    assert policy.admins() == set()
    assert Policy({}, {"b": Binding("key:a", "admin")}).admins() == {"key:a"}


def test_a_group_of_a_token_is_never_another_principal() -> None:
    policy = Policy({}, {"b": Binding("key:ops", "admin")})
    assert not policy.decide(Subject("user:x", ("key:ops",)), "read", "topic", "orders").allowed


def test_names_are_filtered() -> None:
    policy = Policy({"e": Entry("key:a", "topic", "or", ("write",), "prefix")}, {})
    assert visible(policy, Subject("key:a"), "topic", ["_audit", "flights", "orders"]) == ["orders"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry("key:a", "topic", "x", ("admin",)), "admin: a topic knows alter, create, delete, describe, read, write"),
        (Entry("key:a", "group", "x", ("write",)), "write: a group knows"),
        (Entry("key:a", "topic", "x", ()), "it names no operation"),
        (Entry("key:a", "cluster", "x", ("describe",)), "there is one cluster"),
        (Entry("key:a", "cluster", CLUSTER, ("describe",), "prefix"), "there is one cluster"),
        (Entry("key:a", "topic", "_", ("read",), "prefix"), "no prefix matches names that begin with '_'"),
        (Entry("a", "topic", "x", ("read",)), "'a' is no principal"),
    ],
)
def test_entries_that_could_not_decide_are_refused(entry: Entry, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked_entry(entry)


@pytest.mark.parametrize("principal", ["*", "key:a", "user:a@b", "cert:svc", "group:team"])
def test_principals(principal: str) -> None:
    assert checked_principal(principal) == principal


@pytest.mark.parametrize("principal", ["", "key:", "local", "admin", "**", "role:x"])
def test_what_nobody_can_be(principal: str) -> None:
    with pytest.raises(ValueError, match="is no principal"):
        checked_principal(principal)
