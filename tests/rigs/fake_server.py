"""A small server in this process that keeps the contract of publishing and reading, and breaks connections on order.

It checks what a real one checks (sequences, partition counts, group fencing), so a client that passes here has kept
its side of the contract. Faults come from a function that is asked once for every publish.
"""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import SiltlogError, problem, problem_document

Fault = str | None
"""None, or what happens to one publish: drop_before, drop_after, drop_reply, 408, 429, 500_before, 500_after, 503,
504_before, 504_after."""


@dataclass
class Stored:
    value: bytes | None
    key: bytes | None
    headers: list[Any] | None
    timestamp: Any
    producer_id: str | None = None
    sequence: int | None = None


@dataclass
class FakeTopic:
    partitions: list[list[Stored]]
    starts: dict[int, int] = field(default_factory=dict)
    producers: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)

    def values(self, partition: int) -> list[bytes | None]:
        return [stored.value for stored in self.partitions[partition]]

    def all_values(self) -> list[bytes | None]:
        return [value for partition in range(len(self.partitions)) for value in self.values(partition)]


class FakeServer:
    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.limits = {
            "request_bytes": 32 * 2**20, "record_bytes": 8 * 2**20, "records": 10**6, "wait_ms": 30_000,
            "fetch_bytes": 64 * 2**20,
        }  # fmt: skip
        self.auto_create_partitions = 0
        self.faults: Callable[[], Fault] = lambda: None
        self.changed = threading.Condition(threading.RLock())
        self.requests: list[tuple[str, str, float]] = []
        self.publishes: list[dict[str, str]] = []
        self.in_flight: list[tuple[str, int]] = []
        self.most_in_flight = 0
        self.overlapped = False
        """Whether two requests were in flight for one partition."""
        self.offers_claims = True
        self.claims = 0
        self.groups: dict[str, Any] = {}
        self.port = 0
        self._http: ThreadingHTTPServer | None = None

    # --- its life -----------------------------------------------------------------------------------------
    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = _Http(("127.0.0.1", self.port), handler)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()
        self._http.cut_all()
        self._http = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def topic(self, name: str, partitions: int = 1) -> FakeTopic:
        self.topics[name] = FakeTopic([[] for _ in range(partitions)])
        return self.topics[name]

    def find(self, name: str) -> FakeTopic:
        if name not in self.topics:
            raise problem("unknown_topic", f"there is no topic {name}; create it first")
        return self.topics[name]

    # --- publishing ---------------------------------------------------------------------------------------
    def rows(self, headers: Any, query: dict[str, str], body: bytes) -> list[dict[str, Any]]:
        rows = pa.ipc.open_stream(pa.py_buffer(body)).read_all().to_pylist()
        if "partition" in query:
            first = int(headers[names.HEADER_SEQUENCE])
            for index, row in enumerate(rows):
                assert "partition" not in row and "sequence" not in row
                row |= {"partition": int(query["partition"]), "sequence": first + index}
        return rows

    def claim(self, name: str, producer: str) -> dict[str, Any]:
        topic = self.find(name)
        if not self.offers_claims:
            raise problem("not_found", "nothing is here")
        self.claims += 1
        epoch = topic.epochs[producer] = topic.epochs.get(producer, 0) + 1
        partitions = [
            {"partition": p, "next_sequence": known["next"], "last_offset": known["last"]}
            for (who, p), known in topic.producers.items()
            if who == producer
        ]
        return {"producer_id": producer, "producer_epoch": epoch, "partitions": partitions}

    def publish(self, name: str, headers: Any, rows: list[dict[str, Any]], size: int) -> dict[str, Any]:
        if self.auto_create_partitions and name not in self.topics:
            topic = FakeTopic([[] for _ in range(self.auto_create_partitions)])
        else:
            topic = self.find(name)
        if size > self.limits["request_bytes"]:
            raise problem("request_too_large", "the body is too large", limit=self.limits["request_bytes"])
        producer = headers[names.HEADER_PRODUCER_ID]
        epoch = topic.epochs.get(producer, 0)
        if int(headers[names.HEADER_PRODUCER_EPOCH]) < epoch:
            raise problem("fenced_producer", "it was claimed", producer_epoch=epoch)
        groups: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row["partition"], []).append(row)
        unknown = {"next": 0, "last": None, "batches": {}}
        known = {p: topic.producers.get((producer, p), unknown) for p in groups}
        duplicates = {p for p, part in groups.items() if part[-1]["sequence"] < known[p]["next"]}
        counted = headers.get(names.HEADER_PARTITION_COUNT)
        if len(duplicates) < len(groups) and counted and int(counted) != len(topic.partitions):
            count = len(topic.partitions)
            raise problem("partition_count_changed", f"{name} has {count} partitions", partitions=count)
        for index, row in enumerate(rows):
            if len(row["value"] or b"") > self.limits["record_bytes"]:
                raise problem("record_too_large", f"record {index} is too large", index=index)
            if row["value"] == b"bad":
                raise problem("invalid_record", f"record {index} is bad", index=index)
        for p, part in groups.items():
            if p >= len(topic.partitions):
                raise problem("unknown_partition", f"{name} has no partition {p}", partition=p)
            sequences = [row["sequence"] for row in part]
            assert sequences == list(range(sequences[0], sequences[0] + len(part))), "sequences are not contiguous"
            if p not in duplicates and sequences[0] != known[p]["next"]:
                code = "out_of_order_sequence" if known[p]["next"] else "unknown_producer"
                raise problem(code, "not next in line", partition=p, next_sequence=known[p]["next"])
        # Made only now: a request that is refused has no effect.
        self.topics[name] = topic
        reply = []
        for p, part in groups.items():
            first = part[0]["sequence"]
            if p in duplicates:
                offset = known[p]["batches"][first]
            else:
                known[p] = topic.producers.setdefault((producer, p), {"next": 0, "batches": {}})
                offset = len(topic.partitions[p])
                topic.partitions[p] += [
                    Stored(
                        row["value"], row.get("key"), row.get("headers"), row.get("timestamp"), producer,
                        row["sequence"],
                    )
                    for row in part
                ]  # fmt: skip
                known[p]["batches"][first] = offset
                known[p]["next"] = first + len(part)
                known[p]["last"] = offset + len(part) - 1
            reply.append(
                {
                    "partition": p, "first_offset": offset, "last_offset": offset + len(part) - 1,
                    "count": len(part), "duplicate": p in duplicates,
                }
            )  # fmt: skip
        self.changed.notify_all()
        return {"topic": name, "acks": "wal", "partitions": reply}

    # --- reading ------------------------------------------------------------------------------------------
    def offsets(self, name: str, timestamp: int | None) -> dict[str, Any]:
        topic = self.find(name)
        partitions = []
        for p, records in enumerate(topic.partitions):
            at = len(records)
            if timestamp is not None:
                at = next((i for i, r in enumerate(records) if _us(r.timestamp) >= timestamp), len(records))
            partitions.append(
                {
                    "partition": p, "log_start_offset": topic.starts.get(p, 0), "table_offset": 0,
                    "high_watermark": len(records), "offset": at,
                }
            )  # fmt: skip
        return {"topic": name, "partitions": partitions}

    def fetch(self, asked: dict[str, Any]) -> pa.Table:
        deadline = time.monotonic() + asked.get("wait_ms", 0) / 1000
        while True:
            states, rows = self._read(asked)
            left = deadline - time.monotonic()
            if rows or left <= 0 or any(state["error"] for state in states):
                break
            self.changed.wait(left)
        table = pa.Table.from_pylist(rows, FETCH_SCHEMA)
        return table.replace_schema_metadata({names.ARROW_METADATA_KEY: msgspec.json.encode(states)})

    def _read(self, asked: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        states, rows = [], []
        for part in asked["partitions"]:
            name, p, offset = part["topic"], part["partition"], part["offset"]
            topic = self.find(name)
            start, end = topic.starts.get(p, 0), len(topic.partitions[p])
            state = {
                "topic": name, "partition": p, "next_offset": offset, "log_start_offset": start, "table_offset": 0,
                "high_watermark": end, "error": None,
            }  # fmt: skip
            if not start <= offset <= end:
                error = problem(
                    "offset_out_of_range", f"{offset} is not in [{start}, {end}]", log_start_offset=start,
                    high_watermark=end,
                )  # fmt: skip
                state["error"] = problem_document(error, None)
            else:
                taken = topic.partitions[p][offset : offset + asked.get("max_records", 100_000) - len(rows)]
                rows += [
                    {
                        "topic": name, "partition": p, "offset": offset + i, "timestamp": r.timestamp, "key": r.key,
                        "value": r.value, "headers": r.headers,
                    }
                    for i, r in enumerate(taken)
                ]  # fmt: skip
                state["next_offset"] = offset + len(taken)
            states.append(state)
        return states, rows


def _us(moment: Any) -> int:
    return int(moment.timestamp() * 1_000_000) if moment is not None else 0


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self.open_sockets: set[Any] = set()
        super().__init__(*args)

    def get_request(self) -> Any:
        accepted = super().get_request()
        self.open_sockets.add(accepted[0])
        return accepted

    def cut_all(self) -> None:
        for connection in list(self.open_sockets):
            with suppress(OSError):
                connection.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeServer

    def log_message(self, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query))
        self.fake.requests.append((self.command, parts.path, time.monotonic()))
        try:
            status, document = self._route(parts.path.split("/")[1:], body)
        except SiltlogError as error:
            status, document = error.status or 500, problem_document(error, "r")
        except ConnectionAbortedError:
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self._reply(status, document)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _route(self, path: list[str], body: bytes) -> tuple[int, Any]:
        fake = self.fake
        match self.command, *path[1:]:
            case "GET", "cluster":
                return 200, {"version": "0", "cluster_id": "c", "nodes": [], "limits": fake.limits, "features": []}
            case "POST", "topics", name, "records":
                return self._publish(name, body)
            case "POST", "topics", name, "producers", producer:
                with fake.changed:
                    return 200, fake.claim(name, producer)
            case "POST", "fetch":
                with fake.changed:
                    return 200, fake.fetch(msgspec.json.decode(body))
            case "GET", "topics", name, "offsets":
                timestamp = parse_us(self.query["timestamp"]) if "timestamp" in self.query else None
                with fake.changed:
                    return 200, fake.offsets(name, timestamp)
            case "GET", "topics", name:
                topic = fake.find(name)
                return 200, {"name": name, "partitions": len(topic.partitions), "table_uri": f"file:///lake/{name}"}
            case "GET", "topics":
                return 200, {"topics": [{"name": name} for name in fake.topics], "next": None}
            case "POST" | "PUT", "topics", *_:
                return self._create(path, msgspec.json.decode(body))
            case "DELETE", "topics", name:
                fake.find(name)
                del fake.topics[name]
                return 204, None
        raise problem("not_found", "nothing is here")

    def _create(self, path: list[str], asked: dict[str, Any]) -> tuple[int, Any]:
        name = asked.get("name") or path[-1]
        if name in self.fake.topics:
            if self.command == "POST" or len(self.fake.topics[name].partitions) != asked.get("partitions", 1):
                raise problem("topic_exists", f"{name} exists")
            return 200, {"name": name, "partitions": len(self.fake.topics[name].partitions)}
        self.fake.topic(name, asked.get("partitions", 1))
        return 201, {"name": name, "partitions": asked.get("partitions", 1), "config": asked.get("config", {})}

    def _publish(self, name: str, body: bytes) -> tuple[int, Any]:
        fake = self.fake
        rows = fake.rows(self.headers, self.query, body)
        touched = {(name, row["partition"]) for row in rows}
        with fake.changed:
            fake.overlapped |= not touched.isdisjoint(fake.in_flight)
            fake.in_flight += touched
            fake.most_in_flight = max(fake.most_in_flight, len(fake.in_flight))
        try:
            fault = fake.faults()
            if fault == "drop_before":
                raise ConnectionAbortedError
            if fault is not None and fault.endswith("_before"):
                raise problem("internal" if fault.startswith("500") else "ack_timeout", "a fault")
            if fault in ("408", "429", "503", "507"):
                code = {"408": "request_timeout", "429": "rate_limited", "503": "overloaded", "507": "disk_full"}[fault]
                raise problem(code, "a fault", retry_after_ms=20)
            with fake.changed:
                fake.publishes.append(dict(self.headers))
                reply = fake.publish(name, self.headers, rows, len(body))
            if fault == "drop_after":
                raise ConnectionAbortedError
            if fault is not None:
                raise problem("internal" if fault.startswith("500") else "ack_timeout", "a fault")
            return 200, reply
        finally:
            with fake.changed:
                for one in touched:
                    fake.in_flight.remove(one)

    def _reply(self, status: int, document: Any) -> None:
        media = names.MEDIA_JSON if status < 400 else names.MEDIA_PROBLEM
        if isinstance(document, pa.Table):
            media = names.MEDIA_ARROW
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, document.schema) as writer:
                writer.write_table(document)
            body = sink.getvalue()
        else:
            body = b"" if document is None else msgspec.json.encode(document)
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if isinstance(document, dict) and document.get("retry_after_ms"):
            self.send_header("Retry-After", str(-(-document["retry_after_ms"] // 1000)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def fake_server() -> Iterator[FakeServer]:
    server = FakeServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
