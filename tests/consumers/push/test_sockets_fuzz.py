"""What strangers may send over a WebSocket: always a `problem`, then a close; the server lives."""

import json
import random
import struct
import uuid
from typing import Any

import pytest
from http_rig import Http
from push_rig import TIMEOUT_S, Socket, talking
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from siltlog.infra.http.connection.web_socket import MESSAGE_BYTES_MAX
from siltlog.server_process import ServerProcess

SEED = 20261121
SOCKETS = 40
CODES = {1002, 1008, 1009}


@pytest.fixture(scope="module")
def topic(http: Http) -> str:
    name = f"fuzz-{uuid.uuid4().hex}"
    http.create(name, 2)
    http.publish(name, *({"value": f"{n}"} for n in range(10)))
    return name


def path(topic: str) -> str:
    return f"/v1/topics/{topic}/ws?offset=earliest"


def test_the_server_still_works(http: Http, topic: str) -> None:
    with talking(http.url, path(topic)) as ws:
        ws.say("credit", records=100)
        assert len(ws.records(10)) == 10


MESSAGES = [
    ("no JSON", "{", "malformed_body"),
    ("nothing", "", "malformed_body"),
    ("two documents", '{"type":"credit","records":1}{}', "malformed_body"),
    ("a lone surrogate", '{"type":"\\ud800"}', "malformed_body"),
    ("an array", "[]", "invalid_request"),
    ("no type", "{}", "invalid_request"),
    ("a type that is none", '{"type":"hello"}', "invalid_request"),
    ("a type of groups", '{"type":"commit","offsets":[]}', "invalid_request"),
    ("another type of groups", '{"type":"release","partitions":[{"topic":"t","partition":0}]}', "invalid_request"),
    ("negative credit", '{"type":"credit","records":-1}', "invalid_request"),
    ("no credit", '{"type":"credit","records":0}', "invalid_request"),
    ("credit in words", '{"type":"credit","records":"many"}', "invalid_request"),
    ("half a credit", '{"type":"credit","records":0.5}', "invalid_request"),
    ("too large a credit", '{"type":"credit","records":9007199254740992}', "invalid_request"),
    ("credit without records", '{"type":"credit"}', "invalid_request"),
    ("unknown members", '{"type":"credit","records":1,"more":2}', "invalid_request"),
    ("deep nesting", "[" * 30_000, "invalid_request"),
    ("binary", b'{"type":"credit","records":1}', "malformed_body"),
]


