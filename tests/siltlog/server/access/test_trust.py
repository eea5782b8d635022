"""Callers of a real server whom others vouch for: an identity provider by tokens, an authority by certificates."""

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from access_rig import As, Secured, secured_server
from http_rig import Http, Reply
from identity_provider import IdentityProvider
from push_rig import tailing
from tls_rig import Made, client_of

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.callers.provider import AGAIN_SECONDS
from siltlog.infra.security.callers.tokens import SKEW_SECONDS
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.access.trust import check_unused, open_trust
from siltlog.testing import running_server

RECORD = {"key": "k", "value": {"a": 1}}


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as found:
        yield found


@pytest.fixture(scope="module")
def secured(idp: IdentityProvider) -> Iterator[Secured]:
    with secured_server(oidc_issuer=idp.issuer, oidc_client_id="page") as found:
        found.admin.create("orders")
        found.admin.create("other")
        found.allow("ada", "user:ada", "topic", "orders", "write")
        found.allow("readers", "group:analysts", "topic", "orders", "read")
        found.allow("not-eve", "user:eve", "topic", "orders", "read", effect="deny")
        yield found


@pytest.fixture
def fresh(idp: IdentityProvider) -> Iterator[Secured]:
    """One that no address has failed at yet."""
    with secured_server(oidc_issuer=idp.issuer, oidc_client_id="page") as found:
        found.admin.create("orders")
        found.allow("ada", "user:ada", "topic", "orders", "write")
        yield found


def read(caller: Http, topic: str = "orders") -> Reply:
    return caller.get(f"/v1/topics/{topic}/partitions/0/records?offset=0")


def test_who_has_a_token_does_what_he_and_his_groups_may(secured: Secured, idp: IdentityProvider) -> None:
    url = secured.server.url
    ada, analyst = As(url, idp.token()), As(url, idp.token("zoe", groups=["analysts", "others"]))
    for _ in range(3):
        assert ada.publish("orders", RECORD).status == 200
    role = {"principal": "group:loaders", "role": "producer", "prefix": "oth"}
    assert secured.admin.json("PUT", "/v1/access/bindings/loaders", role).status == 200
    assert As(url, idp.token("lou", groups=["loaders"])).publish("other", RECORD).status == 200
    refused = ada.publish("other", RECORD)
    assert (refused.status, refused.error_code, refused.json["principal"]) == (403, "forbidden", "user:ada")
    assert read(ada).status == 403
    assert read(analyst).status == 200
    assert analyst.publish("orders", RECORD).status == 403
    assert read(As(url, idp.token("eve", groups=["analysts"]))).status == 403
    assert read(As(url, idp.token("zoe"))).status == 403
    whoami = analyst.get("/v1/access/whoami").json
    assert (whoami["principal"], whoami["groups"]) == ("user:zoe", ["analysts", "others"])
    assert whoami["credential"].startswith("jwt:")


@pytest.mark.rule("A5")
def test_what_is_no_token_for_this_server_opens_nothing(fresh: Secured, idp: IdentityProvider) -> None:
    with IdentityProvider() as other:
        tokens = {
            idp.token(seconds=-SKEW_SECONDS - 1): "expired",
            idp.token(aud="other"): "unknown",
            idp.token(iss=other.issuer): "unknown",
            other.token(iss=idp.issuer): "unknown",
            idp.id_token("page"): "unknown",
            idp.token(groups=[f"g{index}" for index in range(300)]): "unknown",
            "a.b.c": "malformed",
        }
    for token, reason in tokens.items():
        reply = As(fresh.server.url, token).publish("orders", RECORD)
        assert (reply.status, reply.error_code, reply.json["reason"]) == (401, "unauthenticated", reason)
        assert token not in reply.body.decode() or token == "a.b.c"
    # However many of them come from an address, a good one from there is taken.
    for _ in range(10):
        last = As(fresh.server.url, idp.token(aud="other")).publish("orders", RECORD)
    assert (last.status, last.error_code) == (429, "rate_limited")
    assert As(fresh.server.url, idp.token(jti="fresh")).publish("orders", RECORD).status == 200


