"""The login of the page at a real server, as browsers and those who pose as one speak to it."""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from access_rig import As, Secured, altered, secured_server
from http_rig import NO_REDIS, exchange
from session_rig import Visitor

from siltlog.infra import names
from siltlog.infra.security.callers.identification import FAILURES_MAX
from siltlog.infra.security.callers.sealing import Sealing
from siltlog.infra.security.callers.sessions import PURPOSE
from siltlog.infra.security.secret import read_secret
from siltlog.infra.security.sessions import RENEWED_US, Session
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store
from siltlog.testing import running_server

WHO = "/v1/access/whoami"
HANDSHAKE = """GET /v1/topics/orders/ws HTTP/1.1
Host: {host}
Upgrade: websocket
Connection: Upgrade
Sec-WebSocket-Version: 13
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
Sec-WebSocket-Protocol: silt.v1
Cookie: {cookie}"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server() as secured:
        secured.admin.create("orders")
        yield secured


def visitor(secured: Secured, *roles: tuple[str, str], name: str) -> tuple[Visitor, str]:
    """Somebody logged in by a key of his own, and its id."""
    key_id, caller = secured.key(name, *roles)
    visiting = Visitor(secured.server.url)
    assert caller.token is not None
    reply = visiting.log_in(caller.token)
    assert (reply.status, reply.json["principal"]) == (200, f"key:{name}"), reply
    return visiting, key_id


def cookie_of(visiting: Visitor) -> str:
    return "; ".join(f"{name}={value}" for name, value in visiting.cookies.items())


def opened(visiting: Visitor, path: str, **headers: str) -> socket.socket:
    """An answer that goes on, once its beginning was read."""
    connection = visiting.connect()
    host = visiting.url.removeprefix("http://")
    lines = "".join(f"\n{name}: {value}" for name, value in headers.items())
    connection.sendall(
        f"GET {path} HTTP/1.1\nHost: {host}\nCookie: {cookie_of(visiting)}{lines}\n\n".replace("\n", "\r\n").encode()
    )
    assert b" 200 " in connection.recv(65_536)
    return connection


def sealing_of(secured: Secured) -> Sealing[Session]:
    secret = read_secret(secured.server.data_dir / names.SECRET_FILE)
    store = open_store((secured.server.data_dir / names.LAKE_FOLDER).as_uri())
    return Sealing(secret.key(f"{PURPOSE} {cluster_id(store)}"), Session)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server ends it."""
    connection.settimeout(60)
    got = b""
    while part := connection.recv(65_536):
        got += part
        if b"\r\n0\r\n\r\n" in got:
            break
    return got


def test_who_logs_in_is_whom_his_key_is_until_he_logs_out(secured: Secured) -> None:
    visiting, key_id = visitor(secured, ("consumer", "orders"), name="ana")
    (name,) = visiting.cookies
    assert name == f"silt_session_{visiting.url.rpartition(':')[2]}"
    who = visiting.get(WHO).json
    assert (who["principal"], who["by"], who["page"], who["credential"]) == ("key:ana", "session", "on", key_id)
    assert visiting.get("/v1/topics/orders/partitions/0/records?offset=0").status == 200
    assert visiting.publish("orders", {"value": "x"}).json["right"] == "write"
    kept = dict(visiting.cookies)
    assert visiting.log_out().status == 204
    assert visiting.cookies == {}
    visiting.cookies = kept
    refused = visiting.get(WHO)
    assert (refused.status, refused.json["reason"]) == (401, "unknown")
    assert visiting.log_out().status == 204, "who has logged out may do so again"


def test_the_cookie_is_for_this_server_and_no_script(secured: Secured) -> None:
    _, caller = secured.key("attributes")
    assert caller.token is not None
    field = Visitor(secured.server.url).log_in(caller.token).headers["set-cookie"]
    assert field.partition("; ")[2] == "Path=/; HttpOnly; SameSite=Strict"


