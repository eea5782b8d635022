"""TLS of a real server: its certificates, and those of its clients, while they change."""

import http.client as http_client
import json
import os
import select
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
import urllib3
from http_rig import NO_REDIS, Http, exchange
from tls_rig import Made, client_of, serial_of
from waiting import until
from websockets.sync.client import connect

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.http.connection.connection import LULL_SECONDS
from siltlog.infra.http.connection.handshakes import HANDSHAKE_SECONDS, HANDSHAKES_MAX
from siltlog.infra.metrics import catalogue
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.tls import tls_files
from siltlog.server_process import ServerProcess
from siltlog.testing import running_server


def settings_of(made: Made, **others: object) -> dict[str, object]:
    return {
        "redis_url": NO_REDIS,
        "flush_ms": 50,
        "tls_cert": made.files.certificate,
        "tls_key": made.files.key,
    } | others


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """What a server of the test's own serves with."""
    return Made(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """What `server` serves with: whoever changes it leaves what fits."""
    return Made(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(shared: Made) -> Iterator[ServerProcess]:
    with running_server(**settings_of(shared)) as server:
        yield server


def hang_up(server: ServerProcess) -> None:
    os.kill(server.pid, signal.SIGHUP)


def serial_served(http: Http) -> int:
    with http.connect() as connection:
        assert isinstance(connection, ssl.SSLSocket)
        shown = connection.getpeercert()
        assert shown
        return int(str(shown["serialNumber"]), 16)


# --- that it is spoken ------------------------------------------------------------------------------------
def test_everything_is_answered_as_without(shared: Made, server: ServerProcess) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    http = Http(server.url, client_of(shared))
    http.create("plain")
    values = ["x" * size for size in (1, 100, 300_000)]
    for value in values:
        assert http.publish("plain", {"value": value}).status == 200
    assert [record["value"] for record in http.read("plain", query="values=text")] == values
    assert http.get("/v1/cluster").json["nodes"][0]["url"] == server.url
    assert http.get("/readyz").json["warnings"] == ["groups: Redis does not answer"]
    lines = http.get("/metrics").body.decode().splitlines()
    [line] = [line for line in lines if line.startswith(catalogue.TLS_NOT_AFTER.name)]
    assert float(line.split()[1]) > time.time()
    with http.connect() as connection:
        assert isinstance(connection, ssl.SSLSocket)
        assert (connection.version(), connection.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")


def test_a_reply_to_what_was_refused_half_way_is_read_whole(shared: Made, server: ServerProcess) -> None:
    """The server closes behind it, which TLS does otherwise than a plain connection."""
    http = Http(server.url, client_of(shared))
    http.create("refused")
    for _ in range(20):
        with http.connect() as connection:
            head = "POST /v1/topics/refused/records HTTP/1.1\nHost: localhost\nContent-Type: application/json"
            got = exchange(connection, f"{head}\nContent-Length: 100000000\nConnection: close", b"x" * 100_000)
            assert b"request_too_large" in got
            connection.sendall(b"x" * 100_000)
    with http.connect() as connection:
        assert b" 400 " in exchange(connection, "what is this")
        connection.sendall(b"more of it")
    assert "Traceback" not in server.log_path.read_text()


@pytest.mark.parametrize(
    "told",
    [
        "what is this",
        "POST /v1/topics/none/records HTTP/1.1\nHost: localhost\nConnection: close\nContent-Length: 1000000000",
    ],
)
def test_who_was_refused_half_way_hears_the_end_soon_and_not_before_he_is_done(
    shared: Made, server: ServerProcess, told: str
) -> None:
    http = Http(server.url, client_of(shared))
    # Where it is broken off, no try ends well.
    until(lambda: hears_the_end(http, told))


def hears_the_end(http: Http, told: str) -> bool:
    """Whether one who goes on for longer than a lull is told the end; fails where he is told before he is done.

    False where it was broken off, or this machine stood still for a lull.
    """
    with http.connect() as connection:
        assert isinstance(connection, ssl.SSLSocket)
        connection.suppress_ragged_eofs = False
        began = sent = time.monotonic()
        assert b"HTTP/1.1 4" in exchange(connection, told, b"x" * 70_000)
        try:
            while sent < began + 1.5 * LULL_SECONDS:
                time.sleep(LULL_SECONDS / 4)
                over = bool(select.select([connection], [], [], 0)[0])
                if time.monotonic() >= sent + LULL_SECONDS:
                    return False
                assert not over, "he was not done"
                sent = time.monotonic()
                connection.sendall(b"x" * 1_000)
            while connection.recv(65_536):
                pass
        except OSError:
            return False
    return True


@pytest.mark.slow
def test_streams_and_web_sockets(shared: Made, server: ServerProcess) -> None:
    context = client_of(shared)
    http = Http(server.url, context)
    http.create("pushed")
    parts = urlsplit(server.url)
    connection = http_client.HTTPSConnection(str(parts.hostname), parts.port, context=context, timeout=60)
    socket_url = server.url.replace("https", "wss")
    with closing(connection), connect(f"{socket_url}/v1/topics/pushed/ws?offset=earliest", ssl=context) as web_socket:
        connection.request("GET", "/v1/topics/pushed/tail?offset=earliest", headers={"Accept": names.MEDIA_EVENTS})
        stream = connection.getresponse()
        web_socket.send(json.dumps({"type": "credit", "records": 1_000}))
        for number in range(100):
            assert http.publish("pushed", {"value": f"value {number}"}).status == 200
        told: list[str] = []
        while len(told) < 100:
            told += [record["value"] for record in json.loads(web_socket.recv(60)).get("records", [])]
        assert told == [f"value {number}" for number in range(100)]
        while b"value 99" not in stream.readline():
            pass


def test_jobs_of_the_schedule_need_no_authority_to_call_it(made: Made) -> None:
    off = dict.fromkeys(("schedule_compact", "schedule_vacuum", "schedule_audit"), "off")
    schedule = {"schedule": "on", "schedule_retain": "* * * * * *", **off}
    with running_server(**settings_of(made, **schedule)) as server:
        http = Http(server.url, client_of(made))
        http.create("t", retention_records=1)
        assert http.publish("t", *({"value": "x"} for _ in range(5)), query="?acks=table").status == 200
        until(lambda: bool(http.get("/v1/jobs").json["jobs"]), 240)
        [*_, job] = http.get("/v1/jobs").json["jobs"]
        assert (job["job"], job["outcome"]) == ("retain", "succeeded")


def test_clear_text_is_not_answered(server: ServerProcess) -> None:
    with pytest.raises(urllib3.exceptions.ProtocolError):
        Http(server.url.replace("https", "http")).get("/healthz")


def test_a_page_of_its_own_is_https(shared: Made, server: ServerProcess) -> None:
    http = Http(server.url, client_of(shared))
    assert http.get("/v1/topics", Origin=server.url).status == 200
    assert http.get("/v1/topics", Origin=server.url.replace("https", "http")).error_code == "origin_not_allowed"


def test_it_stops_as_without(made: Made) -> None:
    with running_server(**settings_of(made)) as server, Http(server.url, client_of(made)).connect() as idle:
        exchange(idle, "GET /healthz HTTP/1.1\nHost: localhost")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 25, "an end that the client has to confirm is waited for thirty seconds"
        assert idle.recv(1) == b""


# --- certificates that change -----------------------------------------------------------------------------
@pytest.mark.rule("A20")
@pytest.mark.timeout(300)
def test_certificates_are_replaced_under_load_and_no_request_fails(shared: Made, server: ServerProcess) -> None:
    Http(server.url, client_of(shared)).create("loaded")
    stop = threading.Event()
    failed: list[object] = []
    done = [0, 0, 0]

    def load(number: int) -> None:
        http = Http(server.url, client_of(shared))
        while not stop.is_set():
            try:
                # One of them begins a connection for each request, and so with each certificate.
                again = {"Connection": "close"} if number == 0 else {}
                reply = http.publish("loaded", {"value": "x"}, **again)
                if reply.status != 200:
                    failed.append(reply)
                done[number] += 1
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(len(done))]
    for thread in threads:
        thread.start()
    http = Http(server.url, client_of(shared))
    seen = {serial_served(http)}

    def went_on(before: list[int]) -> bool:
        return bool(failed) or all(now >= then + 2 for now, then in zip(done, before, strict=True))

    for _ in range(5):
        shared.issue()
        hang_up(server)
        until(lambda: serial_served(http) not in seen)
        seen.add(serial_served(http))
        until(partial(went_on, list(done)))
    stop.set()
    for thread in threads:
        thread.join()
    assert (failed, len(seen)) == ([], 6)
    assert http.end("loaded") == sum(done)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_changed_is_seen_without_being_told(shared: Made, server: ServerProcess) -> None:
    http = Http(server.url, client_of(shared))
    first = serial_served(http)
    shared.issue()
    until(lambda: serial_served(http) != first)


@pytest.mark.rule("A20")
def test_a_pair_that_does_not_fit_leaves_the_old_one(shared: Made, server: ServerProcess) -> None:
    http = Http(server.url, client_of(shared))
    first = serial_served(http)
    with http.connect() as kept:
        # The certificate stays, so that no look of the server's own finds a pair that fits.
        another = shared.authority.issue_cert("localhost")
        another.private_key_pem.write_to_path(str(shared.files.key))
        hang_up(server)
        until(lambda: "tls:" in str(http.get("/readyz").json["warnings"]))
        [warning] = [text for text in http.get("/readyz").json["warnings"] if text.startswith("tls:")]
        assert "the one before is: the key in " in warning
        assert http.get("/readyz").status == 200
        assert serial_served(http) == first
        assert b" 200 " in exchange(kept, "GET /healthz HTTP/1.1\nHost: localhost")
    assert "is not that of the certificate" in server.log_path.read_text()
    shared.issue()
    hang_up(server)
    until(lambda: serial_served(http) != first)
    assert "tls:" not in str(http.get("/readyz").json["warnings"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tls_cert": "/c"}, "SILT_TLS_CERT does nothing by itself"),
        ({"tls_key": "/k"}, "SILT_TLS_KEY does nothing by itself"),
        ({"tls_client": "optional"}, "SILT_TLS_CLIENT=optional does nothing by itself"),
        ({"tls_cert": "/c", "tls_key": "/k", "tls_client": "required"}, "needs SILT_TLS_CLIENT_CA"),
        ({"tls_cert": "/c", "tls_key": "/k", "tls_client_ca": "/a"}, "SILT_TLS_CLIENT_CA does nothing while"),
        ({"tls_cert": "/c", "tls_key": "/k", "tls_crl": "/l"}, "SILT_TLS_CRL does nothing while"),
    ],
)
def test_settings_that_do_nothing_together(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        tls_files(ServerSettings(**given))  # type: ignore[arg-type]


def test_it_does_not_start_with_files_that_cannot_be_served(made: Made) -> None:
    made.files.key.write_text("no key")
    with pytest.raises(ConfigError, match=r"exit status 1.*server\.key is not the key of a certificate"):
        running_server(**settings_of(made)).__enter__()


# --- certificates of clients ------------------------------------------------------------------------------
def with_clients(made: Made, mode: str, **others: object) -> dict[str, object]:
    files = made.with_clients()
    return settings_of(made, tls_client_ca=files.client_ca, tls_client=mode, **others)


def comes_in(http: Http) -> bool:
    try:
        return http.get("/healthz").status == 200
    except urllib3.exceptions.HTTPError:
        return False


@pytest.mark.parametrize("mode", ["optional", "required"])
def test_who_needs_a_certificate(made: Made, mode: str) -> None:
    stranger = client_of(made)
    trustme.CA().issue_cert("jobs").configure_cert(stranger)
    with running_server(**with_clients(made, mode)) as server:
        assert comes_in(Http(server.url, client_of(made, "jobs")))
        assert comes_in(Http(server.url, client_of(made))) is (mode == "optional")
        assert not comes_in(Http(server.url, stranger))


@pytest.mark.parametrize("replaced", ["the list alone", "the server's key too, by another"])
@pytest.mark.rule("A22")
def test_a_certificate_that_is_revoked_loses_its_connections_too(made: Made, replaced: str) -> None:
    issued, other = made.authority.issue_cert("jobs"), client_of(made, "other")
    client = client_of(made)
    issued.configure_cert(client)
    with running_server(**with_clients(made, "required", tls_crl=made.revoke())) as server:
        http, others = Http(server.url, client), Http(server.url, other)
        with http.connect() as kept, others.connect() as stays:
            for connection in (kept, stays):
                assert b" 200 " in exchange(connection, "GET /healthz HTTP/1.1\nHost: localhost")
            made.revoke(serial_of(issued))
            if replaced != "the list alone":
                made.authority.issue_cert("localhost").private_key_pem.write_to_path(str(made.files.key))
            hang_up(server)
            assert not kept.recv(1)
            assert b" 200 " in exchange(stays, "GET /healthz HTTP/1.1\nHost: localhost")
        assert not comes_in(Http(server.url, client))
        assert comes_in(others)


@pytest.mark.rule("A22")
def test_with_an_authority_go_the_connections_that_it_may_have_let_in(made: Made, tmp_path: Path) -> None:
    other, third = trustme.CA(), trustme.CA()
    settings = with_clients(made, "optional") | {"tls_client_ca": tmp_path / "clients.pem"}

    def let_in(*authorities: trustme.CA) -> None:
        (tmp_path / "clients.pem").write_bytes(b"\n".join(one.cert_pem.bytes() for one in authorities))

    def shown(authority: trustme.CA) -> Http:
        client = client_of(made)
        authority.issue_cert("jobs").configure_cert(client)
        return Http(server.url, client)

    def asked(connection: socket.socket) -> bool:
        return b" 200 " in exchange(connection, "GET /healthz HTTP/1.1\nHost: localhost")

    let_in(made.authority, other)
    with running_server(**settings) as server:
        nobody = Http(server.url, client_of(made))
        with shown(made.authority).connect() as gone, shown(other).connect() as kept, nobody.connect() as without:
            assert all(map(asked, (gone, kept, without)))
            # One more, and in another order, is nothing to those that are in.
            let_in(third, other, made.authority)
            hang_up(server)
            until(lambda: comes_in(shown(third)))
            assert all(map(asked, (gone, kept, without)))
            let_in(third, other)
            hang_up(server)
            assert not gone.recv(1)
            assert not kept.recv(1)
            assert asked(without)
        assert not comes_in(shown(made.authority))
        assert comes_in(shown(other))


# --- handshakes -------------------------------------------------------------------------------------------
@pytest.mark.rule("A21")
@pytest.mark.timeout(300)
def test_two_thousand_half_made_handshakes_keep_nobody_out(shared: Made, server: ServerProcess) -> None:
    assert any(give_way(Http(server.url, client_of(shared)), server) for _ in range(3)), "they end by themselves alone"


def give_way(http: Http, server: ServerProcess) -> bool:
    """Whether half-made handshakes end sooner than they do by themselves, while others are made."""
    count, left = 2_000, HANDSHAKES_MAX + 200
    plain = Http(server.url)
    half = []
    try:
        for number in range(count):
            if number == count - left:
                end = time.monotonic() + HANDSHAKE_SECONDS
            half.append(plain.connect())
            half[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
            if number % 500 == 499:
                assert http.get("/readyz", Connection="close").status == 200
        while (found := descriptors(server)) >= left and time.monotonic() < end:
            time.sleep(0.05)
        assert http.get("/readyz", Connection="close").status == 200
        return found < left
    finally:
        for connection in half:
            connection.close()


def descriptors(server: ServerProcess) -> int:
    return sum(1 for _ in Path(f"/proc/{server.pid}/fd").iterdir())


@pytest.mark.slow
@pytest.mark.rule("A21")
def test_a_handshake_that_stands_still_is_ended(shared: Made, server: ServerProcess) -> None:
    with Http(server.url).connect() as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        begun = time.monotonic()
        assert half.recv(1) == b""
        assert 5 < time.monotonic() - begun < 40
    until(lambda: "handshakes of TLS failed" in server.log_path.read_text())


def test_connections_of_one_address_are_bounded(made: Made) -> None:
    with running_server(**settings_of(made, connections_per_ip_max=3)) as server:
        http = Http(server.url, client_of(made))
        few = [http.connect() for _ in range(3)]
        for connection in few:
            assert b" 200 " in exchange(connection, "GET /v1/topics HTTP/1.1\nHost: localhost")
        with pytest.raises(OSError):
            http.connect()
        few.pop().close()
        until(lambda: comes_in(http))
        for connection in few:
            connection.close()