@pytest.mark.parametrize(("message", "code"), [each[1:] for each in MESSAGES], ids=[each[0] for each in MESSAGES])
def test_what_is_not_understood_is_said_and_closed(http: Http, topic: str, message: str | bytes, code: str) -> None:
    with talking(http.url, path(topic)) as ws:
        ws.connection.send(message)
        closed, said = ws.closed()
    assert closed == 1008
    assert [each["type"] for each in said] == ["problem"]
    assert said[0]["error_code"] == code
    assert said[0]["retryable"] == "no"


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_message_that_is_too_large_is_not_waited_for(http: Http, topic: str, pieces: int) -> None:
    with talking(http.url, path(topic)) as ws:
        piece = b" " * (MESSAGE_BYTES_MAX // pieces + 10)
        for number in range(pieces):
            opcode = Opcode.TEXT if number == 0 else Opcode.CONT
            ws.connection.socket.sendall(Frame(opcode, piece, fin=number == pieces - 1).serialize(mask=True))
        closed, said = ws.closed()
    assert closed == 1009
    assert said[0]["error_code"] == "request_too_large"
    assert said[0]["limit"] == MESSAGE_BYTES_MAX


def test_a_length_of_exabytes_is_not_waited_for(http: Http, topic: str) -> None:
    with talking(http.url, path(topic)) as ws:
        ws.connection.socket.sendall(b"\x81\xff" + struct.pack("!Q", 2**62) + b"mask" + b"x" * 100)
        closed, said = ws.closed()
    assert (closed, said[0]["error_code"]) == (1009, "request_too_large")


def test_text_that_is_no_utf8(http: Http, topic: str) -> None:
    with talking(http.url, path(topic)) as ws:
        ws.connection.socket.sendall(Frame(Opcode.TEXT, b'{"type":"\xff"}').serialize(mask=True))
        closed, said = ws.closed()
    assert (closed, said[0]["error_code"]) == (1008, "malformed_body")


def test_frames_without_a_mask_and_of_no_kind(http: Http, topic: str) -> None:
    for frame in (b"\x81\x02{}", b"\x83\x80mask", b"\xf1\x80mask", b"\x80\x80mask"):
        with talking(http.url, path(topic)) as ws:
            ws.connection.socket.sendall(frame)
            closed, said = ws.closed()
        assert closed == 1002
        assert said[0]["error_code"] == "malformed_body"


def test_a_message_in_many_pieces_with_pings_between_is_one(http: Http, topic: str) -> None:
    text = b'{"type":"credit","records":5}'
    with talking(http.url, path(topic)) as ws:
        out = b""
        for number, byte in enumerate(text):
            opcode = Opcode.TEXT if number == 0 else Opcode.CONT
            out += Frame(opcode, bytes((byte,)), fin=number == len(text) - 1).serialize(mask=True)
            out += Frame(Opcode.PING, b"p").serialize(mask=True)
        ws.connection.socket.sendall(out)
        assert len(ws.records(5)) == 5


def test_very_many_messages_at_once_are_all_heard(http: Http, topic: str) -> None:
    """They wait their turn outside of the server's memory."""
    with talking(http.url, path(topic)) as ws:
        frame = Frame(Opcode.TEXT, b'{"type":"credit","records":1}').serialize(mask=True)
        ws.connection.socket.sendall(frame * 20_000)
        assert len(ws.records(10)) == 10
        ws.say("nonsense")
        closed, said = ws.closed()
    assert (closed, said[-1]["error_code"]) == (1008, "invalid_request")


def test_pings_whose_answers_nobody_takes_do_not_pile_up(http: Http, small_server: ServerProcess, topic: str) -> None:
    ping = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1_000
    before = resident_kb(small_server.pid)
    with http.connect() as raw:
        raw.sendall(
            f"GET {path(topic)} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert b" 101 " in raw.recv(4096)
        raw.settimeout(1)
        sent = 0
        # Once nobody reads them any more, they stay where they are, until the connection is cut off for it.
        with pytest.raises(OSError):
            while sent < 100_000_000:
                sent += raw.send(ping)
        assert resident_kb(small_server.pid) - before < 30_000


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def noise(rng: random.Random) -> bytes:
    """A frame or a few, of which most are not right."""
    kinds: list[Any] = [{"type": "credit", "records": 1}, {"type": "credit"}, [], None, {"type": rng.random()}]
    what = rng.randrange(6)
    if what == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if what == 1:
        text = json.dumps(rng.choice(kinds)).encode()
        at = rng.randrange(len(text))
        text = text[:at] + rng.randbytes(rng.randrange(3)) + text[at:]
        return Frame(Opcode.TEXT, text).serialize(mask=True)
    if what == 2:
        return Frame(Opcode.TEXT, rng.randbytes(rng.randrange(70_000))).serialize(mask=True)
    if what == 3:
        frame = bytearray(Frame(Opcode.TEXT, b'{"type":"credit","records":1}').serialize(mask=True))
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        return bytes(frame)
    if what == 4:
        opcode = rng.choice(list(Opcode))
        fin = opcode >= Opcode.CLOSE or rng.random() < 0.5
        return Frame(opcode, rng.randbytes(rng.randrange(100)), fin=fin).serialize(mask=True)
    return Frame(Opcode.TEXT, b'{"type":"credit","records":2}').serialize(mask=True)


@pytest.mark.parametrize("part", range(4))
def test_noise(http: Http, topic: str, part: int) -> None:
    rng = random.Random(f"{SEED} {part}")
    for _ in range(SOCKETS // 4):
        with talking(http.url, path(topic)) as ws:
            try:
                for _ in range(rng.randrange(1, 30)):
                    ws.connection.socket.sendall(noise(rng))
                # In any case the end: a type that is none.
                ws.say("end")
            except (ConnectionClosed, OSError):
                pass
            said = heard(ws)
            received = ws.connection.protocol.close_rcvd
            if received is not None and received.code in CODES:
                assert said[-1]["type"] == "problem"
    test_the_server_still_works(http, topic)


def heard(ws: Socket) -> list[dict[str, Any]]:
    said = []
    try:
        while True:
            said.append(json.loads(ws.connection.recv(timeout=TIMEOUT_S)))
    except (ConnectionClosed, TimeoutError):
        return said