@pytest.mark.rule("A58")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, ""),
        ({"Sec_Fetch_Site": "none"}, ""),
        ({"Sec_Fetch_Site": ""}, ""),
        ({"Sec_Fetch_Site": "same-site"}, "csrf"),
        ({"Sec_Fetch_Site": "cross-site"}, "csrf"),
        ({"Origin": "https://evil.example"}, "origin_not_allowed"),
        ({"Origin": "null"}, "origin_not_allowed"),
    ],
)
def test_a_cookie_counts_for_what_the_page_itself_sends(secured: Secured, headers: dict[str, str], code: str) -> None:
    name = f"sender{abs(hash(str(headers)))}"
    visiting, _ = visitor(secured, ("admin", ""), name=name)
    for method, path in (("GET", WHO), ("HEAD", WHO), ("GET", "/v1/events"), ("PUT", "/v1/topics/orders")):
        if path == "/v1/events" and not code:
            continue
        reply = visiting.call(method, path, b"{}" if method == "PUT" else None, **headers)
        assert reply.status == (403 if code else 200), (method, reply)
        if code and method != "HEAD":
            assert reply.error_code == code, (method, reply)
    assert visiting.get("/healthz", **headers).status == (403 if code == "origin_not_allowed" else 200)


@pytest.mark.rule("A58")
def test_a_page_that_may_call_this_server_comes_by_its_own_token_and_by_no_cookie(tmp_path: Path) -> None:
    with secured_server(cors_origins="http://app.example") as secured:
        visiting, _ = visitor(secured, ("admin", ""), name="ana")
        _, app = secured.key("app")
        foreign = {"Origin": "http://app.example", "Sec_Fetch_Site": "same-site"}
        assert visiting.get(WHO, **foreign).error_code == "csrf"
        assert visiting.call("PUT", "/v1/topics/made", b"{}", **foreign).error_code == "csrf"
        assert secured.admin.get("/v1/topics/made").status == 404
        assert visiting.log_in(str(app.token), **foreign).error_code == "csrf"
        assert visiting.log_out(**foreign).error_code == "csrf"
        by_token = visiting.get(WHO, Authorization=f"Bearer {app.token}", **foreign)
        assert by_token.json["principal"] == "key:app", "its own token counts, with the cookie beside it"
        handshake = HANDSHAKE.format(host=visiting.url.removeprefix("http://"), cookie=cookie_of(visiting))
        with visiting.connect() as connection:
            said = exchange(connection, f"{handshake}\nOrigin: http://app.example")
            assert b" 403 " in said.partition(b"\r\n")[0]
            assert b'"csrf"' in said
        assert visiting.get(WHO).json["principal"] == "key:ana", "it is logged in all the while"


@pytest.mark.rule("A58")
def test_a_web_socket_opens_by_the_cookie_from_the_page_alone(secured: Secured) -> None:
    visiting, _ = visitor(secured, ("consumer", "orders"), name="socket")
    host = visiting.url.removeprefix("http://")
    handshake = HANDSHAKE.format(host=host, cookie=cookie_of(visiting))
    for lines, status in (
        (f"\nOrigin: http://{host}", b" 101 "),
        (f"\nOrigin: http://{host}\nSec-Fetch-Site: same-origin", b" 101 "),
        (f"\nOrigin: http://{host}\nSec-Fetch-Site: cross-site", b" 403 "),
        ("\nOrigin: http://evil.example", b" 403 "),
    ):
        with visiting.connect() as connection:
            connection.sendall((handshake + lines).replace("\n", "\r\n").encode() + b"\r\n\r\n")
            assert status in connection.recv(65_536).partition(b"\r\n")[0], lines


@pytest.mark.rule("A59")
def test_what_changes_something_needs_a_header_that_no_form_can_send(secured: Secured) -> None:
    visiting, _ = visitor(secured, ("admin", ""), name="csrf")
    for method, path in (
        ("PUT", "/v1/topics/forged"),
        ("DELETE", "/v1/topics/orders"),
        ("POST", "/v1/topics/orders/records"),
        ("PATCH", "/v1/config"),
    ):
        assert visiting.call(method, path, b"{}", Silt_Csrf="").error_code == "csrf", method
    assert visiting.log_out(Silt_Csrf="").error_code == "csrf"
    assert visiting.get(WHO, Silt_Csrf="").status == 200
    assert visiting.publish("orders", {"value": "by the page"}).status == 200


