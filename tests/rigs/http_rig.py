"""Bare HTTP to a real server: what was sent, byte for byte, and what was answered."""

import json
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import urllib3

from siltlog.infra import names

NO_REDIS = "redis://127.0.0.1:1/0"
"""Tests without groups take it: nothing answers there."""


@dataclass
class Reply:
    status: int
    headers: urllib3.HTTPHeaderDict
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error_code(self) -> str:
        assert self.headers["content-type"] == names.MEDIA_PROBLEM, self
        code: str = self.json["error_code"]
        return code


REPLY_SECONDS_MAX = 120.0
"""What a query takes that fills its memory, on a machine that does much else."""


class Http:
    """One server, called without retries; header names are written with underscores."""

    def __init__(self, url: str, context: ssl.SSLContext | None = None, *, token: str = "") -> None:
        self.url = url
        self._credential = {"Authorization": f"Bearer {token}"} if token else {}
        self._context = context
        self._pool = urllib3.PoolManager(retries=False, timeout=REPLY_SECONDS_MAX, maxsize=16, ssl_context=context)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        named = {**self._credential, **{name.replace("_", "-"): value for name, value in headers.items()}}
        reply = self._pool.request(method, self.url + path, body=body, headers=named)
        return Reply(reply.status, reply.headers, reply.data)

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, **headers)

    def json(self, method: str, path: str, document: Any, **headers: str) -> Reply:
        return self.call(method, path, json.dumps(document).encode(), Content_Type=names.MEDIA_JSON, **headers)

    def create(self, topic: str, partitions: int = 1, **config: Any) -> dict[str, Any]:
        own = {name.replace("_", "."): value for name, value in config.items()}
        reply = self.json("POST", "/v1/topics", {"name": topic, "partitions": partitions, "config": own})
        assert reply.status == 201, reply
        document: dict[str, Any] = reply.json
        return document

    def publish(self, topic: str, *records: dict[str, Any], query: str = "", **headers: str) -> Reply:
        return self.json("POST", f"/v1/topics/{topic}/records{query}", {"records": list(records)}, **headers)

    def arrow(self, topic: str, table: pa.Table, query: str = "", **headers: str) -> Reply:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
        return self.call("POST", f"/v1/topics/{topic}/records{query}", body, Content_Type=names.MEDIA_ARROW, **headers)

    def read(self, topic: str, partition: int = 0, query: str = "values=base64") -> list[dict[str, Any]]:
        """All records that are visible: one reply may end where the table does."""
        path = f"/v1/topics/{topic}/partitions/{partition}/records?max_records=100000&{query}"
        records: list[dict[str, Any]] = []
        offset = 0
        while True:
            reply = self.get(f"{path}&offset={offset}")
            assert reply.status == 200, reply
            records += reply.json["records"]
            if reply.json["next_offset"] in (offset, reply.json["high_watermark"]):
                return records
            offset = reply.json["next_offset"]

    def metrics(self) -> dict[str, float]:
        """What `GET /metrics` shows: the value of each series."""
        lines = self.get("/metrics").body.decode().splitlines()
        return {
            series: float(value) for series, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")
        }

    def bounds(self, topic: str, partition: int = 0) -> dict[str, int]:
        found = self.get(f"/v1/topics/{topic}").json["offsets"][partition]
        return {name: found[name] for name in ("partition", "log_start_offset", "table_offset", "high_watermark")}

    def end(self, topic: str) -> int:
        """How many records the topic has."""
        records: int = self.get(f"/v1/topics/{topic}").json["records"]
        return records

    def until_end(self, topic: str, end: int) -> None:
        """Returns once the topic has `end` records: what is only written is there a moment later."""
        deadline = time.monotonic() + 60
        while (found := self.end(topic)) != end:
            assert found < end and time.monotonic() < deadline, found

    def connect(self) -> socket.socket:
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
        if self._context is None:
            return connection
        return self._context.wrap_socket(connection, server_hostname=parts.hostname)


def exchange(connection: socket.socket, head: str, body: bytes = b"") -> bytes:
    """Sends a request as it is; all that comes back until the server closes or is silent after a whole reply."""
    connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    """One reply with a Content-Length, or as much of it as came."""
    got = b""
    while True:
        head, found, rest = got.partition(b"\r\n\r\n")
        if found:
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if len(rest) >= int(lengths[0].partition(b":")[2] if lengths else 0):
                return got
        part = connection.recv(65_536)
        if not part:
            return got
        got += part
