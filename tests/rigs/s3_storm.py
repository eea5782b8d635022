"""What stands before a real S3 server and, when told to, answers everything with 503 SlowDown, keeps a PUT back, loses
or changes the answers of single ones or of so many by chance, or takes as long as a store far away does."""

import math
import random
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>"
)
CONFLICT = b"<?xml version='1.0'?><Error><Code>ConditionalRequestConflict</Code><Message>Try again</Message></Error>"
XML = [("Content-Type", "application/xml")]
P99_DEVIATIONS = 2.326
"""Standard deviations from the middle of a bell curve to what one in a hundred exceeds."""
HOP = frozenset(("connection", "transfer-encoding", "keep-alive"))


class Storm:
    """`raging` may change at any time. Use `close` at the end."""

    def __init__(self, endpoint: str) -> None:
        self.raging = False
        self.kept_back = ""
        """A PUT of a path that has this in it waits for `released`; `waiting` is set then."""
        self.waiting = threading.Event()
        self.released = threading.Event()
        self.refused = 0
        self.fates: list[str] = []
        """What becomes of the next PUTs: "" for nothing, `not_done` and `done` (no answer comes), `slow_down` and
        `conflict` (not done), `twice` (the answer is that of the second)."""
        self.chances: Mapping[str, float] = {}
        """How likely each of these fates is, for every PUT that has none of `fates`."""
        self.seconds: tuple[float, float] = (0.0, 0.0)
        """What every request takes longer: the median, and what one in a hundred exceeds."""
        self.rng = random.Random(0)
        self.puts = 0
        target = urlsplit(endpoint)
        storm = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body goes out after its headers

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if storm.raging:
                    storm.refused += 1
                    self._reply(503, XML, SLOW_DOWN)
                    return
                fate = storm._fate() if self.command == "PUT" else ""
                time.sleep(storm._delay())
                if fate in ("slow_down", "conflict"):
                    self._reply(*((503, XML, SLOW_DOWN) if fate == "slow_down" else (409, XML, CONFLICT)))
                    return
                if fate == "not_done":
                    self.close_connection = True
                    return
                if storm.kept_back and storm.kept_back in self.path and self.command == "PUT":
                    storm.waiting.set()
                    storm.released.wait(60)
                if fate == "twice":
                    self._forward(body)
                status, headers, answer = self._forward(body)
                if fate == "done":
                    self.close_connection = True
                    return
                self._reply(status, headers, answer)

            def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
                assert target.hostname
                upstream = HTTPConnection(target.hostname, target.port or 80, timeout=30)
                try:
                    upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
                    answer = upstream.getresponse()
                    kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
                    return answer.status, kept, answer.read()
                finally:
                    upstream.close()

            def _reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() != "content-length" or self.command == "HEAD":
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def calm(self) -> None:
        """It only passes on from here."""
        self.raging = False
        self.chances = {}
        self.seconds = (0.0, 0.0)

    def _fate(self) -> str:
        self.puts += 1
        if self.fates:
            return self.fates.pop(0)
        names, chances = [*self.chances, ""], [*self.chances.values()]
        return self.rng.choices(names, [*chances, 1 - sum(chances)])[0]

    def _delay(self) -> float:
        median, high = self.seconds
        return median * math.exp(self.rng.gauss(0, math.log(high / median) / P99_DEVIATIONS)) if median else 0.0

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
