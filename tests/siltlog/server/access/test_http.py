"""Keys, roles and entries of a real server, and what they let their callers do."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from access_rig import As, Secured, secured_server
from http_rig import answer

from siltlog.infra.security.callers.identification import FAILURES_MAX, FAILURES_SECONDS

RECORD = {"key": "k", "value": {"a": 1}}


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as found:
        yield found


@pytest.fixture
def fresh() -> Iterator[Secured]:
    """One that no address has failed at yet."""
    with secured_server() as found:
        yield found


@pytest.fixture(scope="module")
def topic(secured: Secured) -> str:
    for name in ("orders", "orders-eu", "other"):
        assert secured.admin.call("PUT", f"/v1/topics/{name}").status == 201
    return "orders"


def test_nobody_may_do_what_is_not_anybodys(secured: Secured) -> None:
    for path in ("/v1/topics", "/v1/cluster", "/metrics", "/v1/access", "/v1/topics/absent", "/openapi.json"):
        reply = secured.nobody.get(path)
        assert (reply.status, reply.error_code, reply.json["reason"]) == (401, "unauthenticated", "missing"), path
        assert reply.headers["www-authenticate"] == "Bearer"
    assert secured.nobody.get("/healthz").status == 200
    ready = secured.nobody.get("/readyz")
    assert (ready.status, ready.json) == (200, {"status": "ready", "reasons": [], "warnings": []})
    assert secured.admin.get("/readyz").json["warnings"] == ["groups: Redis does not answer"]


def test_a_key_does_what_it_was_made_for(secured: Secured, topic: str) -> None:
    key_id, writer = secured.key("writer", ("producer", "orders"))
    assert writer.publish(topic, RECORD).status == 200
    assert writer.publish("orders-eu", RECORD).status == 200
    refused = writer.publish("other", RECORD)
    assert (refused.status, refused.error_code) == (403, "forbidden")
    assert refused.json["principal"] == "key:writer"
    absent = writer.publish("absent", RECORD)
    assert (absent.status, absent.json["detail"].replace("absent", "other")) == (403, refused.json["detail"])
    assert writer.get(f"/v1/topics/{topic}/partitions/0/records?offset=0").status == 403
    whoami = writer.get("/v1/access/whoami").json
    assert (whoami["principal"], whoami["credential"], whoami["auth"]) == ("key:writer", key_id, "on")
    assert whoami["roles"] == [{"role": "producer", "prefix": "orders", "principal": "key:writer"}]
    assert writer.get("/v1/access").status == 403


def test_no_answer_has_a_hash_or_a_key_but_the_one_that_makes_it(secured: Secured) -> None:
    key_id, made = secured.key("told-once")
    assert made.token is not None
    secret = made.token.split("_")[2]
    for path in ("/v1/access", "/v1/access/whoami"):
        body = secured.admin.get(path).body.decode()
        assert key_id in body or path.endswith("whoami")
        assert secret not in body
        assert "hash" not in body


def test_what_is_wrong_with_a_credential_is_told(fresh: Secured) -> None:
    _, made = fresh.key("wrongs")
    assert made.token is not None
    reasons = {
        "": "malformed",
        "Bearer": "malformed",
        f"Basic {base64.b64encode(b'a:b').decode()}": "malformed",
        f"Bearer {made.token[:-1]}": "malformed",
        f"Bearer {made.token} x": "malformed",
        "Bearer something-else": "malformed",
    }
    for value, reason in reasons.items():
        reply = As(fresh.server.url, None).get("/v1/topics", Authorization=value)
        assert (reply.status, reply.json["reason"]) == (401, reason), value
        assert made.token not in reply.body.decode()
    assert As(fresh.server.url, None).get("/v1/access/whoami", Authorization=f"bearer {made.token}").status == 200


@pytest.mark.rule("A27")
def test_a_token_in_the_url_is_refused_and_not_repeated(secured: Secured, topic: str) -> None:
    token = secured.admin.token
    assert token is not None
    basic = base64.b64encode(f"{token}:".encode()).decode()
    escaped = token.replace("_", "%5F")
    for path, headers in (
        (f"/healthz?x={token}", {}),
        (f"/v1/topics?access_token={escaped}", {}),
        ("/v1/topics", {"Authorization": f"Basic {basic}"}),
    ):
        reply = secured.nobody.call("GET", path, **headers)
        assert (reply.status, reply.error_code) == (400, "credential_in_url")
        assert token[5:] not in reply.body.decode()
    reply = secured.admin.publish(topic, RECORD, query=f"?key={token}")
    assert (reply.status, reply.error_code) == (400, "credential_in_url")


def test_two_credentials_are_refused(secured: Secured, topic: str) -> None:
    token = secured.admin.token
    for path in (f"POST /v1/topics/{topic}/records", "GET /v1/access"):
        with secured.admin.connect() as connection:
            lines = f"{path} HTTP/1.1\r\nHost: localhost\r\n" + f"Authorization: Bearer {token}\r\n" * 2
            connection.sendall(f"{lines}Content-Type: application/json\r\nContent-Length: 0\r\n\r\n".encode())
            assert b"400" in answer(connection).split(b"\r\n")[0]


@pytest.mark.rule("A11")
@pytest.mark.parametrize("way", ["", "X-Anything: else\r\n"])
def test_both_ways_answer_alike(secured: Secured, topic: str, way: str) -> None:
    keys = {name: secured.key(f"way-{name}-{len(way)}")[1].token for name in ("may", "may-not", "gone")}
    secured.allow(f"way-{len(way)}", f"key:way-may-{len(way)}", "topic", topic, "write")
    listed = {key["name"]: key["id"] for key in secured.admin.get("/v1/access").json["keys"]}
    body = json.dumps({"records": [RECORD]}).encode()

    def publish(connection: Any, token: str | None) -> int:
        credential = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"{way}{credential}Content-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        return int(answer(connection).split()[1])

    with secured.admin.connect() as connection:
        assert publish(connection, keys["gone"]) == 403
        assert secured.admin.call("DELETE", f"/v1/access/keys/{listed[f'way-gone-{len(way)}']}").status == 204
        tokens = [keys["may"], keys["may-not"], keys["may"], None, keys["gone"], keys["may"], "silt_x", keys["may"]]
        assert [publish(connection, token) for token in tokens] == [200, 403, 200, 401, 401, 200, 401, 200]
        deny = {"principal": "*", "kind": "topic", "name": topic, "operations": ["write"], "effect": "deny"}
        assert secured.admin.json("PUT", "/v1/access/acls/deny", deny).status == 200
        assert publish(connection, keys["may"]) == 403
        assert secured.admin.call("DELETE", "/v1/access/acls/deny").status == 200
        assert publish(connection, keys["may"]) == 200


def test_a_change_may_be_of_one_version_only(secured: Secured) -> None:
    version = secured.admin.get("/v1/access").json["version"]
    role = {"principal": "key:match", "role": "viewer"}
    made = secured.admin.json("PUT", "/v1/access/bindings/match", role, If_Match=str(version))
    assert (made.status, made.json) == (200, {"version": version + 1})
    late = secured.admin.json("PUT", "/v1/access/bindings/match", role, If_Match=f'"{version}"')
    assert (late.status, late.error_code, late.json["version"]) == (409, "access_changed", version + 1)
    assert secured.admin.call("DELETE", "/v1/access/bindings/match", If_Match="x").status == 400
    assert secured.admin.call("DELETE", "/v1/access/bindings/match", If_Match=str(version + 1)).status == 200
    assert secured.admin.call("DELETE", "/v1/access/bindings/match").status == 404


def test_what_could_never_decide_anything_is_refused(secured: Secured) -> None:
    entry = {"principal": "key:a", "kind": "topic", "name": "t", "operations": ["read"]}
    for wrong in (
        entry | {"principal": "a"},
        entry | {"operations": []},
        entry | {"operations": ["admin"]},
        entry | {"pattern": "prefix", "name": "_"},
        entry | {"more": 1},
    ):
        reply = secured.admin.json("PUT", "/v1/access/acls/wrong", wrong)
        assert (reply.status, reply.error_code) == (422, "invalid_request"), wrong
    assert secured.admin.json("PUT", "/v1/access/bindings/w", {"principal": "local", "role": "admin"}).status == 422
    assert secured.admin.json("PUT", "/v1/access/quotas/w", {"principal": "key:a"}).status == 422


@pytest.mark.rule("A29")
def test_the_last_administrator_stays(secured: Secured) -> None:
    last = secured.admin.call("DELETE", "/v1/access/bindings/admin.admin")
    assert (last.status, last.error_code) == (409, "last_admin")
    viewer = {"principal": "key:admin", "role": "viewer"}
    assert secured.admin.json("PUT", "/v1/access/bindings/admin.admin", viewer).status == 409
    deny = {"principal": "*", "kind": "cluster", "name": "cluster", "operations": ["admin"], "effect": "deny"}
    assert secured.admin.json("PUT", "/v1/access/acls/deny-all", deny).error_code == "last_admin"
    ghost = {"principal": "key:ghost", "role": "admin"}
    assert secured.admin.json("PUT", "/v1/access/bindings/ghost", ghost).status == 200
    assert secured.admin.call("DELETE", "/v1/access/bindings/admin.admin").status == 409, "nobody has that key"
    secured.key("second", ("admin", ""))
    assert secured.admin.call("DELETE", "/v1/access/bindings/second.admin").status == 200


def test_what_decides_is_told(secured: Secured) -> None:
    secured.allow("told", "group:team", "topic", "told", "read")
    asked = {"principal": "user:ana", "operation": "read", "resource": "topic:told"}

    def check(**more: Any) -> Any:
        return secured.admin.json("POST", "/v1/access/check", asked | more)

    assert check().json == {"allowed": False, "because": ""}
    assert check(groups=["team"]).json == {"allowed": True, "because": "entry told allows it"}
    assert check(principal="key:admin", resource="cluster", operation="admin").json["allowed"]
    for wrong in ({"resource": "told"}, {"resource": "cluster:x"}, {"operation": "admin"}, {"principal": "ana"}):
        assert check(**wrong).status == 422, wrong


def test_what_was_changed_is_there_after_a_kill(secured: Secured, topic: str) -> None:
    key_id, made = secured.key("kept", ("producer", "orders"))
    _, gone = secured.key("not-kept", ("producer", "orders"))
    listed = {key["name"]: key["id"] for key in secured.admin.get("/v1/access").json["keys"]}
    assert secured.admin.call("DELETE", f"/v1/access/keys/{listed['not-kept']}").status == 204
    version = secured.admin.get("/v1/access").json["version"]
    secured.server.restart()
    assert secured.admin.get("/v1/access").json["version"] == version
    assert made.publish(topic, RECORD).status == 200
    assert (gone.publish(topic, RECORD).status, key_id in listed.values()) == (401, True)


@pytest.mark.rule("A28")
def test_many_wrong_credentials_of_an_address_are_too_many_and_a_right_one_passes(fresh: Secured) -> None:
    wrong = As(fresh.server.url, "silt_x")
    began, refused = time.monotonic(), 0
    while (limited := wrong.get("/v1/cluster")).status == 401:
        refused += 1
        # One more may be wrong every so many seconds.
        assert refused <= FAILURES_MAX * (1 + (time.monotonic() - began) / FAILURES_SECONDS)
    assert refused >= FAILURES_MAX
    assert (limited.error_code, limited.json["scope"]) == ("rate_limited", "failures")
    assert int(limited.headers["retry-after"]) > 0
    assert fresh.admin.get("/v1/cluster").status == 200
    assert fresh.nobody.get("/v1/topics").status == 401
    assert wrong.get("/healthz").status == 200


def test_where_authentication_is_off_there_is_no_access_to_administer(http: Any) -> None:
    whoami = http.get("/v1/access/whoami").json
    assert (whoami["principal"], whoami["auth"]) == ("anonymous", "off")
    for method, path in (("GET", "/v1/access"), ("DELETE", "/v1/access/keys/x")):
        assert http.call(method, path).error_code == "auth_off"
