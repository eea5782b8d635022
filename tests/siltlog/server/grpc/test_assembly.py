"""Where gRPC listens, to whom it answers, and what it costs where nobody wants it."""

import gzip
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from access_rig import Secured, make_first_key, secured_server
from cluster_rig import STEADY_MS, cluster
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_rig import Client, Member, Problem, Said, client_at, free_port, port_of, served
from http_rig import NO_REDIS, Http
from resident import resident_bytes
from tls_rig import Made, serial_of
from waiting import until

from siltlog.infra.errors import ConfigError
from siltlog.infra.grpc.arrivals import DATA, END_STREAM, HEADERS
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.infra.settings.settings import ServerSettings
from siltlog.server import listener
from siltlog.server.listener import check_grpc, check_reach, listening_problems
from siltlog.testing import running_server

SETTINGS, ACK, END_HEADERS = 4, 1, 4
MIB = 1024 * 1024


def record(value: bytes = b"x") -> pb.PublishRecord:
    return pb.PublishRecord(value=value)


# --- off, and what is asked for in vain ---------------------------------------------------------------------
def test_off_costs_nothing() -> None:
    """Nothing of it is imported by what a server imports, nor by what waits for its settings."""
    code = (
        "import sys; import siltlog.server.wiring; "
        "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'google') or '.grpc' in name])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_running_server_without_it_has_none_of_its_libraries() -> None:
    with running_server(redis_url=NO_REDIS) as server:
        assert "cygrpc" not in Path(f"/proc/{server.pid}/maps").read_text()
    with served(redis_url=NO_REDIS) as (_, __, server):
        assert "cygrpc" in Path(f"/proc/{server.pid}/maps").read_text()


def test_what_is_no_address_is_refused() -> None:
    for wrong in ("7071", "host", "http://host:1", "host:port", "host:99999", "::1:7071", ":7071", "a b:1"):
        with pytest.raises(ValueError, match=r"is not a place to listen at|is not a port"):
            ServerSettings(grpc_listen=wrong)
    for right in ("127.0.0.1:0", "[::1]:7071", "localhost:1", "silt.example:65535"):
        assert ServerSettings(grpc_listen=right).grpc_listen == right


@pytest.mark.rule("A19")
def test_others_reach_it_with_tls_and_authentication_alone() -> None:
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1 can be reached from other machines, without TLS"):
        check_reach(ServerSettings(grpc_listen="10.0.0.1:7071"))
    assert check_reach(ServerSettings(grpc_listen="127.0.0.1:7071")) == []
    assert check_reach(ServerSettings(grpc_listen="10.0.0.1:1", auth="on", tls_cert="/c", tls_key="/k")) == []
    [warning] = check_reach(ServerSettings(grpc_listen="10.0.0.1:1", insecure="no-tls,no-auth"))
    assert warning == "insecure: 10.0.0.1 can be reached from other machines; SILT_INSECURE waives no-tls,no-auth"


def test_without_its_packages_a_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "GRPC_PACKAGES", ("grpc", "no_such_package"))
    settings = ServerSettings(grpc_listen="127.0.0.1:7071")
    with pytest.raises(ConfigError, match=r"pip install 'siltlog\[grpc\]'"):
        check_grpc(settings)
    assert [found for found in listening_problems(settings) if "siltlog[grpc]" in found]
    check_grpc(ServerSettings())


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}.*SILT_GRPC_LISTEN"),
            running_server(redis_url=NO_REDIS, grpc_listen=f"127.0.0.1:{port}", data_dir=tmp_path),
        ):
            pass


# --- who may do what ---------------------------------------------------------------------------------------
def as_(secured: Secured, token: str | None) -> Any:
    metadata = {} if token is None else {"authorization": f"Bearer {token}"}
    return client_at(port_of(secured.server), **metadata)


