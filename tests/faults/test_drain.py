"""A stop under load: everything acknowledged is there, everything else was told, and it ends."""

import json
import os
import signal
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from evidence import check, read_api, read_table
from failure_rig import MIB, StartServer
from publishers import FILLER, Ledger, Wire

from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.server_process import ServerProcess

CLIENTS = 64
PATIENCE_S = 60


class Client(threading.Thread):
    """Publishes over one connection until it is told that it is over."""

    def __init__(self, server: ServerProcess, ledger: Ledger, name: str, acks: str) -> None:
        super().__init__(name=name, daemon=True)
        self.acks = acks
        self.ledger = ledger
        self.acked = 0
        self.ended = "by nothing"
        self._connection = connect(server)

    def run(self) -> None:
        try:
            while True:
                value = f"{self.name}:{self.acked} x"
                body = json.dumps({"records": [{"value": value}]}).encode()
                try:
                    status, fields, document = exchange(self._connection, f"logs/records?acks={self.acks}", body)
                except OSError as error:
                    self.ended = f"without an answer: {error}"
                    return
                with self.ledger.lock:
                    if status == 200:
                        ((partition, offset),) = document["records"]
                        self.ledger.acked[value] = (partition, offset)
                    else:
                        self.ledger.refused.add(value)
                self.acked += status == 200
                if status != 200:
                    told = fields.get("connection") == "close" and int(fields.get("retry-after", 0)) > 0
                    self.ended = f"{status} {document['error_code']}{'' if told else ' untold'}"
                    return
                if fields.get("connection") == "close":
                    self.ended = "closed after an acknowledgement"
                    return
        finally:
            self._connection.close()


def connect(server: ServerProcess) -> socket.socket:
    parts = urlsplit(server.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def exchange(connection: socket.socket, path: str, body: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    head = f"POST /v1/topics/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {names.MEDIA_JSON}\r\n"
    connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return answer(connection)


def answer(connection: socket.socket) -> tuple[int, dict[str, str], dict[str, object]]:
    got = b""
    while True:
        head, found, rest = got.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if found and len(rest) >= int(fields["content-length"]):
            return int(lines[0].split()[1]), fields, json.loads(rest)
        part = connection.recv(65_536)
        if not part:
            raise ConnectionError(f"closed after {got!r}")
        got += part


def deaf_reader(server: ServerProcess) -> socket.socket:
    """Asks for megabytes and takes none: its request never ends by itself."""
    wire = Wire(server.url)
    wire.create("wide", 1)
    for _ in range(40):
        reply = wire.call("POST", "/v1/topics/wide/records", {"records": [{"value": FILLER * 10}] * 4})
        assert reply.status == 200, reply
    parts = urlsplit(server.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(
        b"GET /v1/topics/wide/partitions/0/records?offset=0&max_bytes=8000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    deadline = time.monotonic() + PATIENCE_S
    while in_flight(wire) < MIB:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return connection


def in_flight(wire: Wire) -> float:
    lines = wire.raw("GET", "/metrics").data.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(catalogue.IN_FLIGHT_BYTES.name))


@pytest.mark.slow
def test_a_stop_while_many_publish(make_server: StartServer) -> None:
    server = make_server(flush_ms=1_000, wal_bytes_max=64 * MIB, drain_ms=30_000)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 2)
    ledger = Ledger()
    clients = [Client(server, ledger, f"client-{n}", "table" if n % 8 == 7 else "wal") for n in range(CLIENTS)]
    for client in clients:
        client.start()
    # One whose body will not end, and one that is idle.
    slow, idle = connect(server), connect(server)
    slow.sendall(
        f"POST /v1/topics/logs/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: {names.MEDIA_BYTES}\r\n"
        "Content-Length: 100000\r\n\r\nxxx".encode()
    )
    deadline = time.monotonic() + PATIENCE_S
    while len(ledger.acked) < 20 * CLIENTS:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(server.pid, signal.SIGTERM)
    status, fields, document = answer(slow)
    assert (status, document["error_code"], fields["connection"]) == (503, "shutting_down", "close")
    assert server.stop() == 0
    assert idle.recv(1) == b""
    for client in clients:
        client.join(PATIENCE_S)
        assert not client.is_alive()
    ends = {client.ended for client in clients}
    assert ends <= {"503 shutting_down", "closed after an acknowledgement"}, ends
    [said] = [line for line in server.log_path.read_text().splitlines() if "drained" in line]
    assert "refused_requests" in said
    assert "unanswered_requests=0" in said
    assert "unflushed_bytes=0" in said
    check(read_table(server.root, "logs"), ledger)
    server.start()
    check(read_api(Wire(server.url), "logs", 2), ledger)


@pytest.mark.slow
@pytest.mark.parametrize("second", [None, signal.SIGINT])
def test_a_stop_ends_though_a_request_does_not(make_server: StartServer, second: signal.Signals | None) -> None:
    """It ends by its time limit, however often it is told, or at Ctrl-C; either way with all that was acknowledged."""
    drain_ms = 1_000 if second is None else 600_000
    server = make_server(drain_ms=drain_ms, request_timeout_ms=600_000, head_bytes_max=32 * MIB, wal_bytes_max=64 * MIB)
    server.start()
    wire = Wire(server.url)
    with deaf_reader(server):
        ledger = Ledger()
        wire.create("logs", 1)
        for number in range(50):
            reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": f"one:{number} x"}]})
            ledger.acked[f"one:{number} x"] = (0, reply.document["records"][0][1])
        os.kill(server.pid, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while "draining" not in server.log_path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if second is not None:
            os.kill(server.pid, second)
            while server.running:
                assert time.monotonic() < deadline, "it did not hurry"
                time.sleep(0.02)
        assert server.stop() == 0
    said = server.log_path.read_text()
    assert ("told to hurry" if second else "not everything is in the tables") in said
    assert "unanswered_requests=1" in said
    assert "Traceback" not in said
    server.start()
    check(read_api(Wire(server.url), "logs", 1), ledger)
