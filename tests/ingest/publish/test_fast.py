"""Small publishes are answered by the protocol itself: as the application answers them, in order, and within limits."""

import asyncio
import json
import re
import uuid
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from http_rig import Http, answer

from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.peer import Peer
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.memory import InFlight
from siltlog.infra.metrics import catalogue
from siltlog.infra.security.access import Entry, Policy, Right, Subject
from siltlog.infra.security.grant import Access, Caller, Identity
from siltlog.infra.security.origins import Origins
from siltlog.ingest.publish.exchange import Exchange
from siltlog.ingest.publish.fast import Asked, FastPublishes, _asked
from siltlog.ingest.publish.http import TIMEOUT_MS
from siltlog.ingest.publish.publishing import ANYBODY, Published

LONG_WAY = "X-Anything: else\n"
"""A header that the short way does not know."""
RECORD = b'{"records":[{"key":"k","value":{"a":1}}]}'
LEVELS = pytest.mark.parametrize("acks", ["written", "wal", "object"])
"""A topic's own."""


@pytest.fixture
def topic() -> str:
    return f"small-{uuid.uuid4().hex}"


def request(topic: str, body: bytes, *, media: str = names.MEDIA_JSON, extra: str = "", query: str = "") -> bytes:
    head = (
        f"POST /v1/topics/{topic}/records{query} HTTP/1.1\nHost: localhost\nContent-Type: {media}\n{extra}"
        f"Content-Length: {len(body)}\n\n"
    )
    return head.replace("\n", "\r\n").encode() + body


def known(http: Http) -> None:
    """The server has let in this Host before: only then the short way is open."""
    with http.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in answer(connection)


def without_chance(reply: bytes) -> tuple[str, list[str], Any]:
    """Status line, header lines and document, without what differs from one request to the next."""
    head, _, body = reply.partition(b"\r\n\r\n")
    status, *lines = head.decode().lower().split("\r\n")
    kept = sorted(line for line in lines if not line.startswith(("date:", "silt-request-id:", "content-length:")))
    assert any(line.startswith("silt-request-id:") for line in lines)
    body = re.sub(rb"name-[ab]", b"name", body)
    document = json.loads(
        re.sub(rb'"(request_id|partition|first_offset|last_offset)": ?("[^"]*"|\d+)', rb'"\1":0', body)
    )
    document.pop("records", None)
    return status, kept, document


def many(last: bytes) -> bytes:
    """A body of 100 KB."""
    records = [b'{"key":"k%d","value":{"n":%d,"x":"%s"}}' % (n % 7, n, b"x" * 170) for n in range(500)]
    return b'{"records":[' + b",".join([*records, last]) + b"]}"


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (names.MEDIA_JSON, RECORD),
        (names.MEDIA_JSON, many(b'{"key":"k","value":1}')),
        (names.MEDIA_JSON, many(b'{"key":"k","value":"a"}')),
        (names.MEDIA_JSON, many(b'{"key":"k","value":}')),
        (names.MEDIA_JSON, many(b'{"key":"k","value":null}')),
        (names.MEDIA_JSON, many(b'{"key":"k","value":"%s"}' % (b"x" * 2_000))),
        (names.MEDIA_JSON, b'{"records":[{"value":"a","partition":1},{"value":"b","partition":0}]}'),
        (names.MEDIA_BYTES, b"\x00\xff"),
        (names.MEDIA_BYTES, b""),
        (names.MEDIA_JSON, b""),
        (names.MEDIA_JSON, b'{"records":[{"value":1},]}'),
        (names.MEDIA_JSON, b'{"records":[]}'),
        (names.MEDIA_JSON, b'{"records":[{"value":1,"partition":9}]}'),
        (names.MEDIA_JSON, b'{"records":[{"value":1,"sequence":9,"partition":0}]}'),
        (names.MEDIA_JSON, b'{"records":[{"value":"%s"}]}' % (b"x" * 2_000)),
    ],
)
@LEVELS
def test_both_ways_answer_the_same(http: Http, topic: str, media: str, body: bytes, acks: str) -> None:
    http.create(topic, 2, max_record_bytes=1_000, acks=acks)
    known(http)
    before = http.end(topic)
    with http.connect() as connection:
        connection.sendall(request(topic, body, media=media))
        short = answer(connection)
        connection.sendall(request(topic, body, media=media, extra=LONG_WAY))
        long = answer(connection)
    assert without_chance(short) == without_chance(long)
    accepted = short.startswith(b"HTTP/1.1 200")
    per_request = len(json.loads(short.partition(b"\r\n\r\n")[2])["records"]) if accepted else 0
    http.until_end(topic, before + 2 * per_request)