def test_rights_quotas_and_the_audit_are_those_of_http() -> None:
    with secured_server(grpc_listen=f"127.0.0.1:{free_port()}") as secured:
        assert secured.admin.create("allowed")
        assert secured.admin.create("other")
        _, writer = secured.key("writer", ("producer", "allowed"))
        with as_(secured, writer.token) as client:
            assert client.Publish(topic="allowed", records=[record()]).partitions[0].first_offset == 0
            calls = {
                "a publish elsewhere": (
                    lambda: client.Publish(topic="other", records=[record()]),
                    lambda: writer.publish("other", {"value": "x"}),
                ),
                "a topic": (
                    lambda: client.CreateTopic(name="new"),
                    lambda: writer.json("POST", "/v1/topics", {"name": "new"}),
                ),
                "a group": (
                    lambda: client.Join(group="g", member_id="m", settings=pb.MemberSettings(topics=["other"])),
                    lambda: writer.json("PUT", "/v1/groups/g/members/m", {"generation": 0, "topics": ["other"]}),
                ),
                "a deletion": (
                    lambda: client.DeleteTopic(topic="other"),
                    lambda: writer.call("DELETE", "/v1/topics/other"),
                ),
            }
            for by_grpc, by_http in calls.values():
                with pytest.raises(Problem) as failed:
                    by_grpc()
                told = by_http().json
                assert (failed.value.reason, failed.value.detail) == (told["error_code"], told["detail"])
                assert failed.value.code is grpc.StatusCode.PERMISSION_DENIED
            # Others are not in its lists, and a part that may not be read has its own refusal.
            assert [it.name for it in client.ListTopics().topics] == [
                it["name"] for it in writer.get("/v1/topics").json["topics"]
            ]
            [part] = client.Fetch(partitions=[pb.FetchPosition(topic="other", partition=0)]).partitions
            assert part.error.error_code == "forbidden"
            assert Member(client, "g", "other").problem().code is grpc.StatusCode.PERMISSION_DENIED
        for token in (None, "silt_000000000000_" + "0" * 43):
            with as_(secured, token) as client, pytest.raises(Problem) as failed:
                client.Publish(topic="allowed", records=[record()])
            assert (failed.value.code, failed.value.reason) == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")
        _denials_and_changes_are_recorded(secured)
        _quotas_hold(secured)
        _access_that_is_taken_back_ends_streams(secured)


def _denials_and_changes_are_recorded(secured: Secured) -> None:
    token = secured.admin.token
    with as_(secured, token) as client:
        client.CreateTopic(name="recorded")
        client.DeleteTopic(topic="recorded")
    end = time.monotonic() + 30
    while True:
        rows = secured.admin.get("/v1/topics/_audit/partitions/0/records?values=json&max_records=1000").json["records"]
        done = {(row["value"]["operation"], row["value"]["resource"]) for row in rows}
        if {("createTopic", "topic/recorded"), ("deleteTopic", "topic/recorded")} <= done:
            return
        assert time.monotonic() < end, done
        time.sleep(0.1)


def _quotas_hold(secured: Secured) -> None:
    _, limited = secured.key("limited", ("producer", "allowed"))
    quota = {"principal": "key:limited", "requests_per_s": 1}
    reply = secured.admin.json("PUT", "/v1/access/quotas/q", quota)
    assert reply.status == 200, reply
    with as_(secured, limited.token) as client, pytest.raises(Problem) as failed:
        for _ in range(100):
            client.Publish(topic="allowed", records=[record()])
    assert (failed.value.code, failed.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "rate_limited")
    assert failed.value.retry_ms is not None


def _access_that_is_taken_back_ends_streams(secured: Secured) -> None:
    key_id, taken = secured.key("taken", ("producer", "allowed"), ("consumer", ""))
    with as_(secured, taken.token) as client:
        silent, writes = Said(), Said()
        calls = [client.stream("PublishStream", iter(said)) for said in (silent, writes)]
        for said, call in zip((silent, writes), calls, strict=True):
            said.say(pb.PublishRequest(topic="allowed", records=[record()]))
            next(call)
        assert secured.admin.call("DELETE", f"/v1/access/keys/{key_id}").status in (200, 204)
        writes.say(pb.PublishRequest(topic="allowed", records=[record()]))
        for call in calls:
            with pytest.raises(grpc.RpcError) as failed:
                next(call)
            assert Problem(failed.value).reason == "unauthenticated"


# --- TLS ---------------------------------------------------------------------------------------------------
def credentials(made: Made, name: str | None = None) -> Any:
    roots = made.authority.cert_pem.bytes()
    if name is None:
        return grpc.ssl_channel_credentials(roots)
    issued = made.authority.issue_cert(name)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    made_credentials = grpc.ssl_channel_credentials(roots, issued.private_key_pem.bytes(), chain)
    return made_credentials, serial_of(issued)


