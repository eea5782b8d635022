"""What stands above a handler is asked before it: by a door, a router and handlers in one process."""

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import problem
from siltlog.infra.http.connection.peer import KNOWN, PEER, Peer
from siltlog.infra.http.door import Door
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.header_fields import told_apart
from siltlog.infra.http.memory import InFlight
from siltlog.infra.http.operations import (
    ANY_CALLER,
    ANYBODY,
    FILTERED,
    IN_BODY,
    Reply,
    on_cluster,
    on_group,
    on_topic,
    operation,
)
from siltlog.infra.http.requests import BodyReader
from siltlog.infra.http.routes import routes_of
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.access import Entry, Policy, Subject
from siltlog.infra.security.grant import Access, Caller, Identity, grant_of, missing, unauthenticated
from siltlog.infra.security.origins import Origins
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.telemetry import logger

ENTRIES = {
    "e1": Entry("key:ana", "topic", "orders", ("create", "alter")),
    "e2": Entry("key:ana", "topic", "half", ("create",)),
    "e3": Entry("key:ana", "group", "reporting", ("read",)),
    "e4": Entry("key:ops", "cluster", "cluster", ("write",)),
}


def stated(path: str, access: Any, method: Any = "GET") -> Any:
    return operation(method, path, path, "Node", "", "", access=access, replies={200: Reply("")})


class Handlers:
    def __init__(self) -> None:
        self.called: list[str] = []

    def answer(self, request: Request, status: int = 200) -> Response:
        self.called.append(request.url.path)
        return Response(status_code=status)

    @stated("/anybody", ANYBODY)
    async def anybody(self, request: Request) -> Response:
        return self.answer(request)

    @stated("/caller", ANY_CALLER)
    async def caller(self, request: Request) -> Response:
        return self.answer(request)

    @stated("/topics/{topic}", on_topic("create", "alter"), "PUT")
    async def topic(self, request: Request) -> Response:
        return self.answer(request)

    @stated("/groups/{group}", on_group("read"))
    async def group(self, request: Request) -> Response:
        return self.answer(request)

    @stated("/cluster", on_cluster("write"), "POST")
    async def cluster(self, request: Request) -> Response:
        return self.answer(request)

    @stated("/filtered", FILTERED)
    async def filtered(self, request: Request) -> Response:
        if "asks" in request.query_params:
            grant_of(request).sees("topic", [])
        return self.answer(request)

    @stated("/in-body", IN_BODY, "POST")
    async def in_body(self, request: Request) -> Response:
        if "asks" in request.query_params:
            grant_of(request).require("create", "topic", "orders")
        return self.answer(request, 404 if "refuses" in request.query_params else 200)


class ByName:
    """Takes a token for the name of a key."""

    def __init__(self) -> None:
        self.access = Access(SystemClock(), Policy(ENTRIES, {}))
        self.callers: list[Caller] = []

    def identify(self, caller: Caller) -> Any:
        self.callers.append(caller)
        token = (caller.authorization or b"").removeprefix(b"Bearer ").decode()
        if not token:
            raise missing()
        if token == "wrong":
            raise unauthenticated("unknown", "there is no such key")
        if token == "twice":
            raise problem("invalid_parameter", "two credentials")
        identity = Identity(Subject(f"key:{token.removeprefix('slow-')}"))
        return self.later(identity) if token.startswith("slow-") else identity

    async def later(self, identity: Identity) -> Identity:
        await asyncio.sleep(0)
        return identity

    def known(self, caller: Caller) -> Identity | None:
        return None


class Called:
    def __init__(self, *, asks_who: bool = True) -> None:
        self.handlers = Handlers()
        self.identification = ByName() if asks_who else None
        in_flight = InFlight(1_000, SystemClock())
        self.door = Door(
            Router(routes_of(self.handlers)),
            proxies=Proxies(()),
            origins=Origins((), ["https://app.example"]),
            overload=lambda: problem("overloaded", "too many"),
            bodies=BodyReader(1_000, 1_000, in_flight),
            in_flight=in_flight,
            draining=Draining(),
            logger=logger("info", "json"),
            metrics=Metrics(),
            identification=self.identification,
        )

    def __call__(self, method: str, target: str, token: str = "", **headers: str) -> tuple[int, dict[str, str]]:
        path, _, query = target.partition("?")
        fields = [(b"host", b"localhost"), *((name.lower().encode(), it.encode()) for name, it in headers.items())]
        if token:
            fields.append((b"authorization", f"Bearer {token}".encode()))
        sent: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("the body is not read before it is known who sends it")

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("localhost", 80),
            "query_string": query.encode(),
            "headers": fields,
            "state": {PEER: Peer("192.0.2.7"), KNOWN: lambda: None},
        }
        asyncio.run(self.door(scope, receive, send))
        return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.mark.rule("A9")