@pytest.mark.slow
@pytest.mark.rule("A12")
def test_a_token_ends_on_a_connection_that_is_kept(secured: Secured, idp: IdentityProvider) -> None:
    parts = urlsplit(secured.server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    end = time.monotonic() + 60
    token = idp.token(seconds=10 - SKEW_SECONDS)
    answers: list[tuple[int, str | None]] = []
    while [status for status, _ in answers].count(401) < 3:
        assert time.monotonic() < end
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/topics/orders/records", json.dumps({"records": [RECORD]}), headers)
        reply = connection.getresponse()
        told = json.loads(reply.read())
        answers.append((reply.status, told.get("reason")))
        time.sleep(0.1)
    connection.close()
    assert set(answers) == {(200, None), (401, "expired")}
    assert answers == sorted(answers)


@pytest.mark.slow
@pytest.mark.rule("A5")
def test_a_stream_ends_with_its_token(secured: Secured, idp: IdentityProvider) -> None:
    token = idp.token("zoe", seconds=10 - SKEW_SECONDS, groups=["analysts"])
    with tailing(secured.server.url, "/v1/topics/orders/tail", Authorization=f"Bearer {token}") as stream:
        assert stream.status == 200
        while (event := stream.next()) is not None and event.kind != "problem":
            pass
        assert event is not None and event.data["error_code"] == "unauthenticated"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.rule("A13", "A14")
def test_keys_change_and_the_provider_goes_away_while_it_serves() -> None:
    with IdentityProvider() as idp, IdentityProvider() as away:
        away.stop()
        with (
            secured_server(oidc_issuer=idp.issuer) as changing,
            secured_server(oidc_issuer=away.issuer) as waiting,
        ):
            for secured in (changing, waiting):
                secured.admin.create("orders")
                secured.allow("ada", "user:ada", "topic", "orders", "read", "write")
            old = As(changing.server.url, idp.token())
            assert old.publish("orders", RECORD).status == 200

            unheard = As(waiting.server.url, away.token())
            reply = unheard.publish("orders", RECORD)
            assert (reply.status, reply.error_code) == (503, "identity_unavailable")
            assert "retry-after" in reply.headers
            assert waiting.admin.publish("orders", RECORD).status == 200
            [warning] = [one for one in waiting.admin.get("/readyz").json["warnings"] if "identity" in one]
            assert warning.startswith(f"the identity provider {away.issuer} has not answered since 20")
            away.resume()

            with tailing(changing.server.url, "/v1/topics/orders/tail", Authorization=f"Bearer {old.token}") as stream:
                assert stream.status == 200
                idp.rotate()
                new = As(changing.server.url, idp.token("ada"))
                _until_taken(new)
                _until_taken(unheard)
                assert old.publish("orders", RECORD).json["reason"] == "unknown"
                told = stream.reply.read().decode()
                assert "event: problem" in told and "unauthenticated" in told
            assert not [one for one in waiting.admin.get("/readyz").json["warnings"] if "identity" in one]


def _until_taken(caller: As) -> None:
    end = time.monotonic() + 4 * AGAIN_SECONDS
    while caller.publish("orders", RECORD).status != 200:
        assert time.monotonic() < end
        # Seldom enough for an address that may be wrong ten times a minute.
        time.sleep(6)


@pytest.mark.rule("A16")
def test_a_certificate_stands_for_somebody_where_nothing_else_does(tmp_path: Path) -> None:
    made = Made(tmp_path)
    files = made.with_clients()
    rules = json.dumps([{"from": "dns", "match": "*.etl.example"}, {"from": "dns", "match": "ops", "principal": "ops"}])
    settings = {
        "tls_cert": str(files.certificate),
        "tls_key": str(files.key),
        "tls_client_ca": str(files.client_ca),
        "tls_client": "optional",
        "certificates": rules,
    }
    with secured_server(**settings) as secured:
        url = secured.server.url
        admin = Http(url, client_of(made))
        headers = {"Authorization": f"Bearer {secured.admin.token}"}

        def allow(entry_id: str, principal: str) -> None:
            entry = {"principal": principal, "kind": "topic", "name": "orders", "operations": ["write"]}
            assert admin.json("PUT", f"/v1/access/acls/{entry_id}", entry, **headers).status == 200

        assert admin.json("POST", "/v1/topics", {"name": "orders"}, **headers).status == 201
        allow("loader", "cert:loader.etl.example")
        allow("ops", "cert:ops")
        for name, status in {
            "loader.etl.example": 200,
            "ops": 200,
            "other.etl.example": 403,
            "a.loader.etl.example": 401,
            "stranger": 401,
            None: 401,
        }.items():
            caller = Http(url, client_of(made, name))
            assert caller.publish("orders", RECORD).status == status, name
        loader = Http(url, client_of(made, "loader.etl.example"))
        assert loader.get("/v1/access/whoami").json["principal"] == "cert:loader.etl.example"
        # A token says who somebody is also where he has a certificate, and a bad one leaves him nobody.
        assert loader.get("/v1/access/whoami", **headers).json["principal"] == "key:admin"
        assert loader.publish("orders", RECORD, Authorization="Bearer silt_no").status == 401


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"oidc_issuer": "https://id.example"}, "SILT_OIDC_ISSUER is set, and SILT_AUTH is off"),
        ({"certificates": '[{"from": "dns", "match": "a"}]'}, "SILT_CERTIFICATES is set, and SILT_AUTH is off"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(given: dict[str, str], words: str) -> None:
    settings = ServerSettings(**given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        check_unused(settings)
    with pytest.raises(ConfigError, match=words):
        running_server(**given).__enter__()


def test_rules_for_certificates_that_nobody_is_asked_for() -> None:
    settings = ServerSettings(auth="on", certificates='[{"from": "dns", "match": "a"}]')
    with pytest.raises(ConfigError, match="set SILT_TLS_CLIENT"):
        open_trust(settings, lambda: None, None, None)  # type: ignore[arg-type]
