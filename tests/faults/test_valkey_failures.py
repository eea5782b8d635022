"""The embedded Valkey: taken over after a kill of the server, started again after its own, gone after a clean stop."""

import os
import signal
import subprocess
import time
from pathlib import Path

from failure_rig import StartServer
from publishers import Wire

from siltlog.infra import names
from siltlog.server_process import ServerProcess


def valkey_pids(server: ServerProcess) -> list[int]:
    """Processes whose working directory is the Valkey's folder."""
    folder = (server.data_dir / names.VALKEY_FOLDER).resolve()
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                if (process / "cwd").readlink() == folder:
                    found.append(int(process.name))
            except OSError:
                continue
    return found


def commit(wire: Wire, offset: int) -> int:
    offsets = {"offsets": [{"topic": "logs", "partition": 0, "offset": offset}]}
    return wire.call("PUT", "/v1/groups/readers/offsets", offsets).status


def committed(wire: Wire) -> int | None:
    reply = wire.call("GET", "/v1/groups/readers/offsets")
    if reply.status != 200:
        return None
    offset: int = reply.document["offsets"][0]["offset"]
    return offset


def published(wire: Wire, count: int) -> None:
    body = {"records": [{"value": f"v{n}"} for n in range(count)]}
    assert wire.call("POST", "/v1/topics/logs/records", body).status == 200


def test_a_server_that_was_killed_finds_its_groups_again(make_server: StartServer) -> None:
    server = make_server(groups=True)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    published(wire, 50)
    for offset in (10, 20, 30):
        assert commit(wire, offset) == 204
        (before,) = valkey_pids(server)
        server.kill()
        assert valkey_pids(server) == [before]
        server.start()
        assert valkey_pids(server) == [before], "it was taken over, not started again"
        assert committed(wire) == offset
    assert server.stop() == 0
    assert valkey_pids(server) == []
    server.start()
    assert committed(wire) == 30


def test_a_valkey_that_was_killed_comes_back_and_publishing_does_not_notice(make_server: StartServer) -> None:
    server = make_server(groups=True)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    published(wire, 50)
    assert commit(wire, 25) == 204
    (pid,) = valkey_pids(server)
    # It is kept from coming back for a moment, so that the time without it can be looked at.
    os.kill(pid, signal.SIGSTOP)
    published(wire, 1)
    os.kill(pid, signal.SIGKILL)
    published(wire, 1)
    deadline = time.monotonic() + 60
    while committed(wire) is None:
        reply = wire.call("GET", "/v1/groups/readers/offsets")
        assert reply.status == 200 or (reply.status, reply.error_code) == (503, "coordinator_unavailable")
        published(wire, 1)
        assert time.monotonic() < deadline
    assert committed(wire) == 25
    assert commit(wire, 40) == 204
    (again,) = valkey_pids(server)
    assert again != pid
    assert server.stop() == 0
    assert valkey_pids(server) == []


def test_groups_without_their_redis(make_server: StartServer, tmp_path: Path) -> None:
    """A Redis of one's own that is away: group calls say so, the rest goes on, and groups come with it."""
    from siltlog.infra.redis.embedded import valkey_binary

    socket = Path("/tmp") / f"silt-failures-{os.getpid()}.sock"
    server = make_server(redis_url=f"unix://{socket}")
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    published(wire, 10)
    reply = wire.call("GET", "/v1/groups")
    assert (reply.status, reply.error_code) == (503, "coordinator_unavailable")
    raw = wire.raw("GET", "/v1/groups")
    assert int(raw.headers["Retry-After"]) > 0
    assert wire.ready().status == 200
    assert len(wire.call("GET", "/v1/topics/logs/partitions/0/records").document["records"]) == 10
    process = subprocess.Popen(
        [str(valkey_binary()), "--port", "0", "--unixsocket", str(socket), "--dir", str(tmp_path), "--save", ""],
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while wire.call("GET", "/v1/groups").status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert commit(wire, 5) == 204
        assert server.stop() == 0
        assert process.poll() is None, "it is not the server's to stop"
    finally:
        process.kill()
        process.wait()
        socket.unlink(missing_ok=True)