@pytest.mark.rule("A59")
def test_a_page_that_only_shows_changes_nothing() -> None:
    with secured_server(ui="read") as secured:
        secured.admin.create("orders")
        visiting, _ = visitor(secured, ("admin", ""), name="ana")
        assert visiting.get(WHO).json["page"] == "read"
        assert visiting.get("/v1/topics/orders").status == 200
        found = visiting.json("POST", "/v1/topics/orders/search", {})
        assert found.status == 200, "it is a POST, and only reads"
        for method, path in (
            ("PUT", "/v1/topics/made"),
            ("POST", "/v1/topics/orders/records"),
            ("PUT", "/v1/topics/orders/search"),
            ("POST", "/v1/settle"),
            ("GET", "/v1/groups/g/ws"),
        ):
            refused = visiting.call(method, path, b"{}" if method != "GET" else None)
            assert (refused.status, refused.error_code) == (403, "page_only_shows"), path
        assert secured.admin.publish("orders", {"value": "by a key"}).status == 200
        assert visiting.log_out().status == 204
        assert visiting.get(WHO).status == 401


def test_without_a_page_there_is_no_login_and_no_cookie_counts(secured: Secured) -> None:
    with secured_server(ui="off") as other:
        assert Visitor(other.server.url).log_in(str(other.admin.token)).error_code == "not_found"


def test_where_nobody_is_asked_there_is_nothing_to_log_in_to(secured: Secured, tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS) as server:
        visiting = Visitor(server.url)
        assert visiting.log_in("silt_x").error_code == "auth_off"
        assert visiting.log_out().error_code == "auth_off"
        assert visiting.get(WHO).json["auth"] == "off"


def test_of_two_credentials_neither_counts(secured: Secured) -> None:
    visiting, _ = visitor(secured, ("admin", ""), name="two")
    both = visiting.get(WHO, Authorization=f"Bearer {secured.admin.token}")
    assert (both.status, both.error_code) == (400, "invalid_parameter")
    twice = visiting.get(WHO, Cookie=f"{cookie_of(visiting)}; {cookie_of(visiting)}")
    assert (twice.status, twice.error_code) == (400, "invalid_parameter")
    (name,) = visiting.cookies
    host = visiting.url.removeprefix("http://")
    with visiting.connect() as connection:
        # Who spoke HTTP/2 with a browser sends a field for each cookie.
        said = exchange(connection, f"GET {WHO} HTTP/1.1\nHost: {host}\nCookie: {cookie_of(visiting)}\nCookie: other=1")
        assert b"key:two" in said
        said = exchange(connection, f"GET {WHO} HTTP/1.1\nHost: {host}\nCookie: {name}=a\nCookie: {name}=b")
        assert b" 400 " in said.partition(b"\r\n")[0]
    logging_in = visiting.log_in(str(secured.admin.token), Authorization=f"Bearer {secured.admin.token}")
    assert logging_in.error_code == "invalid_parameter"


@pytest.mark.rule("A55")
def test_a_cookie_that_was_changed_or_is_of_another_server_opens_nothing(secured: Secured) -> None:
    visiting, _ = visitor(secured, ("admin", ""), name="forged")
    (name,) = visiting.cookies
    sealed = visiting.cookies[name]
    shown = visiting.get(f"{WHO}?session={sealed}")
    assert shown.error_code == "credential_in_url"
    assert sealed not in shown.body.decode()
    header, _, iv, content, tag = sealed.split(".")
    plain = base64.urlsafe_b64encode(json.dumps(["i", "key:admin", [], "k", 1, 1, None]).encode()).decode().rstrip("=")
    with secured_server() as other:
        elsewhere, _ = visitor(other, ("admin", ""), name="forged")
    for wrong in (
        f"{header}..{iv}.{altered(content)}.{tag}",
        f"{header}..{iv}.{content}.{altered(tag)}",
        f"{header}..{iv}.{plain}.{tag}",
        f"eyJhbGciOiJub25lIn0.{plain}.",
        next(iter(elsewhere.cookies.values())),
        "x",
        "x" * 10_000,
    ):
        for _ in range(3):
            refused = visiting.get(WHO, Cookie=f"{name}={wrong}")
            assert (refused.status, refused.json.get("reason")) == (401, "unknown"), wrong
    assert visiting.get(WHO).status == 200


