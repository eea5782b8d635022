"""A server's memory is bounded by its budgets, whatever flows through."""

import resource
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from failure_rig import MIB, StartServer
from publishers import ARROW, Wire, arrow_body

FLOW_BYTES = 240 * MIB
WARM_BYTES = 60 * MIB
HEAD_BYTES = 16 * MIB
WAL_BYTES = 64 * MIB
SETTLED_SECONDS_MAX = 30.0
CONNECTION_BYTES_MAX = 24 * 1024
GROWTH_BYTES_MAX = 5 * HEAD_BYTES
"""Once warm; allocators keep some of what they were given back."""


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.mark.slow
def test_what_flows_through_does_not_stay(make_server: StartServer) -> None:
    server = make_server(
        head_bytes_max=HEAD_BYTES, wal_bytes_max=WAL_BYTES, flush_ms=100, flush_bytes=4 * MIB, request_bytes_max=2 * MIB
    )
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 2)
    # Nobody reads along: the head must let go by itself.
    bodies = [
        arrow_body([f"{seed}-{n} " + f"{(n * 2654435761 + seed) % 2**32:032b}" * 30 for n in range(1000)])
        for seed in range(4)
    ]
    flowed, warm, number = 0, 0, 0
    while flowed < FLOW_BYTES:
        body = bodies[number % len(bodies)]
        reply = wire.call("POST", f"/v1/topics/logs/records?partition={number % 2}", body, **ARROW)
        number += 1
        if reply.status == 200:
            flowed += len(body)
        else:
            assert reply.error_code == "wal_full"
        if not warm and flowed >= WARM_BYTES:
            warm = resident_bytes(server.pid)
    at_once = resident_bytes(server.pid) - warm
    # A flush that is behind has what the log may hold in memory, once as it was and once encoded, until it is done.
    assert at_once < GROWTH_BYTES_MAX + 2 * WAL_BYTES
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while (grown := resident_bytes(server.pid) - warm) >= GROWTH_BYTES_MAX and time.monotonic() < deadline:
        time.sleep(0.1)
    print(
        f"{warm / MIB:.0f} MiB after {WARM_BYTES / MIB:.0f} MiB, {at_once / MIB:+.0f} MiB, then {grown / MIB:+.0f} MiB"
    )
    assert grown < GROWTH_BYTES_MAX


@pytest.mark.slow
def test_idle_connections_cost_little_and_disturb_nobody(make_server: StartServer) -> None:
    wanted = min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = make_server(connections_max=wanted + 10)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    address = urlsplit(server.url)
    before = resident_bytes(server.pid)
    idle: list[socket.socket] = []
    try:
        for _ in range(wanted):
            idle.append(socket.create_connection((address.hostname, address.port), timeout=30))
            idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(b" 200 " in connection.recv(4096) for connection in idle)
        grown = resident_bytes(server.pid) - before
        print(f"{grown / wanted / 1024:.1f} KiB for each of {wanted} connections")
        assert grown / wanted < CONNECTION_BYTES_MAX
        for number in range(20):
            reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": f"{number}"}]})
            assert reply.status == 200
        # They were not forgotten.
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in idle[0].recv(4096)
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