SEQUENCED = b'{"records":[{"value":1,"partition":0,"sequence":%d}]}'


@pytest.mark.parametrize(
    ("headers", "sequence"),
    [
        ("Silt-Producer-Id: {}\n", 0),
        ("Silt-Producer-Id: {}\nSilt-Producer-Epoch: 0\nSilt-Partition-Count: 2\n", 0),
        ("Silt-Producer-Id: {}\nSilt-Sequence-Mode: increasing\n", 7),
        ("Silt-Producer-Id: {}\n", 3),
        ("Silt-Producer-Id: {}\nSilt-Producer-Epoch: 9\n", 0),
        ("Silt-Producer-Id: {}\nSilt-Partition-Count: 5\n", 0),
        ("Silt-Producer-Id: no/name{}\n", 0),
        ("Silt-Sequence: 3\n", 0),
        ("Idempotency-Key: {}\n", None),
        ("Idempotency-Key: {}\nSilt-Producer-Id: {}\n", 0),
    ],
)
@LEVELS
def test_producers_are_answered_the_same_and_repeats_are_known(
    http: Http, topic: str, headers: str, sequence: int | None, acks: str
) -> None:
    http.create(topic, 2, acks=acks)
    known(http)
    body = RECORD if sequence is None else SEQUENCED % sequence
    with http.connect() as connection:

        def answered(name: str, extra: str) -> tuple[str, list[str], Any]:
            connection.sendall(request(topic, body, extra=headers.format(name, name) + extra))
            return without_chance(answer(connection))

        # Each producer twice, once each way first: the second of the two is the repeat of the other's.
        assert [answered("name-a", ""), answered("name-a", LONG_WAY)] == [
            answered("name-b", LONG_WAY),
            answered("name-b", ""),
        ]


@pytest.mark.parametrize(
    "query",
    [
        "?timeout_ms=5000",
        "?timeout_ms=5000&acks=wal&partition=1",
        "?timeout_ms=5000&partition=2",
        "?timeout_ms=99999",
        "?timeout_ms=5000&acks=object",
        "?partition=1",
        "?acks=wal",
        "?acks=written",
        "?timeout_ms=5000&acks=written&partition=1",
        "?acks=wal&partition=0",
        "?timeout_ms=",
        "?timeout_ms=5000partition=1",
        "?timeout_ms=5000&partition=1&acks=wal",
        "?",
    ],
)
@pytest.mark.parametrize("extra", ["", "Idempotency-Key: name-a\n"])
@LEVELS
def test_queries_are_answered_the_same(http: Http, topic: str, query: str, extra: str, acks: str) -> None:
    http.create(topic, 2, acks=acks)
    known(http)
    body = b'{"records":[{"value":1,"partition":1}]}'
    with http.connect() as connection:
        answers = []
        # With a key the first is appended and the others are its repeats.
        for way in ("", LONG_WAY, ""):
            connection.sendall(request(topic, body, extra=extra + way, query=query))
            answers.append(without_chance(answer(connection)))
    assert answers[1] == answers[2]
    if not extra:
        assert answers[0] == answers[1]


