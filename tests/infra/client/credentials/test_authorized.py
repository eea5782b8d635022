import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from credential_server import Authority, CredentialServer, Source, WallClock, jwt, serving
from tls_rig import Made

from siltlog.consumers.library.async_consumer import AsyncConsumer
from siltlog.consumers.library.consumer import Consumer
from siltlog.infra.client import calls
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.async_admin import AsyncAdmin
from siltlog.infra.client.core import ConnectionFailed, Request, Response
from siltlog.infra.client.credentials.authorized import AuthorizedTransport, open_transport
from siltlog.infra.client.credentials.credentials import Credentials
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import ConfigError, DeliveryFailed, Forbidden, OutcomeUnknown, Unauthenticated, Unavailable
from siltlog.infra.names import SOCKET_FILE
from siltlog.ingest.library.async_producer import AsyncProducer
from siltlog.ingest.library.producer import Producer
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server

GET = Request("GET", "/v1/topics")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def server() -> Iterator[CredentialServer]:
    with serving() as server:
        server.tokens = {"good"}
        yield server


class Answers:
    """A transport that gives these statuses in turn, then 200, and keeps what it was sent."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        self.sent: list[str | None] = []

    def send(self, url: str, request: Request) -> Response:
        self.sent.append(request.headers.get("Authorization"))
        return Response(self._statuses.pop(0) if self._statuses else 200, {}, b"")

    def close(self) -> None:
        """Nothing is open."""


URL = "http://127.0.0.1:1"


def transport_of(token: str | Callable[[], str], *statuses: int) -> tuple[AuthorizedTransport, Answers, WallClock]:
    below, clock = Answers(*statuses), WallClock()
    return AuthorizedTransport(below, Endpoints(URL), token, clock), below, clock


def test_each_request_says_who_sends_it(server: CredentialServer) -> None:
    with Admin(server.url, token="good") as admin:
        assert admin.topics() == [] and admin.topics() == []
    assert server.seen == ["Bearer good"] * 2


@pytest.mark.rule("X9")
def test_what_is_refused_is_told_at_once(server: CredentialServer) -> None:
    with Admin(server.url, token="canary") as admin, pytest.raises(Unauthenticated, match="not known") as refused:
        admin.topics()
    assert len(server.seen) == 1
    assert (refused.value.status, refused.value.members["reason"]) == (401, "unknown")
    assert "canary" not in f"{refused.value!r} {vars(refused.value)}"
    with Admin(server.url, token="good") as admin, pytest.raises(Forbidden, match="may not read"):
        admin.topic("forbidden")
    assert len(server.seen) == 2


def test_a_page_without_a_word_is_known_by_its_status(server: CredentialServer) -> None:
    for status, kind in ((401, Unauthenticated), (403, Forbidden)):
        server.status = status
        with Admin(server.url) as admin, pytest.raises(kind, match=str(status)):
            admin.topics()


@pytest.mark.rule("X9")
def test_a_function_is_asked_once_more_when_its_token_is_refused(server: CredentialServer) -> None:
    source = Source("old", "good")
    with Admin(server.url, token=source) as admin:
        assert admin.topics() == []
        assert admin.topics() == []
    assert server.seen == ["Bearer old", "Bearer good", "Bearer good"] and source.calls == 2
    source = Source("old", "older", "oldest")
    with Admin(server.url, token=source) as admin, pytest.raises(Unauthenticated):
        admin.topics()
    assert source.calls == 2
    source = Source("same")
    seen = len(server.seen)
    with Admin(server.url, token=source) as admin, pytest.raises(Unauthenticated):
        admin.topics()
    assert len(server.seen) == seen + 1, "the same token is not sent twice"


def test_a_refused_publish_is_sent_again_by_the_new_token(server: CredentialServer) -> None:
    transport, below, _ = transport_of(Source("old", "new"), 401)
    request = Request("POST", "/v1/topics/t/records", {"A": "b"}, (b"body",))
    assert transport.send(URL, request).status == 200
    assert below.sent == ["Bearer old", "Bearer new"]
    assert dict(request.headers) == {"A": "b"}


@pytest.mark.rule("X9")
def test_a_token_is_renewed_before_it_expires() -> None:
    first, second = jwt(exp=1_000), jwt(exp=2_000)
    source = Source(first, second)
    transport, below, clock = transport_of(source)
    for seconds in (0.0, 939.0, 940.0, 941.0):
        clock.seconds = seconds
        transport.send(URL, GET)
    assert below.sent == [f"Bearer {token}" for token in (first, first, second, second)] and source.calls == 2


def test_while_it_cannot_be_renewed_the_present_one_is_used_until_it_expires() -> None:
    token = jwt(exp=1_000)
    source = Source(token, RuntimeError("secret"))
    transport, below, clock = transport_of(source)
    for seconds in (0.0, 950.0, 951.0, 956.0):
        clock.seconds = seconds
        transport.send(URL, GET)
    assert below.sent == [f"Bearer {token}"] * 4 and source.calls == 3
    clock.seconds = 1_000.0
    with pytest.raises(ConnectionFailed, match="raised RuntimeError"):
        transport.send(URL, GET)


@pytest.mark.rule("X8")
def test_a_function_that_gives_no_token(server: CredentialServer) -> None:
    for source in (Source(RuntimeError("canary")), Source("canary canary")):
        with Admin(server.url, token=source, retry_timeout_ms=0) as admin, pytest.raises(Unavailable) as failed:
            admin.topics()
        assert "there is no token" in str(failed.value) and failed.value.error_code == "no_token"
        assert "canary" not in str(failed.value) and "running" not in str(failed.value)
        assert failed.value.__cause__ is None
    assert server.seen == []


def test_threads_ask_for_one_token() -> None:
    asked, go = threading.Semaphore(0), threading.Event()

    def slow() -> str:
        asked.release()
        assert go.wait(60)
        return "t"

    transport, below, _ = transport_of(slow)
    threads = [threading.Thread(target=transport.send, args=(URL, GET)) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert asked.acquire(timeout=60)
    go.set()
    for thread in threads:
        thread.join(60)
    assert below.sent == ["Bearer t"] * 4 and not asked.acquire(blocking=False)


@pytest.mark.rule("X7")
def test_another_server_is_told_nothing(server: CredentialServer) -> None:
    transport, below, _ = transport_of("t")
    transport.send("http://127.0.0.1:2", GET)
    transport.send("https://elsewhere.example", GET)
    assert below.sent == [None, None]
    server.status = 307
    with Admin(server.url, token="good", retry_timeout_ms=0) as admin, pytest.raises(Exception, match="307"):
        admin.topics()
    assert server.seen == ["Bearer good"], "a redirection is not followed"


@pytest.mark.rule("X7")
def test_in_plain_text_to_another_machine_is_refused_before_anything_is_sent() -> None:
    for make in (Admin, Producer):
        with pytest.raises(ConfigError, match="plain http"):
            make("http://silt.example:7070", token="t")


def test_what_the_environment_says_holds(server: CredentialServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "token").write_text("good\n")
    monkeypatch.setenv("SILT_TOKEN_FILE", str(home / "token"))
    with Admin(server.url) as admin:
        assert admin.topics() == []
        (home / "token").write_text("better")
        server.tokens = {"better"}
        assert admin.topics() == []
    with Admin(server.url, token="") as admin, pytest.raises(Unauthenticated):
        admin.topics()
    assert server.seen[-1] is None


def test_a_transport_of_one_s_own_takes_a_token_too() -> None:
    below = Answers()
    transport = open_transport(Endpoints(URL), WallClock(), Credentials(token="t"), below)
    transport.send(URL, GET)
    assert below.sent == ["Bearer t"]
    assert open_transport(Endpoints(URL), WallClock(), None, below) is below


def test_over_tls_with_certificates_on_both_sides(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(home)
    pair = authority.client_pair("ingest.example")
    together = home / "both.pem"
    together.write_bytes(b"".join(path.read_bytes() for path in pair))
    with serving(authority.server_context(clients=True)) as server:
        for cert in (pair, together, str(together)):
            with Admin(server.url, ca=authority.path, cert=cert) as admin:
                assert admin.topics() == [] and admin.topics() == []
        assert server.connections == 3, "a connection is used again"
        assert ("DNS", "ingest.example") in server.peers[-1]["subjectAltName"]
        monkeypatch.setenv("SILT_CA", str(authority.path))
        monkeypatch.setenv("SILT_CERT", ",".join(map(str, pair)))
        with Admin(server.url) as admin:
            assert admin.topics() == []


def test_files_are_looked_at_when_a_client_is_made(home: Path) -> None:
    authority = Authority(home)
    (home / "empty").touch()
    for given in (
        {"ca": home / "none.pem"},
        {"ca": home / "empty"},
        {"cert": home / "none.pem"},
        {"cert": authority.path},
        {"cert": (authority.client_pair("a")[0], authority.client_pair("b")[1])},
    ):
        with pytest.raises(ConfigError, match=str(home)):
            Admin("https://silt.example", **given)  # type: ignore[arg-type]


@pytest.mark.rule("X9")
def test_who_is_refused_in_the_background_is_told(server: CredentialServer) -> None:
    began = time.monotonic()
    with (
        Consumer(server.url, group="g", topics="t", token="canary") as consumer,
        pytest.raises(Unauthenticated, match="not known"),
    ):
        for _ in range(20):
            consumer.poll(timeout_ms=500)
    with pytest.raises(DeliveryFailed) as failed, Producer(server.url, token="canary") as producer:
        delivery = producer.send("t", "v")
        with pytest.raises(Unauthenticated, match="not known"):
            delivery.result(60)
        producer.send("t", "w")
    assert [type(each) for each in failed.value.failures] == [Unauthenticated]
    assert time.monotonic() - began < 40, "nothing was tried again until it was too late"
    assert "canary" not in f"{failed.value!r} {failed.value.failures!r}"


@pytest.fixture
def real(home: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A server with TLS and authentication, and a key of its administrator; the authority is in `authority.pem`."""
    made = Made(home)
    made.authority.cert_pem.write_to_path(str(home / "authority.pem"))
    with running_server(
        data_dir=home / "data", auth="on", tls_cert=made.files.certificate, tls_key=made.files.key, flush_ms=100
    ) as server:
        wanted = {"name": "ops", "bindings": [{"role": "admin"}]}
        endpoints = Endpoints(f"unix:{home}/data/{SOCKET_FILE}")
        transport = open_transport(endpoints, SystemClock())
        caller = Caller(endpoints, transport, SystemClock(), retry_timeout_ms=5_000)
        key = caller.run(calls.document_of("POST", "/v1/access/keys", wanted))["key"]
        transport.close()
        yield server, key


