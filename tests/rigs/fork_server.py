"""A process that has imported what a server needs, and forks one server for each request: see `forked.py`.

It refuses to fork unless it has one thread. A child takes what an exec would give it (environment, folder, arguments,
standard streams, session), has no other file open, and runs `silt` from its entry on.
"""

import gc
import importlib.metadata
import json
import os
import runpy
import socket
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

IMPORTED = (
    "encodings.idna",
    "siltlog.cli.commands.node.serve",
    "siltlog.infra.store.s3",
    "siltlog.server.wiring",
)
LENGTH_BYTES = 8
STREAMS = 3


def receive(sock: socket.socket, count: int) -> bytes:
    """Fewer only at the end."""
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def _state() -> str:
    """What a fork would give away or lose; empty when nothing."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    return f"{threads} threads" if threads != 1 else ""


def _become(request: dict[str, str | list[str] | dict[str, str]], streams: list[int]) -> None:
    """Makes this child what an exec with these arguments would be."""
    environment, arguments, site = request["environment"], request["arguments"], request["site"]
    assert isinstance(environment, dict) and isinstance(arguments, list) and isinstance(site, str)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.chdir(str(request["folder"]))
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    sys.path[0] = str(request["folder"])
    if site:
        runpy.run_path(site)


def _fork_until_told(sock: socket.socket) -> None:
    """Returns in each child."""
    while True:
        header, streams, _, _ = socket.recv_fds(sock, LENGTH_BYTES, STREAMS)
        if not header:
            os._exit(0)  # who asked has ended
        header += receive(sock, LENGTH_BYTES - len(header))
        request = json.loads(receive(sock, int.from_bytes(header, "big")))
        if "wait" in request:
            answer = {"status": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        elif refusal := _state():
            answer = {"refusal": refusal}
        else:
            child = os.fork()
            if child == 0:
                _become(request, streams)
                return
            answer = {"pid": child}
        for stream in streams:
            os.close(stream)
        sock.sendall(json.dumps(answer).encode() + b"\n")


def _get_warm() -> None:
    """Does what every server would do anew, though it comes out the same."""
    import click
    from starlette.routing import compile_path

    from siltlog.cli.commands.node.serve import serve
    from siltlog.server.api import OPERATIONS

    serve.get_params(click.Context(serve))
    for operation in OPERATIONS:
        compile_path(operation.path)  # `re` keeps what it has compiled
    for name in ("redis", "siltlog"):
        importlib.metadata.version(name)


def _serve(sock: socket.socket) -> None:
    # Each asks for it several times, and reads a file every time.
    importlib.metadata.version = cache(importlib.metadata.version)
    from siltlog.cli import __main__ as entry
    from siltlog.cli import main as cli

    run = cli.main

    def forked_main() -> None:
        """Stands where `silt` has imported its commands: what comes before is done, what comes after is a child's."""
        from siltlog.server.process import hide_pandas, keep_freed_memory

        keep_freed_memory()
        hide_pandas()
        for name in IMPORTED:
            import_module(name)
        _get_warm()
        gc.collect()
        gc.freeze()
        _fork_until_told(sock)
        run()

    cli.main = forked_main  # type: ignore[assignment]
    sys.argv = [str(Path(entry.__file__))]
    entry.start()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