def test_what_the_client_asks_for_is_read_on_the_short_way() -> None:
    for acks in ("written", "wal", "object"):
        assert _asked(b"timeout_ms=5000&acks=%b&partition=1" % acks.encode()) == Asked(5_000, "1", acks)
    assert _asked(b"partition=1") == Asked(TIMEOUT_MS, "1", None), "as the topic says"
    assert _asked(b"acks=table") is None


def test_small_arrow_bodies(http: Http, topic: str) -> None:
    http.create(topic)
    known(http)
    batch = pa.record_batch({"value": pa.array([b"a", b"b"])})
    bomb = pa.record_batch({"value": pa.array([b"\x00" * 1_000_000])})
    for records, codec in ((batch, None), (batch, "zstd"), (bomb, "zstd")):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, records.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(records)
        with http.connect() as connection:
            answers = []
            for extra in ("", LONG_WAY):
                connection.sendall(request(topic, sink.getvalue().to_pybytes(), media=names.MEDIA_ARROW, extra=extra))
                answers.append(without_chance(answer(connection)))
        assert answers[0] == answers[1]
        # What inflates to a megabyte is too large for this server.
        assert ("200" in answers[0][0]) == (records is batch)
    assert http.end(topic) == 8


def test_what_was_sent_is_what_is_read(http: Http, topic: str) -> None:
    http.create(topic)
    known(http)
    with http.connect() as connection:
        connection.sendall(request(topic, RECORD))
        document = json.loads(answer(connection).partition(b"\r\n\r\n")[2])
    assert document["records"] == [[0, 0]]
    [record] = http.read(topic, query="values=text")
    assert (record["key"], record["value"]) == ("k", '{"a":1}')


def test_requests_that_come_in_pieces_or_behind_one_another(http: Http, topic: str) -> None:
    http.create(topic)
    known(http)
    whole = request(topic, RECORD)
    with http.connect() as connection:
        # Byte by byte; then many at once, short and long ways mixed, all answered in their order.
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])
        assert b'"first_offset":0' in answer(connection)
        ways = [b"", LONG_WAY.encode(), b"", b"", LONG_WAY.encode(), b""]
        connection.sendall(b"".join(request(topic, RECORD, extra=way.decode()) for way in ways))
        got = b""
        while got.count(b'"first_offset"') < len(ways):
            part = connection.recv(65_536)
            assert part, got
            got += part
    assert re.findall(rb'"first_offset":(\d+)', got) == [b"%d" % offset for offset in range(1, 7)]
    assert got.count(b"HTTP/1.1 200") == len(ways)


def test_a_client_that_leaves_before_its_answer(http: Http, topic: str) -> None:
    http.create(topic)
    known(http)
    for _ in range(20):
        with http.connect() as connection:
            connection.sendall(request(topic, RECORD))
    with http.connect() as connection:
        connection.sendall(request(topic, RECORD))
        assert answer(connection).startswith(b"HTTP/1.1 200")
    assert http.end(topic) == 21
    metrics = http.get("/metrics").body.decode()
    assert re.search(rf"^{catalogue.IN_FLIGHT_BYTES.name} 0(\.0)?$", metrics, re.MULTILINE)


# --- its parts, without a server --------------------------------------------------------------------------
class Keys:
    """Knows the tokens of two keys; of anybody else it cannot tell at once."""

    def __init__(self) -> None:
        self.access = Access(SystemClock(), policy("read", "write"))
        self.asked = 0
        self.until_us: int | None = None

    def known(self, caller: Caller) -> Identity | None:
        self.asked += 1
        token = (caller.authorization or b"").removeprefix(b"Bearer ").decode()
        return Identity(Subject("key:" + token), until_us=self.until_us) if token in ("ana", "bob") else None


def policy(of_ana: Right, of_bob: Right) -> Policy:
    entries = {
        "a": Entry("key:ana", "topic", "t", (of_ana,)),
        "b": Entry("key:bob", "topic", "t", (of_bob,)),
    }
    return Policy(entries, {})


