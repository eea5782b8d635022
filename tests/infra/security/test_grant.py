import pytest

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Refused, SiltlogError, problem
from siltlog.infra.security.access import Binding, Entry, Policy, Subject
from siltlog.infra.security.grant import (
    ANONYMOUS,
    EVERYTHING,
    Access,
    Grant,
    Identity,
    grant_of,
    unauthenticated,
)

ANA = Identity(Subject("key:ana"), "id-of-ana")
READS = Policy({"e": Entry("key:ana", "topic", "orders", ("read",))}, {})
WRITES = Policy({"e": Entry("key:ana", "topic", "orders", ("write",))}, {})


class MovedClock(SystemClock):
    def __init__(self) -> None:
        self.moved_us = 0

    def now_us(self) -> int:
        return self.moved_us


def test_what_is_allowed_and_what_is_not() -> None:
    grant = Grant(Access(SystemClock(), READS), ANA)
    assert not grant.asked
    grant.require("read", "topic", "orders")
    assert grant.asked
    assert grant.may("describe", "topic", "orders")
    assert not grant.may("write", "topic", "orders")
    assert grant.sees("topic", ["absent", "orders"]) == ["orders"]
    assert grant.decide("read", "topic", "orders").because == "entry e allows it"
    with pytest.raises(Refused) as told:
        grant.require("write", "topic", "orders")
    assert (told.value.error_code, told.value.status) == ("forbidden", 403)
    assert told.value.members == {"principal": "key:ana", "right": "write", "kind": "topic", "name": "orders"}
    with pytest.raises(Refused, match="key:ana has no right to describe the cluster"):
        grant.require("describe", "cluster")


@pytest.mark.rule("A64")
def test_names_that_nothing_can_have_are_not_remembered() -> None:
    access = Access(SystemClock(), Policy({"e": Entry("key:ana", "topic", "o", ("read",), "prefix")}, {}))
    grant = Grant(access, ANA)
    for name in ("orders", "o" * names.TOPIC_CHARS_MAX, "o" * (names.TOPIC_CHARS_MAX + 1), "o" * 60_000):
        grant.require("read", "topic", name)
    assert len(access._decided) == 2
    with pytest.raises(Refused):
        grant.require("write", "topic", "o" * 60_000)


def test_what_does_not_exist_is_refused_in_the_same_words() -> None:
    grant = Grant(Access(SystemClock(), READS), ANA)
    told = []
    for name in ("orders", "absent"):
        with pytest.raises(Refused) as refused:
            grant.require("delete", "topic", name)
        told.append(str(refused.value).replace(name, "NAME"))
    assert told[0] == told[1]


@pytest.mark.parametrize("refusal", [None, unauthenticated("unknown", "no such key"), problem("overloaded", "later")])
def test_nobody_may_do_nothing(refusal: SiltlogError | None) -> None:
    grant = Grant(Access(SystemClock(), Policy({"e": Entry("*", "topic", "", ("read",), "prefix")}, {})), None, refusal)
    assert grant.principal == ANONYMOUS
    assert not grant.may("read", "topic", "orders")
    for asks in (
        grant.check,
        lambda: grant.require("read", "topic", "orders"),
        lambda: grant.sees("topic", ["orders"]),
        lambda: grant.decide("read", "topic", "orders"),
    ):
        with pytest.raises(SiltlogError) as told:
            asks()
        assert told.value is refused_as(refusal, told.value)


def refused_as(refusal: SiltlogError | None, told: SiltlogError) -> SiltlogError:
    if refusal is not None:
        return refusal
    assert (told.error_code, told.status, told.members) == ("unauthenticated", 401, {"reason": "missing"})
    return told


@pytest.mark.rule("A12")
def test_the_newest_policy_decides() -> None:
    access = Access(SystemClock(), READS)
    grant, heard = Grant(access, ANA), []
    stop = grant.when_changed(lambda: heard.append(access.version))
    assert (grant.may("read", "topic", "orders"), grant.may("write", "topic", "orders")) == (True, False)
    access.change(WRITES)
    assert (grant.may("read", "topic", "orders"), grant.may("write", "topic", "orders")) == (False, True)
    stop()
    stop()
    access.change(READS)
    assert (heard, access.version) == ([1], 2)


@pytest.mark.rule("A12")
def test_a_credential_that_ends_ends_its_grant_at_each_use() -> None:
    clock = MovedClock()
    grant = Grant(Access(clock, READS), ANA._replace(until_us=1_000))
    grant.require("read", "topic", "orders")
    clock.moved_us = 1_000
    assert not grant.may("read", "topic", "orders")
    for asks in (grant.check, lambda: grant.require("read", "topic", "orders")):
        with pytest.raises(Refused) as told:
            asks()
        assert told.value.members == {"reason": "expired"}


@pytest.mark.rule("A12")
def test_a_credential_that_is_revoked_is_noticed_at_the_next_use() -> None:
    revoked = []

    def check(identity: Identity) -> None:
        if identity.credential_id in revoked:
            raise unauthenticated("unknown", "there is no such credential")

    access = Access(SystemClock(), READS, check)
    grant = Grant(access, ANA)
    grant.require("read", "topic", "orders")
    revoked.append("id-of-ana")
    access.change(READS)
    for asks in (grant.check, lambda: grant.require("read", "topic", "orders")):
        with pytest.raises(Refused) as told:
            asks()
        assert told.value.members == {"reason": "unknown"}


def test_an_administrator_may_do_what_his_binding_says() -> None:
    grant = Grant(Access(SystemClock(), Policy({}, {"b": Binding("key:ana", "admin")})), ANA)
    grant.require("admin", "cluster")
    grant.require("read", "topic", "_audit")


def test_where_nobody_is_asked_everything_is_allowed() -> None:
    EVERYTHING.check()
    EVERYTHING.require("admin", "cluster")
    assert EVERYTHING.may("delete", "topic", "_offsets")
    assert EVERYTHING.sees("topic", iter(["a", "_b"])) == ["a", "_b"]
    assert EVERYTHING.decide("read", "topic", "a").allowed
    assert (EVERYTHING.principal, EVERYTHING.identity, EVERYTHING.asked) == (ANONYMOUS, None, True)
    EVERYTHING.when_changed(lambda: None)()


def test_a_request_without_a_grant_has_no_right() -> None:
    assert grant_of({"state": {"grant": EVERYTHING}}) is EVERYTHING
    with pytest.raises(KeyError):
        grant_of({"state": {}})
