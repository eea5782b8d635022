"""A WebSocket against an independent client's frames, over a line that is a list."""

from collections.abc import Callable

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from siltlog.infra.errors import Refused, problem
from siltlog.infra.http.connection.share import STEPS_MAX, Share
from siltlog.infra.http.connection.web_socket import MESSAGES_WAITING_MAX, REFUSED, SLICE_BYTES, WebSocket

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
FIELDS = [
    (b"host", b"localhost"),
    (b"connection", b"keep-alive, Upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-key", KEY),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-extensions", b"permessage-deflate"),
]


class Line:
    def __init__(self) -> None:
        self.written = b""
        self.closed = self.aborted = False
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Alone(Share):
    """A loop on which nobody else waits, unless it is `crowded`: then reading rests until it is told to go on."""

    def __init__(self) -> None:
        self.crowded = False
        self.resume: Callable[[], None] = lambda: None

    def now(self) -> float:
        return 0.0

    def took(self, steps: int, began: float, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        if self.crowded and steps > STEPS_MAX:
            pause()
            self.resume = resume


class Pair:
    """A WebSocket and its client, with what the client has heard."""

    def __init__(self) -> None:
        self.line = Line()
        self.called: list[str] = []
        self.share = Alone()
        self.socket = WebSocket(
            self.line,
            "/v1/topics/t/ws",
            FIELDS,
            opening=lambda: self.called.append("opening"),
            opened=lambda: self.called.append("opened"),
            share=self.share,
        )
        self.client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
        self.woken = 0
        self.socket.begin("", self.wake)

    def wake(self) -> None:
        self.woken += 1

    def open(self) -> "Pair":
        self.socket.open()
        return self

    def says(self, *messages: bytes) -> None:
        self.socket.data_received(b"".join(Frame(Opcode.TEXT, each).serialize(mask=True) for each in messages))

    def heard(self) -> list[tuple[Opcode, bytes]]:
        """What came at the client since, and what it answers by itself."""
        written, self.line.written = self.line.written, b""
        self.client.receive_data(written)
        events = self.client.events_received()
        for data in self.client.data_to_send():
            if data:
                self.socket.data_received(data)
        return [(event.opcode, bytes(event.data)) for event in events if isinstance(event, Frame)]


def test_the_answer_to_a_handshake() -> None:
    pair = Pair()
    fields = {name.lower(): value for name, value in pair.socket.accepted()}
    # Without compression, and with the connection's own date.
    assert fields == {
        b"upgrade": b"websocket",
        b"connection": b"Upgrade",
        b"sec-websocket-accept": b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    }
    assert pair.called == ["opening"]
    pair.open()
    assert pair.called == ["opening", "opened"]


def test_a_handshake_without_its_key_is_refused() -> None:
    fields = [field for field in FIELDS if field[0] != b"sec-websocket-key"]
    socket = WebSocket(Line(), "/", fields, opening=lambda: None, opened=lambda: None, share=Alone())
    with pytest.raises(Refused, match="Sec-WebSocket-Key"):
        socket.accepted()


@pytest.mark.rule("A36")
@pytest.mark.parametrize(
    "offered", [b"silt.v1, silt.bearer.secret, (", b"silt.v1 silt.bearer.secret", b"silt.bearer.secret"]
)
def test_what_is_wrong_with_the_offered_subprotocols_is_said_without_them(offered: bytes) -> None:
    fields = [field for field in FIELDS if field[0] != b"sec-websocket-protocol"]
    fields.append((b"sec-websocket-protocol", offered))
    socket = WebSocket(Line(), "/", fields, opening=lambda: None, opened=lambda: None, share=Alone())
    with pytest.raises(Refused) as refused:
        socket.accepted()
    assert "secret" not in str(refused.value)


@pytest.mark.rule("A36")
def test_a_token_among_the_subprotocols_is_not_chosen() -> None:
    fields = [field for field in FIELDS if field[0] != b"sec-websocket-protocol"]
    fields.append((b"sec-websocket-protocol", b"silt.v1, silt.bearer.secret"))
    accepted = WebSocket(Line(), "/", fields, opening=lambda: None, opened=lambda: None, share=Alone()).accepted()
    assert dict(accepted)[b"Sec-WebSocket-Protocol"] == b"silt.v1"


@pytest.mark.rule("U7")
def test_messages_come_in_order_and_wait_outside_while_there_are_many() -> None:
    pair = Pair().open()
    count = 40_000
    pair.says(*(b"%d" % number for number in range(count)))
    assert not pair.line.reading
    got = []
    while (message := pair.socket.message()) is not None:
        got.append(int(message))
        # What is not heard yet is kept as it came.
        assert len(pair.socket._messages) < MESSAGES_WAITING_MAX + SLICE_BYTES // 6
    assert got == list(range(count))
    assert pair.line.reading


@pytest.mark.rule("P12")
def test_of_very_many_frames_a_few_are_looked_at_before_others_have_their_turn() -> None:
    pair = Pair().open()
    pair.share.crowded = True
    pings = 10 * SLICE_BYTES // 6
    pair.socket.data_received(Frame(Opcode.PING, b"").serialize(mask=True) * pings)
    turns, answered = 0, 0
    while not pair.line.reading:
        turns += 1
        answered += len(pair.heard())
        pair.share.resume()
    assert turns == 10
    assert answered + len(pair.heard()) == pings
    pair.says(b"few")
    assert pair.line.reading and pair.socket.message() == b"few"


def test_what_comes_before_it_is_open_is_heard_then() -> None:
    pair = Pair()
    pair.says(b"early")
    assert pair.socket.message() is None
    pair.open()
    assert pair.socket.message() == b"early"
    assert pair.woken


@pytest.mark.rule("U7")
def test_nothing_is_read_from_who_takes_nothing() -> None:
    pair = Pair().open()
    pair.socket.pause_writing()
    assert not pair.line.reading
    pair.says(b"later")
    assert pair.socket.message() is None
    assert not pair.socket.takes
    pair.socket.resume_writing()
    assert pair.line.reading
    assert pair.socket.message() == b"later"


def test_a_ping_that_is_answered_is_followed_by_the_next() -> None:
    pair = Pair().open()
    for _ in range(3):
        pair.socket.beat()
        assert pair.heard() == [(Opcode.PING, b"")]
    assert not pair.line.aborted


@pytest.mark.rule("U10")
def test_who_is_silent_after_a_ping_is_given_up() -> None:
    pair = Pair().open()
    pair.socket.beat()
    pair.socket.beat()
    assert pair.line.aborted


def test_who_could_not_be_heard_is_not_given_up() -> None:
    pair = Pair().open()
    pair.socket.beat()
    pair.says(*(b"x" for _ in range(MESSAGES_WAITING_MAX)))
    pair.says(*(b"x" for _ in range(MESSAGES_WAITING_MAX)))
    pair.socket.beat()
    assert not pair.line.reading
    pair.socket.beat()
    assert not pair.line.aborted


def test_a_client_that_leaves_is_told_from_one_that_is_lost() -> None:
    leaving, lost = Pair().open(), Pair().open()
    leaving.client.send_close(1000)
    for data in leaving.client.data_to_send():
        leaving.socket.data_received(data)
    assert (leaving.socket.ended, leaving.socket.left, leaving.line.closed) == (True, True, True)
    lost.socket.lost()
    assert (lost.socket.ended, lost.socket.left) == (True, False)
    closed = Pair().open()
    closed.socket.close(REFUSED, problem("invalid_request", "no"))
    [(_, text), (opcode, close)] = closed.heard()
    assert b'"type":"problem"' in text
    assert (opcode, Close.parse(close)) == (Opcode.CLOSE, Close(1008, "no"))
    # The client has answered, and did not leave by itself.
    assert (closed.socket.ended, closed.socket.left, closed.line.closed) == (True, False, True)


def test_a_long_reason_is_cut_between_characters() -> None:
    pair = Pair().open()
    pair.socket.close(REFUSED, problem("invalid_request", "ä" * 500))
    _, (_, close) = pair.heard()
    assert Close.parse(close).reason == "ä" * 60


def test_what_is_sent_after_the_end_is_nothing() -> None:
    pair = Pair().open()
    pair.socket.close(REFUSED)
    pair.heard()
    pair.socket.send(b"more")
    pair.socket.beat()
    pair.socket.too_slow()
    assert pair.heard() == []
