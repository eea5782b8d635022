"""Every operation, by every role, on what is its own, another's and the system's, against a second table of rights."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from callers_rig import LOCAL, Answer, Caller, asking_server, entry, role
from chaos import CHAOS

from siltlog.infra import names
from siltlog.server.api import OPERATIONS

Needed = list[tuple[str, str, str]]
"""(right, kind, name), all of which are needed."""

# The roles and what they may do, written down once more: nothing of the server's decisions is used.
ROLES: dict[str, dict[str, str]] = {
    "admin": {
        "topic": "read write create alter delete describe",
        "group": "read alter delete describe",
        "cluster": "describe write alter admin",
    },
    "operator": {
        "topic": "describe create alter delete",
        "group": "describe alter delete",
        "cluster": "describe write alter",
    },
    "producer": {"topic": "write"},
    "consumer": {"topic": "read", "group": "read"},
    "viewer": {"topic": "describe", "group": "describe", "cluster": "describe"},
}
OWN = "own-"
PRINCIPALS: dict[str, list[tuple[str, str]]] = {
    "stranger": [],
    **{f"own-{name}": [(name, OWN)] for name in ROLES},
    **{f"all-{name}": [(name, "")] for name in ROLES},
    "own-both": [("producer", OWN), ("consumer", OWN)],
}
"""Roles and the prefix they are for."""
ENTRIES: dict[str, list[tuple[str, str, str]]] = {
    "dead-only": [("topic", "own-t.dlq", "read"), ("group", "own-g", "read")],
    "jobs": [("topic", "_jobs", "read")],
}
"""Rights to single names."""
CALLERS = ("nobody", *PRINCIPALS, *ENTRIES, LOCAL)
RESOURCES = (
    ("own-t", "own-g"),
    ("other-t", "other-g"),
    ("own-t", "other-g"),
    ("other-t", "own-g"),
    ("own-none", "own-none"),
    ("other-none", "other-none"),
    ("own-t.dlq", "own-g"),
    ("_offsets", "own-g"),
    ("_jobs", "own-g"),
)
THERE = ("own-t", "other-t")
MEMBER = "m"


def may(caller: str, right: str, kind: str, name: str) -> bool:
    if caller == LOCAL:
        return True
    implied = {"read", "write", "alter", "delete", "admin", "describe"} if right == "describe" else {right}
    for one, prefix in PRINCIPALS.get(caller, ()):
        rights = set(ROLES[one].get(kind, "").split())
        if kind == "cluster":
            reached = prefix == ""
        elif name.startswith("_"):
            reached = one == "admin" and prefix == ""
        else:
            reached = name.startswith(prefix)
        if reached and rights & implied:
            return True
    return any((kind, name) == (of, at) and has in implied for of, at, has in ENTRIES.get(caller, ()))


def reads(topic: str) -> Needed:
    """Dead letters are records of their topic."""
    base = topic.removesuffix(".dlq")
    return [("read", "topic", topic)] + ([("read", "topic", base)] if base != topic else [])


@dataclass
class Row:
    """What an operation needs for a topic and a group, and a call of it."""

    needs: Callable[[str, str], Needed]
    method: str
    path: str
    body: Callable[[str, str], Any] | None = None
    kind: str = "plain"
    """`open`: for anybody; `caller`: for any principal; `parts`: refused part by part; `stream`: its beginning."""
    destroys: bool = False
    callers: tuple[str, ...] = CALLERS
    resources: tuple[tuple[str, str], ...] = RESOURCES


def on(kind: str, *rights: str) -> Callable[[str, str], Needed]:
    return lambda topic, group: [
        (right, kind, {"topic": topic, "group": group, "cluster": "cluster"}[kind]) for right in rights
    ]


def nothing(topic: str, group: str) -> Needed:
    return []


def member(topic: str, group: str) -> Needed:
    return [("read", "group", group), *reads(topic)]


def at(topic: str) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "offset": 0}


def made(topic: str, group: str) -> Needed:
    """A publish makes a topic that is not there."""
    missing = topic.endswith("-none")
    return [("write", "topic", topic), *([("create", "topic", topic)] if missing else [])]


RECORDS = {"records": [{"value": "x"}]}
RUN = {
    "run_id": "r",
    "job": "retain",
    "outcome": "succeeded",
    "started_at": "2026-11-21T07:36:00Z",
    "ended_at": "2026-11-21T07:36:01Z",
}
T, G = "/v1/topics/{topic}", "/v1/groups/{group}"
JOIN = {"generation": 0, "session_timeout_ms": 3_600_000}
ATTEMPT = {"member_id": MEMBER, "generation": 1}
TABLE: dict[str, Row] = {
    "publish": Row(made, "POST", f"{T}/records", lambda t, g: RECORDS, destroys=True),
    "claimProducer": Row(on("topic", "write"), "POST", f"{T}/producers/p"),
    "describeProducer": Row(on("topic", "describe"), "GET", f"{T}/producers/p"),
    "readRecords": Row(lambda t, g: reads(t), "GET", f"{T}/partitions/0/records"),
    "fetch": Row(lambda t, g: reads(t), "POST", "/v1/fetch", lambda t, g: {"partitions": [at(t)]}, "parts"),
    "listOffsets": Row(on("topic", "describe"), "GET", f"{T}/offsets"),
    "listFiles": Row(lambda t, g: reads(t), "POST", "/v1/files", lambda t, g: {"partitions": [at(t)]}, "parts"),
    "searchTopic": Row(lambda t, g: reads(t), "POST", f"{T}/search", lambda t, g: {}),
    "runSql": Row(
        lambda t, g: reads(t),
        "POST",
        "/v1/sql",
        lambda t, g: {"sql": f'select 1 from "{t}" limit 0'},
        # Each call has a process, and asks for the same rights as `readRecords`, which everybody calls.
        callers=CALLERS
        if CHAOS > 1
        else ("nobody", "own-producer", "own-consumer", "all-consumer", "dead-only", LOCAL),
        resources=(("own-t", "own-g"), ("other-t", "own-g"), ("other-none", "own-g"), ("own-t.dlq", "own-g")),
    ),
    "deleteRecords": Row(on("topic", "delete"), "DELETE", f"{T}/partitions/0/records?before_offset=0"),
    "tailTopic": Row(lambda t, g: reads(t), "GET", f"{T}/tail", kind="stream"),
    "openTopicSocket": Row(lambda t, g: reads(t), "GET", f"{T}/ws", kind="stream"),
    "openGroupSocket": Row(member, "GET", f"{G}/ws?topics={{topic}}", kind="stream"),
    "listTopics": Row(nothing, "GET", "/v1/topics?limit=1000", kind="caller"),
    "createTopic": Row(on("topic", "create"), "POST", "/v1/topics", lambda t, g: {"name": t}, destroys=True),
    "putTopic": Row(on("topic", "create", "alter"), "PUT", T, lambda t, g: {}, destroys=True),
    "describeTopic": Row(on("topic", "describe"), "GET", T),
    "describeTopicHealth": Row(on("topic", "describe"), "GET", f"{T}/health"),
    "listTopicFiles": Row(on("topic", "describe"), "GET", f"{T}/files"),
    "alterTopic": Row(on("topic", "alter"), "PATCH", T, lambda t, g: {}),
    "deleteTopic": Row(on("topic", "delete"), "DELETE", T, destroys=True),
    "heartbeat": Row(member, "PUT", f"{G}/members/{{who}}", lambda t, g: {**JOIN, "topics": [t]}),
    "leaveGroup": Row(on("group", "read"), "DELETE", f"{G}/members/{{who}}"),
    "poll": Row(member, "POST", f"{G}/members/{{who}}-p/poll", lambda t, g: {**JOIN, "topics": [t]}),
    "commitOffsets": Row(member, "PUT", f"{G}/offsets", lambda t, g: {"offsets": [at(t)]}),
    "resetGroupOffsets": Row(
        lambda t, g: [("alter", "group", g), ("describe", "topic", t)],
        "POST",
        f"{G}/offsets/reset",
        lambda t, g: {"topics": [t], "to": "earliest"},
    ),
    "listGroups": Row(nothing, "GET", "/v1/groups?limit=1000", kind="caller"),
    "describeGroup": Row(on("group", "describe"), "GET", G),
    "listGroupOffsets": Row(on("group", "describe"), "GET", f"{G}/offsets"),
    "deleteGroup": Row(on("group", "delete"), "DELETE", G, destroys=True),
    "countAttempt": Row(member, "POST", f"{G}/attempts", lambda t, g: {**at(t), **ATTEMPT}),
    "giveUpRecord": Row(member, "POST", f"{G}/dead_letters", lambda t, g: {**at(t), **ATTEMPT, "error": "e"}),
    "nack": Row(
        member,
        "POST",
        f"{G}/members/{{who}}-p/nack",
        lambda t, g: {**at(t), "generation": ATTEMPT["generation"], "error": "e"},
    ),
    "listDeadLetters": Row(lambda t, g: reads(f"{t}.dlq"), "GET", f"{T}/dlq"),
    "discardDeadLetters": Row(on("topic", "delete"), "POST", f"{T}/dlq/discard", lambda t, g: {}),
    "replayDeadLetters": Row(
        lambda t, g: [("read", "topic", f"{t}.dlq"), ("write", "topic", t)],
        "POST",
        f"{T}/dlq/replay",
        lambda t, g: {"replay_id": "r"},
    ),
    "listJobRuns": Row(on("cluster", "describe"), "GET", "/v1/jobs"),
    "recordJobRun": Row(on("cluster", "write"), "POST", "/v1/jobs", lambda t, g: RUN),
    "beginJobRun": Row(on("cluster", "alter"), "POST", "/v1/jobs/none/runs"),
    "stopJobRun": Row(on("cluster", "alter"), "DELETE", "/v1/jobs/none/runs/none"),
    "describeSchedule": Row(on("cluster", "describe"), "GET", "/v1/schedule"),
    "index": Row(nothing, "GET", "/", kind="open"),
    "health": Row(nothing, "GET", "/healthz", kind="open"),
    "ready": Row(nothing, "GET", "/readyz", kind="open"),
    "metrics": Row(on("cluster", "describe"), "GET", "/metrics"),
    "metricsHistory": Row(nothing, "GET", "/v1/metrics/history?series=silt_ready", kind="caller"),
    "watchServer": Row(nothing, "GET", "/v1/events", kind="stream"),
    "describeConfig": Row(on("cluster", "describe"), "GET", "/v1/config"),
    "changeConfig": Row(on("cluster", "alter"), "PATCH", "/v1/config", lambda t, g: {}),
    "describeCluster": Row(nothing, "GET", "/v1/cluster", kind="caller"),
    "describeDrain": Row(on("cluster", "describe"), "GET", "/v1/drain"),
    # Who may is told that there is no such parameter: publishes are to go on.
    "beginDrain": Row(on("cluster", "alter"), "POST", "/v1/drain?x=1"),
    "profile": Row(on("cluster", "admin"), "POST", "/v1/debug/profile", lambda t, g: {"kind": "tasks"}),
    "endDrain": Row(on("cluster", "alter"), "DELETE", "/v1/drain"),
    "settle": Row(on("cluster", "alter"), "POST", "/v1/settle?x=1"),
    "listNodes": Row(on("cluster", "describe"), "GET", "/v1/nodes"),
    "drainNode": Row(on("cluster", "alter"), "POST", "/v1/nodes/none/drain"),
    "removeNode": Row(on("cluster", "admin"), "DELETE", "/v1/nodes/none"),
    "moveTopic": Row(on("topic", "alter"), "POST", f"{T}/move", lambda t, g: {}),
    "abandonTopic": Row(on("cluster", "admin"), "POST", f"{T}/abandon"),
    "balanceCluster": Row(on("cluster", "alter"), "POST", "/v1/cluster/balance"),
    "openapi": Row(nothing, "GET", "/openapi.json", kind="caller"),
    "docs": Row(nothing, "GET", "/docs", kind="caller"),
    "page": Row(nothing, "GET", "/ui/", kind="open"),
    "pageFile": Row(nothing, "GET", "/ui/none/none/none", kind="open"),
    "describeAccess": Row(on("cluster", "admin"), "GET", "/v1/access"),
    "whoAmI": Row(nothing, "GET", "/v1/access/whoami", kind="caller"),
    "logIn": Row(nothing, "POST", "/ui/login?x=1", kind="open"),
    "logOut": Row(nothing, "POST", "/ui/logout", kind="open"),
    "describeLogin": Row(nothing, "GET", "/ui/login", kind="open"),
    "beginProviderLogin": Row(nothing, "GET", "/ui/login/oidc", kind="open"),
    "finishProviderLogin": Row(nothing, "GET", "/ui/login/oidc/callback", kind="open"),
    "renewLogin": Row(nothing, "POST", "/ui/login/renew", kind="caller"),
    "createKey": Row(on("cluster", "admin"), "POST", "/v1/access/keys", lambda t, g: {}),
    "rotateKey": Row(on("cluster", "admin"), "POST", "/v1/access/keys/none/rotate", lambda t, g: {}),
    "revokeKey": Row(on("cluster", "admin"), "DELETE", "/v1/access/keys/none"),
    "putBinding": Row(on("cluster", "admin"), "PUT", "/v1/access/bindings/none", lambda t, g: {}),
    "deleteBinding": Row(on("cluster", "admin"), "DELETE", "/v1/access/bindings/none"),
    "putAcl": Row(on("cluster", "admin"), "PUT", "/v1/access/acls/none", lambda t, g: {}),
    "deleteAcl": Row(on("cluster", "admin"), "DELETE", "/v1/access/acls/none"),
    "putQuota": Row(on("cluster", "admin"), "PUT", "/v1/access/quotas/none", lambda t, g: {}),
    "deleteQuota": Row(on("cluster", "admin"), "DELETE", "/v1/access/quotas/none"),
    "describeAudit": Row(on("cluster", "admin"), "GET", "/v1/access/audit"),
    "checkAccess": Row(on("cluster", "admin"), "POST", "/v1/access/check", lambda t, g: {}),
}


class World:
    """The server, and a caller for each of CALLERS."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._entered = asking_server(folder, redis_url=redis_url, auto_create_partitions=1)
        server, keys = self._entered.__enter__()
        for name, roles in PRINCIPALS.items():
            keys.add(name, *(role(one, prefix) for one, prefix in roles))
        for name, rights in ENTRIES.items():
            keys.add(name, *(entry(kind, of, right) for kind, of, right in rights))
        self.local = Caller(server, None, local=True)
        self.callers = {"nobody": Caller(server, None), LOCAL: self.local}
        self.callers |= {name: Caller(server, keys.tokens[name]) for name in (*PRINCIPALS, *ENTRIES)}
        self.server, self.keys = server, keys
        keys.held_by(self.local)
        self.restore()

    def restore(self) -> None:
        for topic in THERE:
            assert self.local.call("PUT", f"/v1/topics/{topic}", {}).status in (200, 201)
        for name in ("own-none", "other-none"):
            self.local.call("DELETE", f"/v1/topics/{name}")
        for group, topic in (("own-g", "own-t"), ("other-g", "other-t")):
            self.local.call("PUT", f"/v1/groups/{group}/offsets", {"offsets": [at(topic)]})

    def close(self) -> None:
        self._entered.__exit__(None, None, None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> Iterator[World]:
    it = World(tmp_path_factory.mktemp("matrix"), valkey_url)
    yield it
    it.close()


def outcome(answer: Answer, row: Row) -> str:
    """`401`, `403` for what was not granted, else `allowed`, whatever became of it."""
    if row.kind == "parts" and answer.status == 200:
        errors = [part["error"] for part in answer.json["partitions"] if part["error"]]
        return "403" if any("right" in error for error in errors) else "allowed"
    assert answer.status < 500 or answer.status == 503, answer
    if answer.status == 401:
        assert answer.headers["www-authenticate"] == "Bearer", answer
        return "401"
    # What is refused to everybody, such as to publish to a system topic, names no right.
    return "403" if answer.status == 403 and "right" in answer.json else "allowed"


def refusal(answer: Answer) -> Any:
    """The problem that says which right is missing."""
    return answer.json if answer.status == 403 else answer.json["partitions"][0]["error"]


def called(world: World, caller: str, row: Row, topic: str, group: str, method: str = "", **headers: str) -> Answer:
    path = row.path.format(topic=topic, group=group, who=f"{MEMBER}-{caller}")
    who = world.callers[caller]
    if row.kind == "stream":
        upgrade = {}
        if "/ws" in path:
            upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
            upgrade |= {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec_WebSocket_Protocol": names.SUBPROTOCOL}
        return who.begun(path, **upgrade)
    return who.call(method or row.method, path, None if row.body is None else row.body(topic, group), **headers)


@pytest.mark.rule("A34", "A39")
@pytest.mark.parametrize(
    "stated",
    [
        pytest.param(one, id=one.operation_id, marks=[pytest.mark.chaos] if one.operation_id == "runSql" else [])
        for one in OPERATIONS
    ],
)
def test_every_operation_is_allowed_to_those_it_is_for_and_to_nobody_else(world: World, stated: Any) -> None:
    row = TABLE[stated.operation_id]
    path = row.path.partition("?")[0].replace("{who}-p", "{member}").replace("{who}", "{member}")
    shape = re.sub(r"/(none|p|0)(?=/|$)|{\w+}", lambda found: "/{}" if found[1] else "{}", path)
    assert (row.method, shape) == (stated.method, re.sub(r"{\w+}", "{}", stated.path))
    denials: dict[tuple[str, str, str], set[bytes]] = {}
    for caller in row.callers:
        for topic, group in row.resources if row.needs is not nothing else RESOURCES[:1]:
            allowed = all(may(caller, *needed) for needed in row.needs(topic, group))
            expected = "allowed" if allowed else "403"
            if caller == "nobody" and row.kind != "open":
                expected = "401"
            answer = called(world, caller, row, topic, group)
            assert outcome(answer, row) == expected, (caller, topic, group, answer)
            if stated.operation_id == "publish":
                long = called(world, caller, row, topic, group, Long="1")
                assert (outcome(long, row), long.status) == (expected, answer.status), (caller, topic, answer, long)
            if stated.method == "GET" and row.kind != "stream":
                head = called(world, caller, row, topic, group, "HEAD")
                assert (head.status, head.body) == (answer.status, b""), (caller, topic, group)
            if expected == "403":
                denial = refusal(answer)
                assert (denial["right"], denial["kind"], denial["name"]) in row.needs(topic, group), answer
                # It is the same whether it is there or not.
                told = re.sub(rb'"request_id":"[^"]*"', b"", answer.body).replace(denial["name"].encode(), b"NAME")
                if row.kind != "parts":
                    denials.setdefault((caller, denial["right"], denial["kind"]), set()).add(told)
            if row.destroys and expected == "allowed":
                world.restore()
    assert [key for key, told in denials.items() if len(told) > 1] == []


@pytest.mark.rule("A38")
def test_lists_have_what_may_be_described_and_pages_of_it_are_full(world: World) -> None:
    for name in ("own-a", "own-b", "other-a", "own-c"):
        world.local.call("PUT", f"/v1/topics/{name}", {})
        world.local.call("PUT", f"/v1/groups/{name}/offsets", {"offsets": [at(name)]})
    for kind in ("topics", "groups"):
        there = _listed(world.local, kind, 1000)
        assert {"own-a", "other-a"} <= set(there)
        for caller in (*PRINCIPALS, *ENTRIES):
            seen = [name for name in there if may(caller, "describe", kind[:-1], name)]
            assert _listed(world.callers[caller], kind, 1000) == seen, caller
            assert _listed(world.callers[caller], kind, 2) == seen, caller
    assert world.callers["nobody"].call("GET", "/v1/topics").status == 401


def _listed(caller: Caller, kind: str, limit: int) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        page = caller.call("GET", f"/v1/{kind}?limit={limit}&after={after}").json
        found += [one["name" if kind == "topics" else "group"] for one in page[kind]]
        if page["next"] is None:
            return found
        assert len(page[kind]) == limit, "only the last page is not full"
        after = page["next"]
