"""What the process of a query may still do once it has closed itself off, asked of the kernel."""

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from siltlog.infra.settings.loading import environment_of_queries

PROGRAM = """
import json, os, socket, sys
from siltlog.consumers.sql import child
from siltlog.consumers.sql.confinement import close_off
folder, port = sys.argv[1], int(sys.argv[2])
threads = len(os.listdir("/proc/self/task"))
child._import_the_rest()
close_off()

def tried(what):
    try:
        what()
    except MemoryError:
        return "memory"
    except PermissionError:
        return "refused"
    return "done"

print(json.dumps({
    "threads": threads,
    "read": tried(lambda: open(folder + "/secret")),
    "write": tried(lambda: open(folder + "/new", "w")),
    "list": tried(lambda: os.listdir(folder)),
    "connect": tried(lambda: socket.create_connection(("127.0.0.1", port))),
    "run": tried(lambda: os.execv("/bin/true", ["true"])),
    "signal": tried(lambda: os.kill(os.getppid(), 0)),
    "memory": tried(lambda: bytearray(3 << 30)),
}))
"""


def landlock() -> int:
    """The version that the kernel has; 0 or less where it has none."""
    return int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


@pytest.mark.rule("SQ3")
@pytest.mark.skipif(landlock() < 6, reason="the kernel has no Landlock, or an older one")
def test_it_opens_reaches_and_takes_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(listening.getsockname()[1])],
            env=environment_of_queries(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert done.pop("threads") == 1, "Landlock holds for no other that is there already"
    assert done.pop("memory") == "memory"
    assert done == dict.fromkeys(("read", "write", "list", "connect", "run", "signal"), "refused")
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_its_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SILT_SECRET",
        "SILT_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "HOME",
        "HTTPS_PROXY",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ):
        monkeypatch.setenv(name, "hush")
    assert "hush" not in environment_of_queries().values()
    assert environment_of_queries()["PATH"] == os.environ["PATH"]
