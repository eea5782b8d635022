"""An HTTP server that does almost nothing: uvicorn as Siltlog runs it, a body read, a fixed reply.

Run as `python -m benchmarks.servers.bare_server MEDIA [FOLDER]`; the reply's body comes on stdin, the port goes to
stdout. With a folder each body is in a file there, synced, before it is answered: many of them share one sync.
"""

import asyncio
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn

from benchmarks.servers.disk import WrittenFile

FILE_BYTES = 64 * 1024 * 1024
SWITCH_INTERVAL_SECONDS = 0.0005
KEEP_ALIVE_SECONDS = 75
"""The same as Siltlog's: idle connections stay open for as long as a load lasts."""


class GroupedFile:
    """Bodies written over a file, those that come while one sync runs together."""

    def __init__(self, folder: Path) -> None:
        self._file = WrittenFile(folder / "grouped", FILE_BYTES)
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._busy = False

    async def keep(self, body: bytes) -> None:
        """Returns once `body` is on the disk."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((body, future))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin)
        await future

    def _begin(self) -> None:
        group, self._waiting = self._waiting, []
        self._busy = bool(group)
        if group:
            data = b"".join(body for body, _ in group)
            written = asyncio.get_running_loop().run_in_executor(self._thread, self._file.keep, data)
            written.add_done_callback(lambda _: self._done(group))

    def _done(self, group: list[tuple[bytes, "asyncio.Future[None]"]]) -> None:
        for _, future in group:
            if not future.done():
                future.set_result(None)
        self._begin()


def main() -> None:
    body = sys.stdin.buffer.read()
    headers = [(b"content-type", sys.argv[1].encode()), (b"content-length", b"%d" % len(body))]
    file = GroupedFile(Path(sys.argv[2])) if len(sys.argv) > 2 else None
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        chunks = []
        more = True
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        if file is not None:
            await file.keep(b"".join(chunks))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        answer,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