def called(host: str) -> Origins:
    """Has been called by this name already."""
    origins = Origins([host], ())
    origins.admit(Caller(host.encode()))
    return origins


class OpenTopics:
    def open_topic(self, name: str) -> Any:
        return SimpleNamespace(name=name)


class Sending:
    """A connection whose next request has these header fields."""

    url = b"/v1/topics/t/records"
    parser = SimpleNamespace(get_method=lambda: b"POST", get_http_version=lambda: "1.1")
    flow = SimpleNamespace(write_paused=False)
    loop = SimpleNamespace(time=lambda: 0.0)
    scope: dict[str, Any] = {}  # noqa: RUF012
    remembered = None
    peer = Peer("192.0.2.7")

    def known(self) -> None:
        pass

    def fields(self, *authorization: str) -> "Sending":
        credentials = [(b"authorization", f"Bearer {token}".encode()) for token in authorization]
        self.headers = [(b"host", b"x"), (b"content-type", b"application/json"), *credentials]
        return self


@pytest.mark.rule("A11")
def test_it_takes_what_it_knows_to_be_allowed_and_leaves_all_else_to_the_long_way() -> None:
    keys, connection = Keys(), Sending()
    door = SimpleNamespace(identification=keys, origins=called("x"), access_log=None)
    fast = FastPublishes(OpenTopics(), door, InFlight(1, SystemClock()), Draining(), 1)  # type: ignore[arg-type]

    def takes(*authorization: str) -> bool:
        return fast.taken(connection.fields(*authorization)) is not None

    assert [takes(), takes("wrong"), takes("ana"), takes("bob"), takes("bob", "bob")] == [0, 0, 0, 1, 0]
    # A credential that it has just seen is not looked at again, another one on the same connection is.
    before = keys.asked
    assert [takes("bob"), takes("bob")] == [1, 1]
    assert keys.asked == before
    assert [takes("ana"), takes("bob"), takes()] == [0, 1, 0]
    keys.access.change(policy("write", "read"))
    assert [takes("bob"), takes("ana")] == [0, 1]
    keys.until_us = 0
    keys.access.change(policy("write", "read"))
    before = keys.asked
    assert [takes("ana"), takes("ana")] == [1, 1]
    assert keys.asked == before + 2, "what has ended is not remembered"
    door.identification = None
    assert [takes(), takes("ana"), takes("ana", "bob")] == [1, 1, 0]


def test_the_context_of_a_trace_sends_nobody_the_long_way() -> None:
    door = SimpleNamespace(identification=None, origins=called("x"), access_log=None)
    made: list[tuple[Any, ...]] = []
    fast = FastPublishes(
        OpenTopics(),  # type: ignore[arg-type]
        door,  # type: ignore[arg-type]
        InFlight(1, SystemClock()),
        Draining(),
        1,
        lambda *args: made.append(args) or Exchange(*args),
    )
    connection = Sending().fields()
    connection.headers += [(b"traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), (b"tracestate", b"a=1")]
    assert isinstance(fast.taken(connection), Exchange)
    assert len(made) == 1
    connection.headers.append((b"x-anything", b"else"))
    assert fast.taken(connection) is None


@pytest.mark.rule("CJ3")
def test_acks_object_waits_for_the_journal_on_the_short_way_too() -> None:
    async def run() -> None:
        landed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lasting = SimpleNamespace(lasting=False)
        topic = SimpleNamespace(availability=lasting, gone=lambda: problem("topic_unavailable", "it is another's"))
        log = SimpleNamespace(when_shown=lambda end: None if landed.done() else landed)
        published = Published(topic, None, ANYBODY, "object", SimpleNamespace(ends=[(log, 1)]))  # type: ignore[arg-type]
        assert published.waits_for() is landed
        lasting.lasting = True
        with pytest.raises(SiltlogError, match="another"):
            published.waits_for()
        landed.set_result(None)
        assert published.waits_for() is None

    asyncio.run(run())