def tls_settings(made: Made, **more: Any) -> dict[str, Any]:
    return {
        "redis_url": NO_REDIS,
        "tls_cert": made.files.certificate,
        "tls_key": made.files.key,
        "grpc_listen": f"127.0.0.1:{free_port()}",
        **more,
    }


def test_tls_is_that_of_http_and_clear_text_is_not_answered(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with running_server(**tls_settings(made)) as server:
        with client_at(port_of(server), credentials(made)) as client:
            client.CreateTopic(name="t")
            assert client.Publish(topic="t", records=[record(b"x" * 500_000)]).partitions[0].count == 1
            [found] = client.Fetch(partitions=[pb.FetchPosition(topic="t", partition=0)]).records
            assert found.value == b"x" * 500_000
        with client_at(port_of(server)) as client, pytest.raises(Problem) as failed:
            client.ListTopics()
        assert failed.value.code is grpc.StatusCode.UNAVAILABLE
        stranger = grpc.ssl_channel_credentials(Made(_folder(tmp_path, "other")).authority.cert_pem.bytes())
        with client_at(port_of(server), stranger) as client, pytest.raises(Problem) as failed:
            client.ListTopics()
        assert failed.value.code is grpc.StatusCode.UNAVAILABLE


def _folder(above: Path, name: str) -> Path:
    folder = above / name
    folder.mkdir()
    return folder


def test_a_certificate_says_who_calls_and_one_that_is_revoked_loses_its_connection(tmp_path: Path) -> None:
    made = Made(tmp_path)
    files = made.with_clients("required")
    shown, serial = credentials(made, "loader.etl.example")
    rules = '[{"from": "dns", "match": "*.etl.example", "principal": "loader"}]'
    data_dir = tmp_path / "data"
    clients = {"tls_client": "required", "tls_client_ca": files.client_ca, "tls_crl": made.revoke()}
    settings = tls_settings(made, auth="on", certificates=rules, data_dir=str(data_dir), **clients)
    make_first_key(redis_url=NO_REDIS, auth="on", data_dir=data_dir)
    with running_server(**settings) as server, client_at(port_of(server), shown) as client:
        # It is known who that is, and that he may not.
        with pytest.raises(Problem) as failed:
            client.Publish(topic="t", records=[record()])
        assert failed.value.code is grpc.StatusCode.PERMISSION_DENIED
        assert "cert:loader" in failed.value.detail
        with client_at(port_of(server), credentials(made)) as nobody, pytest.raises(Problem) as failed:
            nobody.ListTopics()
        assert failed.value.code is grpc.StatusCode.UNAVAILABLE
        watch = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        made.revoke(serial)
        os.kill(server.pid, 1)
        with pytest.raises(grpc.RpcError) as ended:
            next(watch)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


# --- bounds ------------------------------------------------------------------------------------------------
def test_connections_count_with_those_of_http() -> None:
    with served(redis_url=NO_REDIS, connections_max=3) as (http, client, server):
        client.ListTopics()
        assert http.metrics()["silt_connections"] >= 2
        opened = [socket.create_connection(("127.0.0.1", port_of(server)), timeout=30) for _ in range(4)]
        # One that is too many is closed before it has said anything.
        ended = [one for one in opened if _is_closed(one)]
        assert ended
        for one in opened:
            one.close()
        client.ListTopics()


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(2.0)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


def test_what_is_on_its_way_counts_and_who_does_not_go_on_is_given_up() -> None:
    with served(redis_url=NO_REDIS, request_timeout_ms=1_000) as (http, client, server):
        http.create("t")
        with socket.create_connection(("127.0.0.1", port_of(server)), timeout=60) as connection:
            greet(connection)
            connection.sendall(call_of("Publish", 1))
            connection.sendall(frame(DATA, 0, 1, b"\x00" + (8 * 1024 * 1024).to_bytes(4)))
            try:
                for _ in range(20):
                    connection.sendall(frame(DATA, 0, 1, bytes(16_384)))
                while connection.recv(65_536):
                    pass
            except ConnectionError:
                pass
        assert client.Publish(topic="t", records=[record()]).partitions[0].first_offset == 0
        until(lambda: http.metrics()["silt_in_flight_bytes"] == 0)


@pytest.mark.rule("B15")
def test_the_memory_of_what_is_refused_is_given_back(executed: None) -> None:
    message = pb.PublishRequest(topic="t", arrow_stream=bytes(3 * MIB))
    with served(redis_url=NO_REDIS, request_bytes_max=4 * MIB) as (_, client, server):

        def refused(times: int) -> int:
            for _ in range(times):
                with pytest.raises(Problem):
                    client.Publish(message)
            return resident_bytes(server.pid)

        before = refused(10)
        assert refused(60) - before < 60 * MIB


def test_what_is_compressed_makes_no_room_for_what_is_on_its_way() -> None:
    """Unpacked it is a thousand times as much as it took."""
    packed = gzip.compress(pb.PublishRequest(topic="t", records=[record(bytes(1_000_000))]).SerializeToString())
    with served(redis_url=NO_REDIS) as (http, _, server):
        http.create("t")
        with socket.create_connection(("127.0.0.1", port_of(server)), timeout=60) as connection:
            greet(connection)
            connection.sendall(call_of("Publish", 1))
            connection.sendall(frame(DATA, 0, 1, b"\x00" + (8 * 1024 * 1024).to_bytes(4)))
            for _ in range(12):
                connection.sendall(frame(DATA, 0, 1, bytes(16_384)))
            for stream in (3, 5):
                connection.sendall(call_of("Publish", stream, (b"grpc-encoding", b"gzip")))
                body = b"\x01" + len(packed).to_bytes(4) + packed
                connection.sendall(frame(DATA, END_STREAM, stream, body))
            until(lambda: http.end("t") == 2)
            assert http.metrics()["silt_in_flight_bytes"] >= 12 * 16_384
        until(lambda: http.metrics()["silt_in_flight_bytes"] == 0)


def greet(connection: socket.socket) -> None:
    """Takes over what the server says of its windows, of which the smallest is 4 MiB."""
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
    assert connection.recv(65_536)[3] == SETTINGS
    connection.sendall(frame(SETTINGS, ACK, 0, b""))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def call_of(method: str, stream: int, *more: tuple[bytes, bytes]) -> bytes:
    """Headers of a call in HPACK, as literal fields."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", f"/silt.v1.Silt/{method}".encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *more,
    )
    literal = (b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)
    return frame(HEADERS, END_HEADERS, stream, b"".join(literal))


# --- several nodes -----------------------------------------------------------------------------------------
def test_any_node_takes_a_call_and_the_owner_answers(tmp_path: Path) -> None:
    ports = {"n1": free_port(), "n2": free_port()}
    with (
        cluster(
            tmp_path, 2, lease_ms=STEADY_MS, each=lambda name, _: {"grpc_listen": f"127.0.0.1:{ports[name]}"}
        ) as nodes,
        client_at(ports["n1"]) as one,
        client_at(ports["n2"]) as two,
    ):
        clients: dict[str, Client] = {"n1": one, "n2": two}
        for name in ("a", "b"):
            one.CreateTopic(name=name)
            nodes.until(lambda name=name: nodes.owner(name), f"somebody owns {name}")
            owner = nodes.owner(name)
            other = next(node for node in nodes if node != owner)
            answers = [
                clients[node].Publish(topic=name, records=[record()]).partitions[0].first_offset
                for node in (owner, other)
            ]
            assert answers == [0, 1]
            for client in clients.values():
                nodes.until(
                    lambda client=client, name=name: len(
                        client.Fetch(partitions=[pb.FetchPosition(topic=name, partition=0)]).records
                    ) == 2,
                    "both records are read",
                )  # fmt: skip
                assert client.ListOffsets(topic=name).partitions[0].high_watermark == 2
            # Who goes to owners by himself is told which node it is, as over HTTP.
            with client_at(ports[other], silt_route="direct") as direct, pytest.raises(Problem) as failed:
                direct.Publish(topic=name, records=[record()])
            told = Http(nodes[other].url).publish(name, {"value": "x"}, Silt_Route="direct").json
            assert (failed.value.reason, failed.value.detail) == (told["error_code"], told["detail"])
            assert failed.value.reason == "not_owner"
            assert failed.value.members["node"] == owner
            acks = list(
                clients[other].stream("PublishStream", iter([pb.PublishRequest(topic=name, records=[record()])] * 20))
            )
            assert [ack.partitions[0].first_offset for ack in acks] == list(range(2, 22))
