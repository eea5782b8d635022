import asyncio
import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import Subject
from siltlog.infra.security.callers.identification import (
    ADDRESSES_MAX,
    FAILURES_MAX,
    FAILURES_SECONDS,
    Failures,
    Identification,
    NotJudged,
)
from siltlog.infra.security.certificates import ClientCertificate
from siltlog.infra.security.grant import Access, Caller, Identity, unauthenticated

KEY = "silt_abcdefghijkl_" + "a" * 49
JWT = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ.c2ln"
CERTIFICATE = ClientCertificate((), ("ana.example",), b"issuer", 1, datetime(2030, 1, 1, tzinfo=UTC))


class SteppedClock(SystemClock):
    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


class Tokens:
    """Takes what begins with its letter; `-late` says so later, `-bad` is wrong, `-new` is not known to be."""

    def __init__(self, letter: str) -> None:
        self.principals = letter + ":"
        self.aside: list[bool] = []

    def takes(self, token: str) -> bool:
        return token.startswith(self.principals[0])

    def known(self, token: str) -> Identity | None:
        return None if token.endswith(("-late", "-bad", "-new")) else Identity(Subject(self.principals + token))

    def verify(self, token: str, *, aside: bool) -> Any:
        self.aside.append(aside)
        return self.later(token) if "-late" in token else self.now(token)

    def now(self, token: str) -> Identity:
        if token.endswith("-bad"):
            raise unauthenticated("unknown", "it is wrong")
        if token.endswith("-new"):
            raise NotJudged("its key was not read yet", 1)
        return Identity(Subject(self.principals + token))

    async def later(self, token: str) -> Identity:
        await asyncio.sleep(0)
        return self.now(token)

    def check(self, identity: Identity) -> None:
        raise AssertionError


class World:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.verifiers = [Tokens("a"), Tokens("b")]
        self.stale: SiltlogError | None = None
        self.identification = Identification(
            Access(self.clock),
            self.verifiers,
            self.clock,
            certificates=lambda shown: Identity(Subject("cert:" + shown.dns[0])) if shown.dns else None,
            stale=lambda: self.stale,
        )

    def __call__(self, token: str | None = None, **more: Any) -> str:
        """The principal, or the code and reason of the refusal."""
        authorization = None if token is None else f"Bearer {token}".encode()
        caller = Caller(b"", **{"address": "192.0.2.1", "authorization": authorization, **more})

        async def run() -> str:
            try:
                found = self.identification.identify(caller)
                identity = found if isinstance(found, Identity) else await found
            except SiltlogError as error:
                assert self.identification.known(caller) is None
                return f"{error.error_code} {error.members.get('reason', '')}".strip()
            known = self.identification.known(caller)
            assert known is None or known == identity, "both say the same"
            assert identity.address == ("" if more.get("local") and token is None else caller.address)
            return identity.subject.principal

        return asyncio.run(run())


@pytest.fixture
def world() -> World:
    return World()


def test_the_verifier_is_found_by_what_the_token_looks_like(world: World) -> None:
    assert [world("ana"), world("bob"), world("a-late")] == ["a:ana", "b:bob", "a:a-late"]
    assert [world(), world("c"), world("a-bad"), world("a-late-bad")] == [
        "unauthenticated missing",
        "unauthenticated malformed",
        "unauthenticated unknown",
        "unauthenticated unknown",
    ]


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Bearer ", b"ana", b"Bearer a b", b"Basic eA==", b"Bearer \xff"])
def test_what_is_no_token(world: World, value: bytes) -> None:
    assert world(authorization=value) == "unauthenticated malformed"


def test_a_page_sends_its_token_as_a_subprotocol(world: World) -> None:
    assert world(protocols=b"silt.v1, silt.bearer.ana") == "a:ana"
    assert world(protocols=b"silt.v1") == "unauthenticated missing"
    assert world("ana", protocols=b"silt.bearer.ana") == "invalid_parameter"
    assert world(protocols=b"silt.bearer.ana, silt.bearer.bob") == "invalid_parameter"


