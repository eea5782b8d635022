"""`silt` as shells find it on their PATH, forked as servers are (`forked.py`): most of a short command is its imports.

What a shell starts is a small program, which has the process forked with its own streams, folder and environment,
passes signals on, and ends as the process does. When it is killed, so is the process.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

from fork_server import LENGTH_BYTES, STREAMS, receive
from forked import ForkServer, ForkServers

OF_SHELLS = ("OLDPWD", "PATH", "PWD", "SHLVL", "_")
"""Variables that a shell has of its own, and of which Python reads nothing as it starts."""
PROGRAM = """#!{python} -IS
import json, os, select, signal, socket, sys
real = {real!r}

def passed_on(number, _):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended

with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    request = json.dumps(
        {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    ).encode()
    socket.send_fds(asked, [len(request).to_bytes({length_bytes}, "big")], (0, 1, 2))
    asked.sendall(request)
    answers = asked.makefile("rb")
    pid = json.loads(answers.readline())["pid"]
    if not pid:
        os.execv(real, [real, *sys.argv[1:]])
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, passed_on)
    status = json.loads(answers.readline())["status"]
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@cache
def folder_of_silt(real: Path) -> Path | None:
    """Gives the folder, for PATH, with a `silt` that is forked; `real` is the one that it stands for. None where every
    process is started as it is elsewhere (`make test-chaos`)."""
    forks = ForkServers.opened
    if forks is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="silt-forked-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "asked")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    threading.Thread(target=_serve, args=(listener, forks), name="forked-silt", daemon=True).start()
    program = PROGRAM.format(python=sys.executable, real=str(real), address=address, length_bytes=LENGTH_BYTES)
    (folder / "silt").write_text(program)
    (folder / "silt").chmod(0o755)
    return folder


def _serve(listener: socket.socket, forks: ForkServers) -> None:
    while True:
        asked, _ = listener.accept()
        threading.Thread(target=_answer, args=(asked, forks), daemon=True).start()


def _answer(asked: socket.socket, forks: ForkServers) -> None:
    with asked:
        header, streams, _, _ = socket.recv_fds(asked, LENGTH_BYTES, STREAMS)
        header += receive(asked, LENGTH_BYTES - len(header))
        request = json.loads(receive(asked, int.from_bytes(header, "big")))
        server = forks.server_for(request["environment"], but=OF_SHELLS)
        pid = 0 if server is None else int(server.ask({**request, "site": ""}, streams)["pid"])
        for stream in streams:
            os.close(stream)
        _tell(asked, pid=pid)
        if server is not None:
            _watch(asked, server, pid)


def _watch(asked: socket.socket, server: ForkServer, pid: int) -> None:
    """Tells the status of a process once it has ended, and ends it where nobody waits any more."""
    ended = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(asked, select.POLLRDHUP)
        if ended not in [number for number, _ in poller.poll()]:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
        _tell(asked, status=server.ask({"wait": pid})["status"])
    finally:
        os.close(ended)


def _tell(asked: socket.socket, **values: int) -> None:
    with suppress(OSError):  # it was killed meanwhile
        asked.sendall(json.dumps(values).encode() + b"\n")
