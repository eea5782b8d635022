"""The login of the page by a real identity provider, at a real server."""

import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
import urllib3
from access_rig import Secured, secured_server
from http_rig import Reply
from identity_provider import IdentityProvider
from session_rig import Visitor

from siltlog.infra import names
from siltlog.infra.security.callers.code_flow import GROUPS_US
from siltlog.infra.security.callers.sealing import Sealing
from siltlog.infra.security.callers.sessions import PURPOSE
from siltlog.infra.security.secret import read_secret
from siltlog.infra.security.sessions import Session
from siltlog.infra.store.cluster_id import cluster_id
from siltlog.infra.store.store import open_store

WHO = "/v1/access/whoami"
BEGIN, CALLBACK = "/ui/login/oidc", "/ui/login/oidc/callback"
ACROSS = {"Sec_Fetch_Site": "cross-site"}
"""What a browser says that a provider leads back."""


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as idp:
        yield idp


@pytest.fixture(scope="module")
def secured(idp: IdentityProvider) -> Iterator[Secured]:
    settings = {"oidc_issuer": idp.issuer, "oidc_client_id": "silt-page", "oidc_client_secret": "hush hush"}
    with secured_server(**settings) as secured:
        binding = {"principal": "group:analysts", "role": "viewer"}
        assert secured.admin.json("PUT", "/v1/access/bindings/analysts", binding).status == 200
        yield secured


def groups(idp: IdentityProvider, sub: str, *named: str) -> None:
    reply = urllib3.PoolManager().request(
        "PUT",
        f"{idp.issuer}/users/{sub}",
        body=json.dumps({"groups": named}),
        headers={"Content-Type": "application/json"},
    )
    assert reply.status == 204


def begun(visiting: Visitor) -> str:
    """The address at the provider that the browser is sent to."""
    reply = visiting._pool.request("GET", visiting.url + BEGIN, headers={"Sec-Fetch-Site": "none"}, redirect=False)
    assert reply.status == 303, reply.data
    name, _, value = reply.headers["set-cookie"].partition(";")[0].partition("=")
    visiting.cookies[name] = value
    assert re.search(r"; Path=/; HttpOnly; SameSite=Lax; Max-Age=600$", reply.headers["set-cookie"])
    return str(reply.headers["location"])


def consented(url: str, sub: str) -> str:
    """The query that the provider leads the browser back with."""
    sent = urllib3.PoolManager().request(
        "POST",
        url,
        body=urlencode({"sub": sub}),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        redirect=False,
    )
    return urlsplit(sent.headers["location"]).query


def come_back(visiting: Visitor, query: str) -> Reply:
    return visiting.get(f"{CALLBACK}?{query}", **ACROSS)


def logged_in(secured: Secured, sub: str) -> Visitor:
    visiting = Visitor(secured.server.url)
    reply = come_back(visiting, consented(begun(visiting), sub))
    assert reply.status == 200, reply
    return visiting


def sealing(secured: Secured) -> Sealing[Session]:
    secret = read_secret(secured.server.data_dir / names.SECRET_FILE)
    store = open_store((secured.server.data_dir / names.LAKE_FOLDER).as_uri())
    return Sealing(secret.key(f"{PURPOSE} {cluster_id(store)}"), Session)


def test_the_page_is_told_which_ways_there_are(secured: Secured, idp: IdentityProvider) -> None:
    visiting = Visitor(secured.server.url)
    assert visiting.get("/ui/login").json == {"key": True, "provider": urlsplit(idp.issuer).netloc}
    with secured_server() as other:
        assert Visitor(other.server.url).get("/ui/login").json == {"key": True, "provider": None}
        assert Visitor(other.server.url).get(BEGIN).error_code == "not_found"
        assert Visitor(other.server.url).get(CALLBACK).error_code == "not_found"