def test_what_is_known_of_the_connection_counts_where_nothing_else_does(world: World) -> None:
    assert world(local=True, address="") == "local"
    assert world("ana", local=True) == "a:ana"
    assert world("a-bad", local=True) == "unauthenticated unknown"
    assert world(certificate=CERTIFICATE) == "cert:ana.example"
    shown = world.identification.known(Caller(b"", address="192.0.2.1", certificate=CERTIFICATE))
    assert shown == Identity(Subject("cert:ana.example"), address="192.0.2.1"), "it is told at once"
    assert world("bob", certificate=CERTIFICATE) == "b:bob"
    assert world(certificate=CERTIFICATE._replace(dns=())) == "unauthenticated missing"


@pytest.mark.rule("A27")
@pytest.mark.parametrize(
    "more",
    [
        {"query": f"x={KEY}".encode()},
        {"query": f"x={KEY.replace('_', '%5f')}".encode()},
        {"query": f"access_token={JWT}".encode()},
        {"query": f"x={KEY}".encode(), "local": True},
        {"authorization": b"Basic " + base64.b64encode(f"{KEY}:".encode())},
        {"authorization": b"basic " + base64.b64encode(f"x:{JWT}".encode())},
    ],
)
def test_a_token_in_the_url_is_refused(world: World, more: dict[str, Any]) -> None:
    with pytest.raises(SiltlogError) as told:
        world.identification.identify(Caller(b"", **more))
    assert (told.value.error_code, told.value.status) == ("credential_in_url", 400)
    assert KEY not in str(told.value)
    assert JWT not in str(told.value)


def test_a_query_that_has_no_token_is_nobodys_business(world: World) -> None:
    assert world("ana", query=b"key=silt_short&x=eyJ.b.c") == "a:ana"


@pytest.mark.rule("A28")
def test_who_is_wrong_too_often_is_told_to_wait_and_who_is_right_passes(world: World) -> None:
    assert [world("a-bad") for _ in range(FAILURES_MAX)] == ["unauthenticated unknown"] * FAILURES_MAX
    assert [world("a-bad"), world("a-late-bad"), world("x"), world()] == ["rate_limited"] * 3 + [
        "unauthenticated missing"
    ]
    assert world("ana") == "a:ana"
    assert world("a-bad", address="192.0.2.2") == "unauthenticated unknown"
    assert world.verifiers[0].aside[:10] == [False] * 10
    assert world.verifiers[0].aside[11:13] == [True, True], "where many were wrong the next are looked at aside"
    world.clock.seconds += FAILURES_SECONDS
    assert world("a-bad") == "unauthenticated unknown"


@pytest.mark.rule("A28")
def test_what_cannot_be_judged_yet_is_not_counted_as_wrong(world: World) -> None:
    told = [world(token) for token in ("a-new", "a-late-new") for _ in range(FAILURES_MAX)]
    assert told == ["unauthenticated unknown"] * 2 * FAILURES_MAX
    assert world.verifiers[0].aside == [False] * (FAILURES_MAX + 1) + [True] * (FAILURES_MAX - 1)
    assert world("a-bad") == "unauthenticated unknown", "the first that is wrong"
    assert [world("a-bad") for _ in range(FAILURES_MAX)][-1] == "rate_limited"
    assert world("a-new") == "unauthenticated unknown"


@pytest.mark.rule("A28")
def test_a_network_of_ipv6_is_one_address_and_the_table_is_bounded() -> None:
    clock = SteppedClock()
    failures = Failures(clock)
    assert [failures.count(f"2001:db8::{n}") for n in (1, 2, 3)] == [1, 2, 3]
    assert [failures.count("2001:db8:0:1::1"), failures.count("192.0.2.1"), failures.count("192.0.2.2")] == [1, 1, 1]
    assert failures.count("fe80::1%eth0") == 1
    for n in range(ADDRESSES_MAX + 10):
        failures.count(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(failures._windows) == ADDRESSES_MAX
    assert failures.count("2001:db8::4") == 1, "who failed longest ago is forgotten first"


@pytest.mark.rule("A31")
def test_once_nothing_is_known_only_the_machines_own_user_is_let_in(world: World) -> None:
    world.stale = problem("access_unavailable", "the store is away")
    assert [world("ana"), world(), world(certificate=CERTIFICATE)] == ["access_unavailable"] * 3
    assert world(local=True, address="") == "local"


def test_a_caller_shows_no_token() -> None:
    assert KEY not in repr(Caller(b"x", authorization=f"Bearer {KEY}".encode(), query=KEY.encode()))
