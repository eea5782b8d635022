"""A server's memory is bounded by its budgets, whatever flows through."""

from pathlib import Path

import pytest
from failure_rig import MIB, StartServer
from publishers import ARROW, Wire, arrow_body

FLOW_BYTES = 240 * MIB
WARM_BYTES = 60 * MIB
HEAD_BYTES = 16 * MIB
GROWTH_BYTES_MAX = 5 * HEAD_BYTES
"""Once warm; allocators keep some of what they were given back."""


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


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
