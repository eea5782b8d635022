"""What only shows over time or between two callers: streams that are asked again, members and keys of others, pages."""

import json
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from access_rig import altered
from callers_rig import Answer, Caller, Keys, asking_server, entry, role
from push_rig import EventStream, Socket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from siltlog.infra import names
from siltlog.infra.security.access import Entry
from siltlog.server_process import ServerProcess

T = TypeVar("T")
ORIGIN = "https://app.example"
TIMEOUT_S = 25.0
WAIT_MS = 30_000
READER = (role("consumer", "own-"),)
JOIN = {"generation": 0, "topics": ["own-t"]}


class World:
    def __init__(self, server: ServerProcess, keys: Keys) -> None:
        self.server, self.keys = server, keys
        self.root = Caller(server, keys.tokens["root"])

    def caller(self, name: str, *grants: Any) -> Caller:
        """A caller whose key the server knows."""
        if any(isinstance(one, Entry) for one in grants):
            self.keys.add(name, *grants)
            self.keys.held_by(self.root)
        else:
            # At once, where it is made on the server itself.
            roles = [{"role": one.role, "prefix": one.prefix} for one in grants]
            made = self.root.call("POST", "/v1/access/keys", {"name": name, "bindings": roles})
            assert made.status == 201, made
            self.keys.tokens[name], self.keys.ids[name] = made.json["key"], made.json["id"]
        return Caller(self.server, self.keys.tokens[name])

    def expiring(self, names: Collection[str], *grants: Any, seconds: float) -> dict[str, Caller]:
        """Callers whose keys the server knows, and that end in half of `seconds` at the earliest."""
        left = 0.0
        while left < seconds / 2:
            # Where the server takes longer to hear of them than they have, others have more time.
            seconds *= 1 + (left < 0)
            ends = time.monotonic() + seconds
            for name in names:
                self.keys.add(name, *grants, seconds=seconds)
            self.keys.held_by(self.root)
            left = ends - time.monotonic()
        return {name: Caller(self.server, self.keys.tokens[name]) for name in names}

    def grant(self, name: str, *grants: Any) -> None:
        self.keys.grant(name, *grants)

    def when(self, there: Callable[[], bool]) -> None:
        until = time.monotonic() + TIMEOUT_S
        while not there():
            assert time.monotonic() < until, "it never is"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("calls")
    with asking_server(folder, redis_url=valkey_url, auto_create_partitions=0, cors_origins=ORIGIN) as (server, keys):
        it = World(server, keys)
        for topic in ("own-t", "own-u", "other-t"):
            assert it.root.call("PUT", f"/v1/topics/{topic}", {}).status == 201
        yield it


@contextmanager
def tailing(caller: Caller, topic: str = "own-t") -> Iterator[EventStream]:
    connection = caller.connection()
    connection.request("GET", f"/v1/topics/{topic}/tail", headers={**caller.headers, "Accept": names.MEDIA_EVENTS})
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    try:
        stream = EventStream(reply)
        stream.next()
        yield stream
    finally:
        reply.close()
        connection.close()


@contextmanager
def talking(world: World, path: str, token: str, *, in_protocol: bool = False, also: str = "") -> Iterator[Socket]:
    protocols: list[Any] = [names.SUBPROTOCOL]
    headers = {"Authorization": f"Bearer {token}"}
    if in_protocol:
        protocols.append(f"silt.bearer.{token}")
        headers = {}
    url = world.server.url.replace("http", "ws", 1) + path
    with connect(url, subprotocols=protocols, additional_headers=headers, open_timeout=TIMEOUT_S) as connection:
        yield Socket(connection)


def ended(stream: EventStream) -> dict[str, Any]:
    """The problem that a stream ends with."""
    while True:
        event = stream.next()
        assert event is not None, "it ended without a word"
        if event.kind == "problem":
            assert stream.next() is None
            problem: dict[str, Any] = event.data
            return problem


Change = Callable[[World, str], None]
CHANGES: dict[str, tuple[Change, str]] = {
    "revoked": (lambda world, name: world.keys.revoke(name), "unauthenticated"),
    "ungranted": (lambda world, name: world.grant(name, role("consumer", "else-")), "forbidden"),
    "denied": (
        lambda world, name: world.grant(name, *READER, entry("topic", "own-t", "read", effect="deny")),
        "forbidden",
    ),
}
CHANGED = pytest.mark.parametrize("change", CHANGES)


