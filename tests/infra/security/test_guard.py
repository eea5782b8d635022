"""What stands before an operation: the trail of its change, and the quotas of who asks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Refused, SiltlogError, Unavailable, problem
from siltlog.infra.http.operations import (
    FILTERED,
    IN_BODY,
    Reply,
    begin_change,
    on_topic,
    operation,
)
from siltlog.infra.http.routes import routes_of
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.access import Entry, Policy, Subject
from siltlog.infra.security.audit.chain import Audited
from siltlog.infra.security.grant import GRANT, Access, Grant, Identity, grant_of
from siltlog.infra.security.guard import ADDRESS, NAME_CHARS_MAX, Guard
from siltlog.infra.security.quotas import Quota, Quotas

ENTRIES = {"e": Entry("key:ana", "topic", "t", ("read", "write", "create", "delete"))}


class SteppedClock(SystemClock):
    """Monotonic time goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds


class KeptTrail:
    """Remembers what it is told; `broken` says why nothing can be begun."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, int | None, str]] = []
        self.denials: list[tuple[str, str, str, str]] = []
        self.refused: list[Audited] = []
        self.broken: SiltlogError | None = None

    async def begin(self, intent: Audited) -> None:
        if self.broken is not None:
            raise self.broken
        self._tell(intent)

    async def owe(self, intent: Audited, seconds_max: float) -> None:
        assert seconds_max <= 1, "who takes a right away does not wait for long"
        self._tell(intent)

    async def end(self, ended: Audited) -> None:
        self._tell(ended)

    def denied(self, denied: Audited, reason: str) -> None:
        assert (denied.outcome, denied.detail) == ("refused", reason)
        self.refused.append(denied)
        self.denials.append((denied.principal, denied.address, denied.operation, reason))

    def _tell(self, audited: Audited) -> None:
        assert (audited.principal, audited.credential, audited.address) == ("key:ana", "k1", "192.0.2.1")
        told = (audited.operation, audited.resource, audited.outcome, audited.status, audited.detail)
        self.told.append(told)


def stated(operation_id: str, access: Any, path: str = "/topics/{topic}", **more: Any) -> Any:
    return operation("PUT", path, operation_id, "Node", "", "", access=access, replies={200: Reply("")}, **more)


class Handlers:
    def __init__(self) -> None:
        self.act: Callable[[], Awaitable[None]] | None = None
        self.called = 0

    async def answer(self) -> Response:
        self.called += 1
        if self.act is not None:
            await self.act()
        return Response(status_code=204)

    @stated("deletes", on_topic("delete"), changes="in_path")
    async def deletes(self, request: Request) -> Response:
        return await self.answer()

    @stated("creates", IN_BODY, "/topics", changes="in_body")
    async def creates(self, request: Request) -> Response:
        grant_of(request).require("create", "topic", request.headers["name"])
        if request.headers["name"] == "t":
            await begin_change(request, "topic", "t")
        return await self.answer()

    @stated("revokes", on_topic("delete"), changes="revokes")
    async def revokes(self, request: Request) -> Response:
        return await self.answer()

    @stated("lists", FILTERED, "/topics")
    async def lists(self, request: Request) -> Response:
        grant_of(request).sees("topic", [])
        return await self.answer()

    @stated("reads", on_topic("read"), reads=True)
    async def reads(self, request: Request) -> Response:
        return await self.answer()


class World:
    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.trail = KeptTrail()
        self.quotas = Quotas()
        self.metrics = Metrics()
        self.guard = Guard(self.trail, self.quotas, self.clock, self.metrics)
        self.handlers = Handlers()
        self.access = Access(self.clock, Policy(ENTRIES, {}))
        routes = routes_of(self.handlers, guard=self.guard)
        self._endpoints = {route.endpoint.__name__: route.endpoint for route in routes}

    def call(self, name: str, topic: str = "t", principal: str | None = "key:ana") -> dict[str, Any]:
        identity = None if principal is None else Identity(Subject(principal), "k1")
        scope: dict[str, Any] = {
            "type": "http",
            "method": "PUT",
            "path": "/",
            "query_string": b"",
            "headers": [(b"name", topic.encode())],
            "path_params": {"topic": topic} if name not in ("creates", "lists") else {},
            "state": {"request_id": "r", ADDRESS: "192.0.2.1", GRANT: Grant(self.access, identity)},
        }
        asyncio.run(self._endpoints[name](Request(scope)))
        state: dict[str, Any] = scope["state"]
        return state


def failing(error: Exception) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.rule("A6")
def test_a_change_is_begun_before_it_is_made_and_ends(world: World) -> None:
    begun: list[Any] = []

    async def look() -> None:
        begun.extend(world.trail.told)

    world.handlers.act = look
    world.call("deletes")
    assert begun == [("deletes", "topic/t", "begun", None, "")]
    assert world.trail.told[1:] == [("deletes", "topic/t", "done", 204, "")]
    world.trail.told.clear()
    world.call("creates")
    assert [told[1:3] for told in world.trail.told] == [("topic/t", "begun"), ("topic/t", "done")]
    world.trail.told.clear()
    world.call("lists")
    assert world.trail.told == []


@pytest.mark.rule("A6")
@pytest.mark.parametrize(
    ("error", "outcome", "status", "detail"),
    [
        (problem("unknown_topic", "no such"), "refused", 404, "unknown_topic"),
        (problem("topic_unavailable", "later"), "failed", 503, "topic_unavailable"),
        (problem("ack_timeout", "maybe"), "failed", 504, "ack_timeout"),
        (ValueError("a record's value: secret"), "failed", 500, "internal"),
    ],
)
def test_how_a_change_failed_is_recorded_by_its_code_alone(
    world: World, error: Exception, outcome: str, status: int, detail: str
) -> None:
    world.handlers.act = failing(error)
    with pytest.raises(type(error)):
        world.call("deletes")
    assert world.trail.told[1:] == [("deletes", "topic/t", outcome, status, detail)]


@pytest.mark.rule("A6")
def test_what_cannot_be_recorded_is_not_done(world: World) -> None:
    world.trail.broken = problem("audit_unavailable", "the disk is full")
    for name in ("deletes", "creates"):
        with pytest.raises(Unavailable) as refused:
            world.call(name)
        assert refused.value.status == 503
    assert (world.handlers.called, world.trail.told) == (0, [])


@pytest.mark.rule("A18")
def test_a_revocation_is_made_all_the_same_and_recorded_afterwards(world: World) -> None:
    world.trail.broken = problem("audit_unavailable", "the disk is full")
    world.call("revokes")
    assert (world.handlers.called, world.trail.told) == (
        1,
        [("revokes", "topic/t", "begun", None, ""), ("revokes", "topic/t", "done", 204, "")],
    )


def test_a_handler_that_says_nothing_of_its_change_is_a_fault(world: World) -> None:
    world.access.change(Policy({"e": Entry("key:ana", "topic", "u", ("create",))}, {}))
    with pytest.raises(RuntimeError, match="not recorded"):
        world.call("creates", "u")


def test_who_may_not_leaves_no_intent_and_is_counted(world: World) -> None:
    for name in ("deletes", "creates"):
        with pytest.raises(Refused):
            world.call(name, "other")
    with pytest.raises(Refused):
        world.call("deletes", principal=None)
    assert world.trail.denials == [
        ("key:ana", "192.0.2.1", "deletes", "forbidden"),
        ("key:ana", "192.0.2.1", "creates", "forbidden"),
        ("", "192.0.2.1", "deletes", "missing"),
    ]
    assert (world.handlers.called, world.trail.told) == (0, [])


@pytest.mark.rule("A64")
def test_of_a_name_without_end_a_little_is_recorded(world: World) -> None:
    with pytest.raises(Refused):
        world.call("deletes", "x" * 60_000)
    [told] = world.trail.refused
    assert told.resource == "topic/" + "x" * NAME_CHARS_MAX


@pytest.mark.rule("A17")
def test_requests_above_a_quota_are_refused_whole_and_told_when_to_come_again(world: World) -> None:
    world.quotas.change(
        {"q": Quota(principal="key:ana", requests_per_s=2.0), "t": Quota(topic="t", requests_per_s=9.0)}
    )
    for _ in range(4):
        world.call("lists")
    with pytest.raises(Unavailable) as refused:
        world.call("deletes")
    error = refused.value
    assert (error.status, error.error_code, error.retry_after_ms) == (429, "rate_limited", 500)
    assert error.members == {"scope": "principal", "limit": "requests_per_s"}
    assert world.trail.told == [], "what is refused for a quota is no change"
    world.clock.seconds += 0.5
    world.call("deletes")
    text = asyncio.run(world.metrics.text()).decode()
    assert f'{catalogue.RATE_LIMITED.name}{{scope="principal"}} 1.0' in text


@pytest.mark.rule("A49")
def test_what_somebody_may_not_costs_him_a_request_and_others_nothing(world: World) -> None:
    world.quotas.change(
        {
            "q": Quota(principal="key:ana", requests_per_s=1.0, burst_seconds=2.0),
            "t": Quota(topic="other", requests_per_s=1.0, burst_seconds=1.0),
        }
    )
    for _ in range(2):
        with pytest.raises(Refused):
            world.call("deletes", "other")
    for topic in ("other", "t"):
        with pytest.raises(Unavailable) as refused:
            world.call("deletes", topic)
        assert refused.value.members == {"scope": "principal", "limit": "requests_per_s"}
    assert (
        world.quotas.both("key:bob", "other", world.clock.seconds)[0].asking(world.clock.seconds, reads=False) is None
    )


def test_what_is_read_counts_for_the_next(world: World) -> None:
    world.quotas.change({"q": Quota(topic="t", read_bytes_per_s=100.0)})
    assert world.call("reads")["metered"].read(500) == pytest.approx(3.0)
    with pytest.raises(Unavailable) as refused:
        world.call("reads")
    assert refused.value.members == {"scope": "topic", "limit": "read_bytes_per_s"}
    assert world.call("deletes")["metered"] is None
    world.clock.seconds += 3.1
    world.call("reads")


def test_without_a_quota_nothing_is_counted_and_a_later_one_holds_for_what_is_open(world: World) -> None:
    meter = world.call("reads")["metered"]
    assert meter.read(10**9) == 0
    world.quotas.change({"q": Quota(principal="key:ana", read_bytes_per_s=100.0)})
    assert meter.read(500) == pytest.approx(3.0)
    meter.ask_topics(["u"])
    assert meter.read_of("u", 10**9) == 0, "of a path with a topic it is counted with the answer"
