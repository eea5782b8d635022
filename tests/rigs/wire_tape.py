"""What clients and a server say to each other, kept: later clients are tried on an earlier server's answers, and later
servers on an earlier client's requests."""

import base64
import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa

from siltlog import Admin, Consumer, Producer
from siltlog.infra import names
from siltlog.infra.client.core import Request, Response
from siltlog.infra.client.transport import HttpTransport

TOPIC, GROUP = "wire", "readers"
TIMES_MS = (1_700_000_000_000, 1_700_000_000_001)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CHOSEN = ("topic_id", "generation", "member_id")
"""What one side chooses anew each time, and the other repeats."""
SAID = (
    *("topic", "partition", "first_offset", "last_offset", "count", "duplicate", "offset", "next_offset"),
    *("log_start_offset", "high_watermark", "error", "error_code", "retryable", "partitions", "name"),
)
"""What must be the very same; of the rest of an answer the names and the types."""


@dataclass(frozen=True)
class Exchange:
    method: str
    path: str
    headers: dict[str, str]
    body: str
    """Base64, as `reply`."""
    status: int
    media: str
    reply: str

    @property
    def sent(self) -> bytes:
        return base64.b64decode(self.body)

    @property
    def answered(self) -> bytes:
        return base64.b64decode(self.reply)


class Recording:
    """A transport that keeps what went through; what was refused, as a call that a close cuts short, is not."""

    def __init__(self) -> None:
        self.tape: list[Exchange] = []
        self._inner = HttpTransport()

    def send(self, url: str, request: Request) -> Response:
        reply = self._inner.send(url, request)
        if reply.status < 400:
            body = base64.b64encode(b"".join(map(bytes, request.body))).decode()
            answered = base64.b64encode(bytes(reply.body)).decode()
            media = reply.headers.get("content-type", "")
            headers = dict(request.headers)
            self.tape.append(Exchange(request.method, request.path, headers, body, reply.status, media, answered))
        return reply

    def close(self) -> None:
        self._inner.close()


class Playing:
    """A transport that answers as the tape has it, and finds fault with what is asked otherwise than there."""

    def __init__(self, tape: Sequence[Exchange]) -> None:
        self.faults: list[str] = []
        self._tape = tape
        self._left = list(tape)
        self._beats = [each for each in tape if each.method == "PUT" and "/members/" in each.path]
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def send(self, url: str, request: Request) -> Response:
        asked = form(request.method, request.path, request.headers, b"".join(map(bytes, request.body)))
        with self._lock:
            for each in self._left:
                if form(each.method, each.path, each.headers, each.sent) == asked:
                    self._left.remove(each)
                    return _answer(each)
            for each in self._tape:
                if each.method == "GET" and form(each.method, each.path, each.headers, each.sent) == asked:
                    return _answer(each)
        if request.method == "PUT" and "/members/" in request.path and self._beats:
            self._closed.wait(0.2)  # a heartbeat, of which the tape has as many as there was time for
            return _answer(self._beats[0])
        self.faults.append(f"asked otherwise than before: {asked}")
        return Response(400, {"content-type": names.MEDIA_PROBLEM}, b'{"error_code":"invalid_parameter","detail":"-"}')

    def close(self) -> None:
        self._closed.set()


def _answer(each: Exchange) -> Response:
    return Response(each.status, {"content-type": each.media} if each.media else {}, each.answered)


def form(method: str, path: str, headers: Any, body: bytes) -> tuple[Any, ...]:
    """A request without what is chosen anew each time."""
    plain = {name: _ID.sub("{id}", value) for name, value in sorted(headers.items())}
    return method, _ID.sub("{id}", path), plain, _contents(headers.get("Content-Type", ""), body)


def _contents(media: str, body: bytes) -> Any:
    if media == names.MEDIA_ARROW:
        table = pa.ipc.open_stream(BytesIO(body)).read_all()
        return str(table.schema.remove_metadata()), table.to_pylist()
    if media == names.MEDIA_JSON and body:
        return _unchosen(json.loads(body))
    return body