@CHANGED
@pytest.mark.rule("A35")
def test_an_event_stream_ends_once_it_may_not_go_on(world: World, change: str) -> None:
    name = f"sse-{change}"
    caller = world.caller(name, *READER)
    with tailing(caller) as stream:
        act, code = CHANGES[change]
        act(world, name)
        assert ended(stream)["error_code"] == code


@CHANGED
@pytest.mark.rule("A35")
@pytest.mark.parametrize("path", ["/v1/topics/own-t/ws", "/v1/groups/own-ws/ws?topics=own-t"])
def test_a_websocket_is_closed_once_it_may_not_go_on(world: World, change: str, path: str) -> None:
    name = f"ws-{change}-{path.count('groups')}"
    world.caller(name, *READER)
    with talking(world, path, world.keys.tokens[name]) as socket:
        socket.say("credit", records=10)
        act, code = CHANGES[change]
        act(world, name)
        closed, said = socket.closed()
        assert (closed, said[-1]["type"], said[-1]["error_code"]) == (1008, "problem", code)


def waiting(call: Callable[[], T]) -> Callable[[], T]:
    """Begins a call; what is returned waits for its answer."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()

    def answer() -> T:
        thread.join(TIMEOUT_S)
        assert found, "it goes on"
        return found[0]

    return answer


@CHANGED
@pytest.mark.rule("A35")
@pytest.mark.parametrize("how", ["fetch", "read", "files", "heartbeat", "poll"])
def test_a_long_poll_ends_once_it_may_not_go_on(world: World, change: str, how: str) -> None:
    name = f"poll-{how}-{change}"
    caller = world.caller(name, *READER)
    group = f"own-{how}-{change}"
    end = caller.call("GET", "/v1/topics/own-t/offsets").json["partitions"][0]["high_watermark"]
    position = {"partitions": [{"topic": "own-t", "partition": 0, "offset": end}], "wait_ms": WAIT_MS}
    generation = 0
    if how in ("heartbeat", "poll"):
        joined = caller.call("PUT", f"/v1/groups/{group}/members/m", {**JOIN, "auto_offset_reset": "latest"})
        generation = joined.json["generation"]
    calls: dict[str, tuple[str, str, Any]] = {
        "fetch": ("POST", "/v1/fetch", position),
        "read": ("GET", f"/v1/topics/own-t/partitions/0/records?offset={end}&wait_ms={WAIT_MS}", None),
        "files": ("POST", "/v1/files", position),
        "heartbeat": ("PUT", f"/v1/groups/{group}/members/m", {"generation": generation, "wait_ms": WAIT_MS}),
        "poll": ("POST", f"/v1/groups/{group}/members/m/poll", {"generation": generation, "wait_ms": WAIT_MS}),
    }
    answer = waiting(lambda: caller.call(*calls[how]))
    act, code = CHANGES[change]
    act(world, name)
    got = answer()
    if change == "denied" and how == "heartbeat":
        assert got.status == 200, "it may still be a member, without the topic"
    elif change != "revoked" and how in ("fetch", "files"):
        assert [part["error"]["error_code"] for part in got.json["partitions"]] == [code]
    elif change == "denied" and how == "poll":
        # Or the partition was taken before it was read.
        assert [part["error"]["error_code"] for part in got.json["partitions"]] in ([code], [])
    else:
        assert got.json["error_code"] == code, got


STREAMS = ("events", "topic", "group")
POLLS = ("fetch", "heartbeat", "poll")


@pytest.fixture(scope="module")
def expiring(world: World) -> dict[str, Callable[[], Any]]:
    """Streams and long polls whose credentials end meanwhile. All wait at the same time; each gives what it hears."""

    def tailed(caller: Caller) -> dict[str, Any]:
        with tailing(caller) as stream:
            return ended(stream)

    def talked(path: str, token: str) -> dict[str, Any]:
        with talking(world, path, token) as socket:
            closed, said = socket.closed()
            assert closed == 1008
            return said[-1]

    callers = world.expiring((*STREAMS, *POLLS), *READER, seconds=10.0)
    tokens, joined = world.keys.tokens, {"generation": 0, "topics": ["own-u"]}
    beats, polls = (f"/v1/groups/own-waits-{how}/members/m" for how in ("heartbeat", "poll"))
    waits = {"wait_ms": WAIT_MS}
    beat = {"generation": callers["heartbeat"].call("PUT", beats, joined).json["generation"]}
    position = {"topic": "own-u", "partition": 0, "offset": 0}
    calls: dict[str, Callable[[], Any]] = {
        "events": lambda: tailed(callers["events"]),
        "topic": lambda: talked("/v1/topics/own-t/ws", tokens["topic"]),
        "group": lambda: talked("/v1/groups/own-x/ws?topics=own-t", tokens["group"]),
        "fetch": lambda: callers["fetch"].call("POST", "/v1/fetch", {"partitions": [position], **waits}),
        "heartbeat": lambda: callers["heartbeat"].call("PUT", beats, beat | waits),
        "poll": lambda: callers["poll"].call("POST", f"{polls}/poll", joined | waits),
    }
    return {how: waiting(call) for how, call in calls.items()}


@pytest.mark.slow
@pytest.mark.rule("A35")
@pytest.mark.parametrize("how", STREAMS)
def test_a_stream_ends_with_its_credential(expiring: dict[str, Callable[[], Any]], how: str) -> None:
    told = expiring[how]()
    assert (told["error_code"], told["reason"]) == ("unauthenticated", "expired")


@pytest.mark.rule("A35")
@pytest.mark.parametrize("how", POLLS)
def test_a_long_poll_ends_with_its_credential(expiring: dict[str, Callable[[], Any]], how: str) -> None:
    got = expiring[how]()
    assert (got.status, got.json["reason"]) == (401, "expired"), got


@pytest.mark.rule("A12")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics/own-t/records", {"records": [{"value": "by a stolen key"}]}),
        ("PATCH", "/v1/topics/own-t", {"config": {"retention.ms": 77_777_777}}),
    ],
)
def test_what_was_on_its_way_when_a_key_was_revoked_is_refused(
    world: World, method: str, path: str, body: dict[str, Any]
) -> None:
    def there() -> tuple[Any, Any]:
        offsets = world.root.call("GET", "/v1/topics/own-t/offsets").json["partitions"]
        return [one["high_watermark"] for one in offsets], world.root.call("GET", "/v1/topics/own-t").json["config"]

    name, before = f"half-{method}", there()
    world.caller(name, role("producer", "own-"), role("operator", "own-"))
    text, place = json.dumps(body), urlsplit(world.server.url)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {world.keys.tokens[name]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), TIMEOUT_S) as connection:
        connection.sendall(head.encode())
        # The server waits for the body: it has let the request in.
        assert b" 100 " in connection.recv(1_000)
        connection.sendall(text[:10].encode())
        assert world.root.call("DELETE", f"/v1/access/keys/{world.keys.ids[name]}").status == 204
        connection.sendall(text[10:].encode())
        assert b" 401 " in connection.recv(1_000)
    assert there() == before


@pytest.mark.rule("A34")
@pytest.mark.parametrize("topic", ["other-t", "other-missing"])
def test_a_commit_tells_nothing_of_topics_that_may_not_be_read(world: World, topic: str) -> None:
    caller = world.caller(f"commits-{topic}", *READER)
    offsets = [{"topic": topic, "partition": 0, "offset": 0}]
    path = f"/v1/groups/own-commits-{topic}"
    generation = caller.call("PUT", f"{path}/members/m", JOIN).json["generation"]
    polled = caller.call("POST", f"{path}/members/m/poll", {"generation": generation, "commit": offsets})
    own = {"member_id": "m", "generation": generation, "offsets": offsets}
    for answer in (
        polled,
        caller.call("PUT", f"{path}/offsets", own),
        caller.call("PUT", f"{path}/offsets", {"offsets": offsets}),
    ):
        assert (answer.status, answer.json["name"]) == (403, topic), answer
    with talking(world, f"{path}/ws?topics=own-t", world.keys.tokens[f"commits-{topic}"]) as socket:
        socket.until("assigned")
        socket.say("commit", offsets=offsets)
        closed, said = socket.closed()
        assert (closed, said[-1]["error_code"], said[-1]["name"]) == (1008, "forbidden", topic)


@pytest.mark.rule("A36")
def test_a_websocket_takes_its_token_as_a_subprotocol_and_never_says_it(world: World) -> None:
    world.caller("page", *READER)
    token = world.keys.tokens["page"]
    with talking(world, "/v1/topics/own-t/ws", token, in_protocol=True) as socket:
        assert socket.connection.subprotocol == names.SUBPROTOCOL
        assert socket.connection.response is not None
        assert token not in str(socket.connection.response.headers)
    for wrong in (altered(token), "x"):
        with pytest.raises(InvalidStatus) as refused, talking(world, "/v1/topics/own-t/ws", wrong, in_protocol=True):
            pass
        assert refused.value.response.status_code == 401
        assert wrong.encode() not in refused.value.response.body


@pytest.mark.rule("A36")
@pytest.mark.parametrize(
    "offered", ["silt.v1, silt.bearer.{}, (", "silt.bearer.{}", "silt.v1 silt.bearer.{}", ",,silt.bearer.{}"]
)
def test_what_is_refused_of_a_handshake_is_not_quoted(world: World, offered: str) -> None:
    token = world.caller(f"quoted-{len(offered)}", *READER).headers["Authorization"].split()[1]
    caller = Caller(world.server, None)
    answer = caller.begun(
        "/v1/topics/own-t/ws",
        Upgrade="websocket",
        Connection="Upgrade",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
        Sec_WebSocket_Protocol=offered.format(token),
    )
    assert answer.status in (400, 401), answer
    assert token.encode() not in answer.body
    assert token not in str(answer.headers)


@pytest.mark.rule("A2")
def test_the_member_of_another_principal_is_left_alone_over_every_door(world: World) -> None:
    alice, bob = world.caller("alice", *READER), world.caller("bob", *READER)
    joined = alice.call("PUT", "/v1/groups/own-pair/members/m", {**JOIN, "instance_id": "i"})
    generation = joined.json["generation"]
    own = {"member_id": "m", "generation": generation}
    record = {"topic": "own-t", "partition": 0, "offset": 0}
    calls: list[tuple[str, str, Any]] = [
        ("DELETE", "members/m", None),
        ("PUT", "members/m", {"generation": generation}),
        ("PUT", "members/n", {**JOIN, "instance_id": "i"}),
        ("POST", "members/m/poll", {"generation": generation}),
        ("PUT", "offsets", {**own, "offsets": [record]}),
    ]
    for method, path, body in calls:
        answer = bob.call(method, f"/v1/groups/own-pair/{path}", body)
        assert (answer.status, answer.json["error_code"]) == (403, "forbidden"), (path, answer)
    members = world.root.call("GET", "/v1/groups/own-pair").json["members"]
    assert [member["member_id"] for member in members] == ["m"]
    alice.call("PUT", "/v1/groups/own-pair/members/m", {"generation": generation}).json["generation"]
    with talking(world, "/v1/groups/own-pair/ws?topics=own-t&member=m", world.keys.tokens["bob"]) as socket:
        closed, said = socket.closed()
        assert (closed, said[-1]["error_code"]) == (1008, "forbidden")
    assert alice.call("PUT", "/v1/groups/own-pair/members/m", {"generation": generation}).status == 200
    assert world.root.call("DELETE", "/v1/groups/own-pair/members/m").status == 204, "who may alter the group may"


@pytest.mark.rule("A2")
def test_the_connection_of_another_principals_member_stays(world: World) -> None:
    world.caller("carol", *READER)
    world.caller("dan", *READER)
    path = "/v1/groups/own-sockets/ws?topics=own-t&member=m"
    with talking(world, path, world.keys.tokens["carol"]) as first:
        first.until("assigned")
        with talking(world, path, world.keys.tokens["dan"]) as other:
            assert other.closed()[0] == 1008
        first.say("credit", records=1)
        world.root.call("POST", "/v1/topics/own-t/records", {"records": [{"value": "x"}]})
        assert first.records(1)


@pytest.mark.rule("A3")
def test_a_pattern_matches_what_the_member_may_read_and_follows_it(world: World) -> None:
    caller = world.caller("pattern", *READER, entry("topic", "own-u", "read", effect="deny"))
    path = "/v1/groups/own-pattern/members/m"
    told = caller.call("PUT", path, {"generation": 0, "topic_pattern": ".*"}).json
    assert [at["topic"] for at in told["assignment"]] == ["own-t"]
    generation = told["generation"]
    world.grant("pattern", *READER)

    def has(*topics: str) -> bool:
        nonlocal generation
        told = caller.call("PUT", path, {"generation": generation}).json
        if told["assignment"] is None:
            return False
        generation = told["generation"]
        return {at["topic"] for at in told["assignment"]} == set(topics)

    world.when(lambda: has("own-t", "own-u"))
    world.grant("pattern", *READER, entry("topic", "own-t", "read", effect="deny"))
    world.when(lambda: has("own-u"))


@pytest.mark.rule("A37")
@pytest.mark.parametrize("headers", [{}, {"Long": "1"}])
def test_an_idempotency_key_is_its_principals(world: World, headers: dict[str, str]) -> None:
    name = f"keyed-{len(headers)}"
    callers = [world.caller(f"{name}-{number}", role("producer", "own-")) for number in range(2)]

    def publish(caller: Caller, value: str) -> Answer:
        body = {"records": [{"value": value}]}
        return caller.call("POST", "/v1/topics/own-t/records", body, Idempotency_Key=name, **headers)

    first, other = publish(callers[0], "mine"), publish(callers[1], "another's")
    assert (first.status, other.status) == (200, 200)
    assert first.json["partitions"][0]["first_offset"] < other.json["partitions"][0]["first_offset"]
    for caller, value in ((callers[0], "mine"), (callers[1], "another's")):
        assert publish(caller, value).json["partitions"][0]["duplicate"] is True


@pytest.mark.rule("A40")
def test_unknown_paths_and_methods_are_told_to_who_says_who_he_is(world: World) -> None:
    nobody, somebody = Caller(world.server, None), world.caller("somebody")
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("DELETE", "/v1/topics", 405),
        ("GET", "/v1/topics/own-t/records", 405),
        ("GET", "/nothing", 404),
    ):
        assert nobody.call(method, path).status == 401, path
        assert somebody.call(method, path).status == status, path


def test_a_preflight_and_what_is_refused_can_be_read_by_the_page(world: World) -> None:
    nobody = Caller(world.server, None)
    asked = nobody.call("OPTIONS", "/v1/topics", Origin=ORIGIN, Access_Control_Request_Method="GET")
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, ORIGIN)
    refused = nobody.call("GET", "/v1/topics", Origin=ORIGIN)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)


@pytest.mark.rule("A38")
def test_rows_of_a_group_and_nodes_are_left_out_for_who_may_not_see_them(world: World) -> None:
    offsets = [{"topic": topic, "partition": 0, "offset": 0} for topic in ("own-t", "other-t")]
    assert world.root.call("PUT", "/v1/groups/own-rows/offsets", {"offsets": offsets}).status == 204
    viewer = world.caller("own-viewer", role("viewer", "own-"))
    for caller, topics in ((world.root, ["other-t", "own-t"]), (viewer, ["own-t"])):
        group = caller.call("GET", "/v1/groups/own-rows").json
        assert [row["topic"] for row in group["partitions"]] == topics
        kept = caller.call("GET", "/v1/groups/own-rows/offsets").json["offsets"]
        assert [row["topic"] for row in kept] == topics
    joined = {"generation": 0, "topics": ["own-t", "other-t"]}
    assert world.root.call("PUT", "/v1/groups/own-rows/members/m", joined).status == 200
    [member] = viewer.call("GET", "/v1/groups/own-rows").json["members"]
    assert (member["topics"], member["assignment"]) == (["own-t"], [{"topic": "own-t", "partition": 0}])
    assert (
        len(world.root.call("GET", "/v1/cluster").json["nodes"]),
        viewer.call("GET", "/v1/cluster").json["nodes"],
    ) == (
        1,
        [],
    )


@pytest.mark.rule("A38")
def test_a_reset_tells_nothing_of_topics_that_may_not_be_seen(world: World) -> None:
    offsets = [{"topic": "own-t", "partition": 0, "offset": 0}]
    assert world.root.call("PUT", "/v1/groups/own-reset/offsets", {"offsets": offsets}).status == 204
    operator = world.caller("resetting", entry("group", "own-reset", "alter"), entry("topic", "own-t", "describe"))
    for topic, status in (("own-t", 200), ("other-t", 403), ("own-missing", 403)):
        body = {"topics": [topic], "to": "earliest"}
        assert operator.call("POST", "/v1/groups/own-reset/offsets/reset", body).status == status, topic


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/groups"])
def test_a_list_with_no_name_to_ask_for_is_empty(world: World, path: str) -> None:
    assert world.root.call("GET", f"{path}?prefix=z&after=zz").status == 200