@pytest.mark.rule("A56")
@pytest.mark.parametrize("how", ["revoked", "rotated", "logged_out"])
def test_open_streams_end_with_the_session(secured: Secured, how: str) -> None:
    visiting, key_id = visitor(secured, ("consumer", "orders"), name=f"stream-{how}")
    with (
        opened(visiting, "/v1/events") as events,
        opened(visiting, "/v1/topics/orders/tail") as tail,
    ):
        if how == "revoked":
            assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status in (202, 204)
        elif how == "rotated":
            assert secured.admin.json("POST", f"/v1/access/keys/{key_id}/rotate", {"overlap_ms": 0}).status == 201
        else:
            assert visiting.log_out().status == 204
        for stream in (events, tail):
            assert b"unauthenticated" in rest(stream), how
    assert visiting.get(WHO).status == 401


@pytest.mark.rule("A56")
def test_a_stream_ends_when_the_key_of_its_session_runs_out_sooner_than_it_was_to(secured: Secured) -> None:
    visiting, key_id = visitor(secured, ("consumer", "orders"), name="overlap")
    with opened(visiting, "/v1/topics/orders/tail") as tail:
        assert secured.admin.json("POST", f"/v1/access/keys/{key_id}/rotate", {"overlap_ms": 1_000}).status == 201
        assert visiting.get(WHO).status in (200, 401)
        assert b"unauthenticated" in rest(tail)


@pytest.mark.rule("A57")
def test_a_session_that_was_ended_stays_so_when_the_server_is_killed(tmp_path: Path) -> None:
    with secured_server(data_dir=str(tmp_path / "data")) as secured:
        visiting, _ = visitor(secured, ("admin", ""), name="ana")
        other, _ = visitor(secured, ("admin", ""), name="bob")
        kept = dict(visiting.cookies)
        assert visiting.log_out().status == 204
        port = secured.server.url.rpartition(":")[2]
        secured.server.kill()
        secured.server.start()
        secured.again()
        # The port is in the name of the cookie.
        now = secured.server.url.rpartition(":")[2]
        for each, status in ((kept, 401), (other.cookies, 200)):
            again = Visitor(secured.server.url)
            again.cookies = {name.replace(port, now): value for name, value in each.items()}
            assert again.get(WHO).status == status


@pytest.mark.rule("A57")
def test_a_logout_ends_a_session_of_which_nobody_knows_whether_it_counts() -> None:
    """The identity provider does not answer: its users' sessions can be used by nobody, and be ended all the same."""
    with secured_server(oidc_issuer="https://127.0.0.1:1", oidc_audience="silt") as secured:
        visiting, _ = visitor(secured, ("admin", ""), name="ana")
        (name,) = visiting.cookies
        sealing = sealing_of(secured)
        session = msgspec.structs.replace(sealing.open(visiting.cookies[name]), principal="user:ana")
        visiting.cookies[name] = sealing.seal(session)
        assert visiting.get(WHO).error_code == "identity_unavailable"
        assert visiting.log_out(Silt_Csrf="").error_code == "csrf"
        assert visiting.log_out().status == 204
        kept = json.loads((secured.server.data_dir / names.SESSIONS_ENDED_FILE).read_bytes())
        assert session.session_id in json.dumps(kept)


@pytest.mark.rule("A60")
def test_wrong_logins_are_counted_with_other_wrong_credentials_and_a_right_one_passes() -> None:
    with secured_server() as secured:
        visiting = Visitor(secured.server.url)
        _, caller = secured.key("ana")
        right = str(caller.token)
        wrong = f"silt_{'0' * 12}_{'0' * 49}"
        assert 429 in [visiting.log_in(wrong).status for _ in range(3 * FAILURES_MAX)]
        # The next may be wrong once more, where the machine stood still for seconds.
        assert 429 in [As(secured.server.url, wrong).get(WHO).status for _ in range(3)]
        assert visiting.log_in(right).status == 200