def test_a_server_with_tls_and_authentication(real: tuple[ServerProcess, str], home: Path) -> None:
    server, key = real
    url = server.url.replace("127.0.0.1", "localhost")
    known: dict[str, Any] = {"ca": home / "authority.pem", "token": key}
    with Admin(url, **known) as admin, Producer(url, **known) as producer:
        admin.create_topic("t", partitions=2)
        producer.send("t", "v", partition=0).result(60)
        with Consumer(url, group="g", topics="t", stop_at="latest", idle_timeout_ms=20_000, **known) as consumer:
            assert [record.value for record in consumer] == [b"v"]
        assert [group["group"] for group in admin.groups()] == ["g"]
    for token in ("", key[:-1] + ("a" if key[-1] != "a" else "b")):
        with Admin(url, ca=home / "authority.pem", token=token) as admin, pytest.raises(Unauthenticated):
            admin.topics()
    with Admin(url, token=key, retry_timeout_ms=0) as admin, pytest.raises(Unavailable, match="no authority"):
        admin.topics()
    plain = url.replace("https", "http")
    with Admin(plain, retry_timeout_ms=0) as admin, pytest.raises(OutcomeUnknown, match="its URL begins with https://"):
        admin.cluster()


def test_a_server_with_tls_and_authentication_from_asyncio(real: tuple[ServerProcess, str], home: Path) -> None:
    server, key = real
    known: dict[str, Any] = {"ca": home / "authority.pem"}

    async def token() -> str:
        return key

    async def use() -> None:
        async with AsyncAdmin(server.url, token=token, **known) as admin:
            await admin.create_topic("t")
            async with AsyncProducer(server.url, token=token, **known) as producer:
                await producer.send("t", "v")
            async with AsyncConsumer(
                server.url, group="g", topics="t", stop_at="latest", idle_timeout_ms=20_000, token=token, **known
            ) as consumer:
                assert [record.value async for record in consumer] == [b"v"]
        async with AsyncAdmin(server.url, **known) as admin:
            with pytest.raises(Unauthenticated):
                await admin.topics()
        async with AsyncAdmin(server.url.replace("https", "http"), token=key, retry_timeout_ms=0) as admin:
            with pytest.raises(OutcomeUnknown, match="its URL begins with https://"):
                await admin.cluster()

    asyncio.run(use())
    assert key not in server.log_path.read_text()
