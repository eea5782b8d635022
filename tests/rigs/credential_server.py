"""A small HTTP server that lets in whoever has one of its tokens: over TCP, TLS or a socket in the file system."""

import json
import socket
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import trustme

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import problem, problem_document


class CredentialServer:
    """`url` is `http`, `https` or `unix:`; with no tokens everybody may come in."""

    def __init__(self, context: ssl.SSLContext | None = None, path: Path | None = None) -> None:
        self.tokens: set[str] = set()
        self.seen: list[str | None] = []
        """The `Authorization` of each request."""
        self.peers: list[Any] = []
        """The certificate of the client of each request."""
        self.status = 0
        """Where it is given every request gets it, without a word."""
        self.body = b'{"topics":[],"runner":null,"jobs":[],"next":null}'
        self.hosts: list[str] = []
        self.connections = 0
        self.says_why = True
        """Whether who has not shaken hands is told so, rather than cut off."""
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = _Http(handler, context, path)
        self._http.owner = self
        if path is not None:
            self.url = f"unix:{path}"
        else:
            scheme, host = ("http", "127.0.0.1") if context is None else ("https", "localhost")
            self.url = f"{scheme}://{host}:{self._http.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def serving(context: ssl.SSLContext | None = None, path: Path | None = None) -> Iterator[CredentialServer]:
    server = CredentialServer(context, path)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    owner: CredentialServer

    def __init__(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None, path: Path | None):
        self.context = context
        if path is None:
            super().__init__(("127.0.0.1", 0), handler)
            return
        super().__init__(("127.0.0.1", 0), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(socket.AF_UNIX)
        with _short(path) as short:
            self.socket.bind(str(short))
        self.server_name, self.server_port = "localhost", 0
        self.socket.listen()

    def get_request(self) -> tuple[Any, Any]:
        accepted, address = self.socket.accept()
        self.owner.connections += 1
        return accepted, address or ("local", 0)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # On the connection's own thread: hands that are not shaken keep nobody waiting.
        if self.context is not None:
            plain = request.dup()
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except (ssl.SSLError, OSError):
                # What the client has sent meanwhile is taken, so that it reads why.
                with plain, suppress(OSError):
                    plain.settimeout(5)
                    if self.owner.says_why:
                        plain.shutdown(socket.SHUT_WR)
                        while plain.recv(65_536):
                            pass
                return
            plain.close()
        with suppress(OSError):
            super().finish_request(request, client_address)
        with suppress(OSError):
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is nothing to be told of."""


@contextmanager
def _short(path: Path) -> Iterator[Path]:
    from siltlog.infra.socket_path import short_path

    with short_path(path) as short:
        yield short


class _Handler(BaseHTTPRequestHandler):
    server_of: CredentialServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        server = self.server_of
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        given = self.headers["Authorization"]
        server.seen.append(given)
        server.hosts.append(self.headers["Host"])
        server.peers.append(self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None)
        if server.status:
            return self._answer(server.status, b"", {"Location": "http://127.0.0.1:1/elsewhere"})
        if server.tokens and (given or "").removeprefix("Bearer ") not in server.tokens:
            error = problem("unauthenticated", "the token is not known here", reason="unknown")
            return self._answer(401, msgspec.json.encode(problem_document(error, "r-1")))
        if self.path.endswith("/forbidden"):
            error = problem("forbidden", "key:ops may not read topic 'forbidden'")
            return self._answer(403, msgspec.json.encode(problem_document(error, "r-1")))
        return self._answer(200, server.body)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815

    def _answer(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json" if status >= 400 else "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Authority:
    """A CA of the test's own, and its certificates."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.path = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.path))
        self._folder = folder

    def server_context(self, *names: str, clients: bool = False, **more: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*(names or ("localhost", "127.0.0.1")), **more).configure_cert(context)
        if clients:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_pair(self, name: str) -> tuple[Path, Path]:
        made = self.ca.issue_cert(name)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        key.write_bytes(made.private_key_pem.bytes())
        return certificate, key


def jwt(**claims: object) -> str:
    """A token with these claims, which nobody has signed."""
    parts = [json.dumps({"alg": "ES256"}), json.dumps(claims), "signature"]
    return ".".join(urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)


class Source:
    """A function that gives these tokens in turn, the last for ever; an error is raised."""

    def __init__(self, *tokens: str | Exception) -> None:
        self._tokens = list(tokens)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        given = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        if isinstance(given, Exception):
            raise given
        return given


class WallClock(SystemClock):
    """Its wall clock is moved by hand."""

    seconds = 0.0

    def now_us(self) -> int:
        return int(self.seconds * 1e6)
