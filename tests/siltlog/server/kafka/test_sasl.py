"""Logins by tokens of an identity provider (SASL OAUTHBEARER), and logins anew on a connection."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_rig import Secured, secured_server
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import Producer
from identity_provider import IdentityProvider
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka_rig import METADATA, WAIT_SECONDS, Tape, bootstrap_of, free_port
from kafka_tools import KafkaTools
from waiting import until

from siltlog.infra.errors import ConfigError, Refused
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.security.keys import read_key
from siltlog.server.kafka.sasl import OAUTHBEARER, PLAIN, Said, read_bearer

HANDSHAKE, AUTHENTICATE = 17, 36
FAILED = KafkaError.SASL_AUTHENTICATION_FAILED


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as idp:
        yield idp


@pytest.fixture(scope="module")
def secured(idp: IdentityProvider) -> Iterator[Secured]:
    with secured_server(kafka_listen=f"127.0.0.1:{free_port()}", oidc_issuer=idp.issuer) as found:
        assert found.admin.create("allowed")
        found.allow("ada", "user:ada", "topic", "allowed", "write")
        found.allow("bob", "user:bob", "topic", "allowed", "write")
        yield found


def message(token: str, for_whom: str = "", *pairs: str) -> bytes:
    named = f"a={for_whom}" if for_whom else ""
    return "\x01".join((f"n,{named},", f"auth=Bearer {token}", *pairs, "", "")).encode()


def begin(tape: Tape, mechanism: str = OAUTHBEARER) -> None:
    assert tape.ask(HANDSHAKE, 1, mechanism=mechanism) == {"error_code": 0, "mechanisms": [PLAIN, OAUTHBEARER]}


def answer_to(tape: Tape, said: bytes) -> dict[str, Any]:
    return tape.ask(AUTHENTICATE, 2, auth_bytes=said)


def sees(tape: Tape, topic: str) -> bool:
    return bool(tape.ask(METADATA, 9, topics=[{"name": topic}])["topics"][0]["error_code"] == 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", Said("a.b.c")),
        (b"y,a=ada,\x01host=h\x01auth=bearer  a.b.c \x01port=1\x01\x01", Said("a.b.c", "ada")),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer t\x01\x01", Said("t", "a,b=")),
        (b"n,,\x01\x01", None),
        (b"n,,\x01auth=Basic x\x01\x01", None),
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", None),
        (b"n,,\x01auth=Bearer a\x01", None),
        (b"p=tls-unique,,\x01auth=Bearer a\x01\x01", None),
        (b"", None),
        (b"\x01", None),
        (b"\xff\xfe", None),
    ],
)
def test_messages_are_those_of_the_standard(text: bytes, said: Said | None) -> None:
    if said is not None:
        assert read_bearer(text) == said
        return
    with pytest.raises(Refused, match="RFC 7628"):
        read_bearer(text)


@pytest.mark.rule("KF11")
def test_a_token_logs_in_for_as_long_as_it_lasts(secured: Secured, idp: IdentityProvider) -> None:
    with Tape(bootstrap_of(secured.server)) as tape:
        begin(tape)
        answer = answer_to(tape, message(idp.token("ada", 600), "ada", "traceId=x"))
        assert (answer["error_code"], answer["auth_bytes"]) == (0, b"")
        assert 300_000 < answer["session_lifetime_ms"] <= 660_000
        assert sees(tape, "allowed")
        assert not sees(tape, "other")


@pytest.mark.rule("KF11")
def test_a_token_that_does_not_count_is_told_as_the_standard_says(secured: Secured, idp: IdentityProvider) -> None:
    for wrong in (idp.token("ada", aud="another"), "no.token.really", idp.id_token("page")):
        with Tape(bootstrap_of(secured.server)) as tape:
            begin(tape)
            first = answer_to(tape, message(wrong))
            assert first["error_code"] == 0
            assert json.loads(first["auth_bytes"]) == {
                "status": "invalid_token",
                "openid-configuration": f"{idp.issuer}/.well-known/openid-configuration",
            }
            then = answer_to(tape, b"\x01")
            assert (then["error_code"], then["auth_bytes"]) == (FAILED, b"")
            assert then["error_message"]
            tape.send(METADATA, 9, topics=None)
            assert tape.is_closed()


def ends(secured: Secured, said: bytes) -> bool:
    """Whether a login has no answer but the end of its connection."""
    with Tape(bootstrap_of(secured.server)) as tape:
        begin(tape)
        tape.send(AUTHENTICATE, 2, auth_bytes=said)
        return tape.is_closed()


def logs_in(secured: Secured, said: bytes) -> bool:
    with Tape(bootstrap_of(secured.server)) as tape:
        begin(tape)
        tape.send(AUTHENTICATE, 2, auth_bytes=said)
        # Nothing where the connection ends without an answer.
        return bool(tape.socket.recv(1))


@pytest.mark.rule("KF30")
def test_who_cannot_be_told_now_is_not_refused() -> None:
    counted = 'silt_kafka_errors_total{api="none",error="unavailable"}'
    with IdentityProvider() as away:
        settings = {"kafka_listen": f"127.0.0.1:{free_port()}", "oidc_issuer": away.issuer}
        with secured_server(**settings) as secured:
            until(lambda: logs_in(secured, message(away.token("ada"))))
            before = secured.admin.metrics().get(counted, 0)
            # Its keys were read a moment ago, and another may be newer.
            away.rotate()
            assert ends(secured, message(away.token("ada")))
            assert secured.admin.metrics()[counted] == before + 1
        token = away.token("ada")
        away.stop()
        try:
            with secured_server(**settings) as secured:
                assert ends(secured, message(token))
                assert secured.admin.metrics()[counted] == 1
        finally:
            away.resume()


@pytest.mark.rule("KF11", "KF31")
def test_what_is_no_message_and_whose_token_is_anothers_fails(secured: Secured, idp: IdentityProvider) -> None:
    bootstrap = bootstrap_of(secured.server)
    with Tape(bootstrap) as tape:
        assert answer_to(tape, message(idp.token("ada")))["error_code"] == KafkaError.ILLEGAL_SASL_STATE
        assert tape.is_closed()
    with Tape(bootstrap) as tape:
        assert tape.ask(HANDSHAKE, 1, mechanism="SCRAM-SHA-256")["error_code"] == KafkaError.UNSUPPORTED_SASL_MECHANISM
        assert tape.is_closed()
    with Tape(bootstrap) as tape:
        begin(tape)
        assert answer_to(tape, b"n,,\x01\x01")["error_code"] == FAILED
        assert tape.is_closed()
    with Tape(bootstrap) as tape:
        begin(tape)
        assert answer_to(tape, message(idp.token("ada"), "bob"))["auth_bytes"]
        assert answer_to(tape, b"\x01")["error_code"] == FAILED
        assert tape.is_closed()


def test_the_first_handshake_has_its_messages_bare(secured: Secured, idp: IdentityProvider) -> None:
    with Tape(bootstrap_of(secured.server)) as tape:
        assert tape.ask(HANDSHAKE, 0, mechanism=OAUTHBEARER)["error_code"] == 0
        tape.frame(message(idp.token("ada")))
        assert tape.received() == b""
        assert sees(tape, "allowed")
    with Tape(bootstrap_of(secured.server)) as tape:
        assert tape.ask(HANDSHAKE, 0, mechanism=OAUTHBEARER)["error_code"] == 0
        tape.frame(message("no.token.really"))
        assert b"invalid_token" in tape.received()
        tape.frame(b"\x01")
        assert tape.is_closed()


@pytest.mark.rule("KF19")
def test_who_logs_in_anew_stays_who_he_is(secured: Secured, idp: IdentityProvider) -> None:
    with Tape(bootstrap_of(secured.server)) as tape:
        for _ in range(2):
            begin(tape)
            assert answer_to(tape, message(idp.token("ada")))["error_code"] == 0
            assert sees(tape, "allowed")
        begin(tape)
        answer = answer_to(tape, message(idp.token("bob")))
        assert answer["error_code"] == FAILED
        assert "user:ada" in answer["error_message"]
        assert tape.is_closed()


@pytest.mark.rule("KF19")
def test_a_login_anew_by_another_mechanism_or_that_fails_ends_the_connection(
    secured: Secured, idp: IdentityProvider
) -> None:
    _, other = secured.key("other", ("producer", "allowed"))
    key = read_key(str(other.token))
    assert key is not None
    plain = f"\0{key.key_id}\0{other.token}".encode()
    for mechanism, said in ((PLAIN, plain), (PLAIN, b"\0x\0y"), (OAUTHBEARER, b"n,,\x01\x01")):
        with Tape(bootstrap_of(secured.server)) as tape:
            begin(tape)
            assert answer_to(tape, message(idp.token("ada")))["error_code"] == 0
            begin(tape, mechanism)
            assert answer_to(tape, said)["error_code"] == FAILED
            assert tape.is_closed()


@pytest.mark.slow
def test_clients_log_in_by_tokens_and_renew_them(secured: Secured, idp: IdentityProvider) -> None:
    asked: list[str] = []

    def fresh(_: str) -> tuple[str, float]:
        # Its client logs in anew before the token ends.
        asked.append(idp.token("ada", 3))
        return asked[-1], time.time() + 3

    bootstrap = bootstrap_of(secured.server)
    named = {"bootstrap.servers": bootstrap, "log_level": 0, "security.protocol": "SASL_PLAINTEXT",
             "sasl.mechanism": OAUTHBEARER}  # fmt: skip
    client = Producer({**named, "oauth_cb": fresh})
    end = time.monotonic() + WAIT_SECONDS
    sent = 0
    while len(asked) < 3:
        assert time.monotonic() < end
        client.produce("allowed", b"x")
        sent += 1
        client.poll(0.1)
    assert client.flush(WAIT_SECONDS) == 0
    assert secured.admin.get("/v1/topics/allowed").json["records"] == sent

    class Token(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return idp.token("ada")

    own = {"bootstrap_servers": bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": OAUTHBEARER}
    python = KafkaAdminClient(**own, sasl_oauth_token_provider=Token())
    assert python.list_topics() == ["allowed"]
    python.close()


def test_a_client_hears_that_its_token_does_not_count(secured: Secured, idp: IdentityProvider) -> None:
    errors: list[ClientError] = []
    named = {"bootstrap.servers": bootstrap_of(secured.server), "log_level": 0, "security.protocol": "SASL_PLAINTEXT",
             "sasl.mechanism": OAUTHBEARER}  # fmt: skip
    wrong = idp.token("ada", aud="another")
    client = Producer({**named, "oauth_cb": lambda _: (wrong, time.time() + 60), "error_cb": errors.append})
    end = time.monotonic() + WAIT_SECONDS
    while not any(error.code() == ClientError._AUTHENTICATION for error in errors):
        assert time.monotonic() < end, errors
        client.poll(0.1)


@pytest.mark.client
def test_a_client_of_java_logs_in_by_a_token(secured: Secured, idp: IdentityProvider, tmp_path: Path) -> None:
    token = tmp_path / "token"
    named = "org.apache.kafka.common.security.oauthbearer"
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": OAUTHBEARER,
        "sasl.login.callback.handler.class": f"{named}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.jaas.config": f"{named}.OAuthBearerLoginModule required;",
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    options = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}",
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}",
    ]
    try:
        with KafkaTools(bootstrap_of(secured.server), *options) as tools:
            token.write_text(idp.token("ada"))
            listed = tools.run("kafka-topics", "--list", "--command-config", str(config))
            assert (listed.status, listed.text.split()) == (0, ["allowed"])
            token.write_text(idp.token("ada", aud="another"))
            refused = tools.run("kafka-topics", "--list", "--command-config", str(config))
            assert "invalid_token" in refused.text or "does not count" in refused.text
    except ConfigError as error:
        pytest.skip(f"Kafka's tools cannot be run: {error}")