def _unchosen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "{chosen}" if name in CHOSEN and each else _unchosen(each) for name, each in value.items()}
    return [_unchosen(each) for each in value] if isinstance(value, list) else value


def chosen(told: Any, found: Any) -> dict[str, str]:
    """What stands now for what was chosen then."""
    pairs: dict[str, str] = {}
    if isinstance(told, dict) and isinstance(found, dict):
        for name, each in told.items():
            if name in CHOSEN and name in found:
                pairs[str(each)] = str(found[name])
            pairs |= chosen(each, found.get(name))
    elif isinstance(told, list) and isinstance(found, list):
        for each, other in zip(told, found, strict=False):
            pairs |= chosen(each, other)
    return pairs


def lacking(told: Any, found: Any, name: str = "") -> list[str]:
    """What an earlier client finds in an answer, and not in a later one, or as something else."""
    if isinstance(told, dict) and isinstance(found, dict):
        gone = [f"{name}.{key} is gone" for key in told if key not in found]
        return gone + [each for key in told if key in found for each in lacking(told[key], found[key], f"{name}.{key}")]
    if isinstance(told, list) and isinstance(found, list):
        if all(isinstance(each, str) for each in told):
            return [f"{name} lacks {each}" for each in told if each not in found]
        counts = [] if len(told) == len(found) else [f"{name} has {len(found)} in place of {len(told)}"]
        return counts + [each for one, two in zip(told, found, strict=False) for each in lacking(one, two, name)]
    if type(told) is not type(found) or (name.rpartition(".")[2] in SAID and told != found):
        return [f"{name} is {found!r}, and was {told!r}"]
    return []


def read(media: str, body: bytes) -> Any:
    """An answer as a value: of Arrow the schema, the records, and what is said beside them."""
    if media == names.MEDIA_ARROW:
        table = pa.ipc.open_stream(BytesIO(body)).read_all()
        beside = {key.decode(): json.loads(value) for key, value in (table.schema.metadata or {}).items()}
        return {"records": [str(table.schema.remove_metadata()), *map(str, table.to_pylist())], "beside": beside}
    if media in (names.MEDIA_JSON, names.MEDIA_PROBLEM):
        return json.loads(body)
    return body.decode()


def conversation(url: str, transport: Any) -> list[tuple[Any, ...]]:
    """One topic made, filled and read, by the library and by bare calls; the records that came."""
    with Admin(url, transport=transport) as admin:
        admin.create_topic(TOPIC, 1)
    with Producer(url, linger_ms=0, transport=transport, compression="none") as producer:
        producer.send(TOPIC, b"one", key=b"k", headers=[("h", b"v")], timestamp=TIMES_MS[0])
        producer.flush()
        producer.send(TOPIC, b"two", timestamp=TIMES_MS[1])
        producer.flush()
    bare = {"Content-Type": names.MEDIA_JSON, "Accept": names.MEDIA_JSON}
    record = {"value": "three", "key": "k", "timestamp": "2023-11-14T22:13:20Z"}
    body = json.dumps({"records": [record]}).encode()
    transport.send(url, Request("POST", f"/v1/topics/{TOPIC}/records", bare, (body,)))
    with Consumer(url, group=GROUP, topics=[TOPIC], stop_at="latest", transport=transport) as consumer:
        found = [(each.partition, each.offset, each.key, each.value, each.headers) for each in consumer]
    accept = {"Accept": names.MEDIA_JSON}
    transport.send(url, Request("GET", f"/v1/topics/{TOPIC}/partitions/0/records?offset=0", accept))
    transport.send(url, Request("GET", f"/v1/groups/{GROUP}", accept))
    return found


def kept(tape: Sequence[Exchange], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(each)) + "\n" for each in tape), "utf-8")


def played(path: Path) -> list[Exchange]:
    return [Exchange(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def calls(tape: Sequence[Exchange]) -> Counter[str]:
    """How often each call is on a tape."""
    return Counter(f"{each.method} {_ID.sub('{id}', each.path.partition('?')[0])}" for each in tape)
