"""A server's memory is bounded by its budgets, whatever flows through."""

import os
import resource
import socket
from urllib.parse import urlsplit

import pytest
from failure_rig import MIB, StartServer
from http_rig import answer
from publishers import ARROW, Wire, arrow_body
from resident import resident_bytes

from siltlog.infra import names

pytestmark = [
    pytest.mark.usefixtures("executed"),
    pytest.mark.skipif("COVERAGE_RUN" in os.environ, reason="what is counted of coverage takes memory too"),
]
FLOW_BYTES = 180 * MIB
WARM_BYTES = 60 * MIB
HEAD_BYTES = 16 * MIB
CONNECTIONS = 3_000
CONNECTION_BYTES_MAX = 24 * 1024
GROWTH_BYTES_MAX = 5 * HEAD_BYTES
"""Once warm; allocators keep some of what they were given back."""


@pytest.mark.slow
def test_what_flows_through_does_not_stay(make_server: StartServer) -> None:
    server = make_server(
        head_bytes_max=HEAD_BYTES, wal_bytes_max=64 * MIB, flush_ms=100, flush_bytes=4 * MIB, request_bytes_max=2 * MIB
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
    grown = resident_bytes(server.pid) - warm
    print(f"{warm / MIB:.0f} MiB after {WARM_BYTES / MIB:.0f} MiB, {grown / MIB:+.0f} MiB after {flowed / MIB:.0f} MiB")
    assert grown < GROWTH_BYTES_MAX


@pytest.mark.slow
def test_what_a_start_has_read_does_not_stay(make_server: StartServer) -> None:
    server = make_server(wal_segment_bytes=64 * MIB, wal_bytes_max=256 * MIB)
    server.start()
    fresh = resident_bytes(server.pid)
    assert server.stop() == 0
    server.start()
    grown = resident_bytes(server.pid) - fresh
    print(f"{fresh / MIB:.0f} MiB, {grown / MIB:+.0f} MiB after a restart")
    assert grown < 48 * MIB


REFUSALS = {
    "as it has another count of partitions": (ARROW | {"Silt_Partition_Count": "7"}, "partition_count_changed"),
    "as it is not what its field says": ({"Content_Type": names.MEDIA_JSON}, "malformed_body"),
    "as no partition has that number": (ARROW | {"partition": "7"}, "unknown_partition"),
}
WARM = 20
REFUSED = 90


@pytest.mark.slow
def test_what_is_refused_does_not_stay(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 2)
    body = arrow_body(["." * 1000] * 700)
    for why, (fields, error_code) in REFUSALS.items():
        fields = dict(fields)
        query = f"?partition={fields.pop('partition', '0')}"
        before = 0
        for number in range(WARM + REFUSED):
            reply = wire.call("POST", f"/v1/topics/logs/records{query}", body, **fields)
            assert reply.error_code == error_code, reply
            if number == WARM:
                before = resident_bytes(server.pid)
        grown = resident_bytes(server.pid) - before
        assert grown < REFUSED // 3 * len(body), f"{why}: far less than what was refused"


@pytest.mark.slow
def test_idle_connections_cost_little_and_disturb_nobody(make_server: StartServer) -> None:
    wanted = min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 1_000)
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
        assert all(b" 200 " in answer(connection) for connection in idle)
        grown = resident_bytes(server.pid) - before
        print(f"{grown / wanted / 1024:.1f} KiB for each of {wanted} connections")
        assert grown / wanted < CONNECTION_BYTES_MAX
        for number in range(20):
            reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": f"{number}"}]})
            assert reply.status == 200
        # They were not forgotten.
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in answer(idle[0])
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