@pytest.mark.parametrize(
    ("method", "path", "token", "status"),
    [
        ("GET", "/anybody", "", 200),
        ("GET", "/anybody", "wrong", 200),
        ("GET", "/caller", "", 401),
        ("GET", "/caller", "wrong", 401),
        ("GET", "/caller", "stranger", 200),
        ("GET", "/caller", "slow-stranger", 200),
        ("HEAD", "/caller", "", 401),
        ("PUT", "/topics/orders", "", 401),
        ("PUT", "/topics/orders", "ana", 200),
        ("PUT", "/topics/orders", "slow-ana", 200),
        ("PUT", "/topics/half", "ana", 403),
        ("PUT", "/topics/orders", "ops", 403),
        ("GET", "/groups/reporting", "ana", 200),
        ("GET", "/groups/orders", "ana", 403),
        ("HEAD", "/groups/orders", "ana", 403),
        ("POST", "/cluster", "ops", 200),
        ("POST", "/cluster", "ana", 403),
        ("GET", "/filtered?asks", "", 401),
        ("GET", "/filtered?asks", "stranger", 200),
        ("POST", "/in-body?asks", "ana", 200),
        ("POST", "/in-body?asks", "ops", 403),
        ("POST", "/in-body", "", 401),
        ("GET", "/caller", "twice", 400),
        ("GET", "/anybody", "twice", 400),
    ],
)
def test_access_is_asked_before_the_handler(method: str, path: str, token: str, status: int) -> None:
    called = Called()
    found, headers = called(method, path, token)
    assert found == status
    assert headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
    reached = status == 200
    assert called.handlers.called == [path.partition("?")[0]] * reached


@pytest.mark.rule("A9")
def test_nobody_is_asked_where_nobody_has_to_say_who_he_is() -> None:
    called = Called(asks_who=False)
    for method, path in (("GET", "/caller"), ("PUT", "/topics/x"), ("POST", "/cluster"), ("POST", "/in-body")):
        assert called(method, path, "wrong")[0] == 200


@pytest.mark.rule("A10")
@pytest.mark.parametrize(("method", "path"), [("GET", "/filtered"), ("POST", "/in-body")])
def test_an_answer_about_which_nobody_asked_is_an_error(
    method: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = Called()
    assert called(method, path, "ana")[0] == 500
    logged = json.loads(capsys.readouterr().err)
    assert (logged["level"], logged["path"]) == ("error", path)
    assert "nobody asked" in logged["exception"]
    assert called(method, path + "?asks", "ana")[0] == 200


def test_a_refusal_need_not_have_asked() -> None:
    assert Called()("POST", "/in-body?refuses", "ana")[0] == 404


def test_a_page_asks_before_it_says_who_it_is() -> None:
    called = Called()
    asks = {"origin": "https://app.example", "access-control-request-method": "PUT"}
    assert called("OPTIONS", "/topics/orders", **asks)[0] == 204
    status, headers = called("PUT", "/topics/orders", origin="https://app.example")
    assert (status, headers["access-control-allow-origin"]) == (401, "https://app.example")


def test_what_a_caller_is_told_by() -> None:
    called = Called()
    called("GET", "/caller?a=b", "ana", **{"sec-websocket-protocol": "silt.v1"})
    assert called.identification is not None
    (caller,) = called.identification.callers
    assert caller == Caller(
        b"localhost",
        address="192.0.2.7",
        authorization=b"Bearer ana",
        query=b"a=b",
        protocols=b"silt.v1",
    )
    assert "ana" not in repr(caller)


@pytest.mark.parametrize("second", ["ana", "other"])
def test_two_credentials_are_none(second: str) -> None:
    fields, refusal = told_apart([(b"authorization", b"Bearer ana"), (b"authorization", f"Bearer {second}".encode())])
    assert fields == []
    assert refusal is not None
    assert (refusal.status, refusal.members) == (400, {"parameter": "Authorization"})
