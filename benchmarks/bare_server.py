"""What is left of an HTTP server when it does nothing: uvicorn as Siltlog runs it, a body read, a fixed reply.

Run as `python -m benchmarks.bare_server MEDIA`; the reply's body comes on stdin, the port goes to stdout.
"""

import socket
import sys
from typing import Any

import uvicorn


def main() -> None:
    body = sys.stdin.buffer.read()
    headers = [(b"content-type", sys.argv[1].encode()), (b"content-length", b"%d" % len(body))]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
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
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
