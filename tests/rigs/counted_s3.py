"""A proxy before the S3 server that counts each request as S3 bills it."""

import http.client
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, urlsplit

_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "proxy-connection"))


@dataclass
class CountedS3:
    endpoint: str
    _requests: list[tuple[str, str]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def saw(self, request: str, key: str) -> None:
        with self._lock:
            self._requests.append((request, key))

    def requests(self, part: str = "") -> list[tuple[str, str]]:
        """Each request so far, (kind, key), whose key has `part` in it."""
        with self._lock:
            return [(request, key) for request, key in self._requests if part in key]

    def counts(self, part: str = "") -> Counter[str]:
        return Counter(request for request, _ in self.requests(part))


@contextmanager
def counted_s3(endpoint: str) -> Iterator[CountedS3]:
    """Passes on to the S3 server at `endpoint` whatever it is asked; signatures hold, because the host is kept."""
    target = urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            counted.saw(*_kind(self.command, self.path))
            upstream = http.client.HTTPConnection(target.hostname or "", target.port)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in _HOP and name.lower() != "expect":
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                answer = upstream.getresponse()
                data = answer.read()
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP and (name.lower() != "content-length" or self.command == "HEAD"):
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            finally:
                upstream.close()

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    counted = CountedS3(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield counted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _kind(method: str, path: str) -> tuple[str, str]:
    """What S3 bills it as, and of which key or prefix."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    if method == "GET" and ("list-type" in query or "uploads" in query or parts.path.count("/") < 2):
        return "list", query.get("prefix", [""])[0]
    if method == "POST":
        return ("delete" if "delete" in query else "put"), parts.path
    return method.lower(), parts.path