@pytest.mark.rule("A60")
def test_logins_and_logouts_are_in_the_audit_log() -> None:
    with secured_server() as secured:
        visiting, key_id = visitor(secured, name="ana")
        visiting.log_out()
        visiting.log_in(f"silt_{'0' * 12}_{'0' * 49}")
        secured.server.stop()
        secured.server.start()
        secured.again()
        told = [
            record["value"]
            for record in secured.admin.read("_audit", query="values=json")
            if record["value"]["operation"] in ("logIn", "logOut")
        ]
        seen = {(each["operation"], each["principal"], each["credential"], each["outcome"]) for each in told}
        assert seen == {
            ("logIn", "key:ana", key_id, "done"),
            ("logOut", "key:ana", key_id, "done"),
            ("logIn", "", "", "refused"),
        }


def test_what_is_no_login_is_told_what_is_wrong(secured: Secured) -> None:
    visiting = Visitor(secured.server.url)
    assert visiting.call("POST", "/ui/login", b"{").error_code == "malformed_body"
    assert visiting.json("POST", "/ui/login", {"password": "x"}).error_code == "invalid_request"
    assert visiting.log_in("hello").json["reason"] == "malformed"


@pytest.mark.rule("A61")
def test_a_cookie_is_issued_anew_with_what_no_cache_keeps(secured: Secured) -> None:
    visiting, _ = visitor(secured, ("admin", ""), name="anew")
    (name,) = visiting.cookies
    sealing = sealing_of(secured)
    session = sealing.open(visiting.cookies[name])
    older = msgspec.structs.replace(session, seen_us=session.seen_us - RENEWED_US)
    visiting.cookies[name] = sealing.seal(older)
    document = visiting.get("/ui/")
    version = document.body.partition(b'href="')[2].partition(b"/")[0].decode()
    script = visiting.get(f"/ui/{version}/app/main.js")
    assert (document.status, script.status) == (200, 200)
    assert "public" in script.headers["cache-control"]
    for reply in (document, script, visiting.get("/healthz")):
        assert "set-cookie" not in reply.headers
    renewed = visiting.get(WHO)
    assert renewed.headers["cache-control"] == "no-store"
    found = sealing.open(visiting.cookies[name])
    assert (found.session_id, found.begun_us) == (session.session_id, session.begun_us)
    assert found.seen_us >= session.seen_us
    assert "set-cookie" not in visiting.get(WHO).headers
    visiting.cookies[name] = sealing.seal(older)
    assert visiting.log_out().status == 204
    assert visiting.cookies == {}, "a logout is not undone by issuing it anew"


def test_behind_a_proxy_that_ends_tls_the_cookie_is_bound_to_the_host_or_the_path() -> None:
    with secured_server(trusted_proxies="127.0.0.1", hosts="silt.example") as secured:
        key = str(secured.admin.token)
        by_tls = {"Host": "silt.example", "X_Forwarded_Proto": "https", "Origin": "https://silt.example"}
        visiting = Visitor(secured.server.url)
        field = visiting.log_in(key, **by_tls).headers["set-cookie"]
        assert field.startswith("__Host-silt_session=")
        assert field.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
        assert visiting.get(WHO, **by_tls).json["principal"] == "key:admin"
        assert visiting.get(WHO, **{**by_tls, "Origin": "http://silt.example"}).error_code == "origin_not_allowed"
        below = Visitor(secured.server.url)
        field = below.log_in(key, **by_tls, X_Forwarded_Prefix="/logs/").headers["set-cookie"]
        assert field.startswith("__Secure-silt_session=")
        assert field.endswith("; Path=/logs/; HttpOnly; SameSite=Strict; Secure")
        assert below.get(WHO, **by_tls, X_Forwarded_Prefix="/logs").json["principal"] == "key:admin"
        without = visiting.get(WHO, **{**by_tls, "Origin": "", "Sec_Fetch_Site": ""})
        assert without.error_code == "csrf", "over TLS every browser says which site sends it"