@pytest.mark.rule("A62")
def test_whom_the_provider_lets_in_has_a_session(secured: Secured, idp: IdentityProvider) -> None:
    groups(idp, "ada", "analysts")
    visiting = Visitor(secured.server.url)
    url = begun(visiting)
    back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
    assert back == f"{secured.server.url}{CALLBACK}"
    (attempt,) = visiting.cookies
    reply = come_back(visiting, consented(url, "ada"))
    assert reply.status == 200
    assert b'<meta http-equiv="refresh" content="0;url=../../">' in reply.body
    assert (reply.headers["cache-control"], reply.headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert attempt not in visiting.cookies, "what the login began with is taken back"
    who = visiting.get(WHO).json
    assert (who["principal"], who["groups"], who["by"]) == ("user:ada", ["analysts"], "session")
    assert visiting.get("/v1/cluster").status == 200
    assert visiting.log_out().status == 204
    assert visiting.get(WHO).status == 401


@pytest.mark.rule("A62")
def test_a_code_is_nothing_in_another_browser_and_nothing_twice(secured: Secured) -> None:
    visiting, victim = Visitor(secured.server.url), Visitor(secured.server.url)
    query = consented(begun(visiting), "mallory")
    refused = come_back(victim, query)
    assert refused.status == 401
    assert b"has begun no login" in refused.body
    assert victim.cookies == {}
    begun(victim)
    refused = come_back(victim, query)
    assert (refused.status, b"another login" in refused.body) == (401, True)
    assert victim.get(WHO).status == 401
    kept = dict(visiting.cookies)
    assert come_back(visiting, query).status == 200
    again = Visitor(secured.server.url)
    again.cookies = kept
    assert b"answered before" in come_back(again, query).body


def test_another_site_does_not_begin_a_login(secured: Secured) -> None:
    assert Visitor(secured.server.url).get(BEGIN, **ACROSS).error_code == "csrf"


def test_what_the_provider_says_is_text(secured: Secured) -> None:
    visiting = Visitor(secured.server.url)
    state = parse_qs(urlsplit(begun(visiting)).query)["state"][0]
    refused = come_back(visiting, urlencode({"state": state, "error": "<script>alert(1)</script>"}))
    assert refused.status == 401
    assert b"<script>" not in refused.body
    assert b"&lt;script&gt;" in refused.body


@pytest.mark.rule("A63")
def test_groups_are_asked_for_again_and_a_lost_login_ends(secured: Secured, idp: IdentityProvider) -> None:
    groups(idp, "eve", "analysts")
    visiting = logged_in(secured, "eve")
    assert visiting.get("/v1/nodes").status == 200
    groups(idp, "eve", "others")
    assert visiting.get(WHO).json["groups"] == ["analysts"]
    assert visiting.call("POST", "/ui/login/renew").status == 200
    assert visiting.get(WHO).json["groups"] == ["others"]
    assert visiting.get("/v1/nodes").status == 403
    other = logged_in(secured, "eve")
    urllib3.PoolManager().request("POST", f"{idp.issuer}/users/eve/revoke-tokens")
    refused = other.call("POST", "/ui/login/renew")
    assert (refused.status, refused.error_code) == (401, "unauthenticated")
    assert other.get(WHO).status == 401
    _, caller = secured.key("no-provider")
    by_key = Visitor(secured.server.url)
    by_key.log_in(str(caller.token))
    assert by_key.call("POST", "/ui/login/renew").error_code == "invalid_request"


@pytest.mark.rule("A63")
def test_a_session_whose_groups_are_an_hour_old_has_ended(secured: Secured) -> None:
    visiting = logged_in(secured, "grace")
    (name,) = visiting.cookies
    session = sealing(secured).open(visiting.cookies[name])
    assert session.refresh_token
    assert session.login_until_us is not None
    assert session.login_until_us - session.begun_us <= GROUPS_US
    late = msgspec.structs.replace(session, login_until_us=session.login_until_us - GROUPS_US)
    visiting.cookies[name] = sealing(secured).seal(late)
    refused = visiting.get(WHO)
    assert (refused.status, refused.json["reason"]) == (401, "expired")


@pytest.mark.rule("A60")
def test_who_came_by_the_provider_is_in_the_audit_log(secured: Secured) -> None:
    logged_in(secured, "audited")
    come_back(Visitor(secured.server.url), "code=x&state=y")

    def told() -> set[tuple[str, str]]:
        records = (each["value"] for each in secured.admin.read("_audit", query="values=json"))
        return {(each["principal"], each["outcome"]) for each in records if each["operation"] == "finishProviderLogin"}

    secured.server.restart()
    secured.again()
    assert {("user:audited", "done"), ("", "refused")} <= told()
