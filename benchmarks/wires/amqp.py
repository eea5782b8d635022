"""AMQP 0-9-1 as RabbitMQ speaks it: persistent messages to QUEUE, by a channel that confirms them."""

import struct
from collections.abc import Iterator

from benchmarks.wires.wire import IsWhole, Wire

QUEUE = b"bench"
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
PERSISTENT = 2
FRAME_BYTES_MAX = 131_072
_CHANNEL = 1
_FRAME = struct.Struct(">BHI")
_ACK, _NACK, _CLOSE, _CLOSE_CHANNEL, _DELIVER = (60, 80), (60, 120), (10, 50), (20, 40), (60, 60)


def publishes(value: bytes, count: int) -> bytes:
    told = _method(60, 40, struct.pack(">H", 0) + _short(b"") + _short(QUEUE) + b"\0")
    head = _frame(HEADER, struct.pack(">HHQHB", 60, 0, len(value), 0x1000, PERSISTENT))
    return (told + head + _frame(BODY, value)) * count


def declare_quorum() -> bytes:
    """Makes QUEUE as one that is written and synced before it confirms."""
    argument = _short(b"x-queue-type") + b"S" + _long(b"quorum")
    durable = b"\x02"
    return _method(50, 10, struct.pack(">H", 0) + _short(QUEUE) + durable + _long(argument))


def consume() -> bytes:
    """Asks for all of QUEUE, which need not be acknowledged."""
    without_acknowledgement = b"\x02"
    return _method(60, 20, struct.pack(">H", 0) + _short(QUEUE) + _short(b"") + without_acknowledgement + _long(b""))


def deliveries(data: bytes) -> tuple[int, bytes]:
    """How many messages begin in `data`, and what is left of it after its last whole frame."""
    count = used = 0
    for kind, payload, end in _frames(data):
        count += kind == METHOD and struct.unpack_from(">HH", payload) == _DELIVER
        used = end
    return count, data[used:]


def frame_is_whole(data: bytes) -> bool:
    """Raises ValueError where the server closes the connection or the channel."""
    return any(True for _ in _told(data))


def _told(data: bytes) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yields each method that is whole, with its arguments. Raises ValueError for one that refuses."""
    for kind, payload, _ in _frames(data):
        if kind == METHOD:
            method = struct.unpack_from(">HH", payload)
            if method in (_CLOSE, _CLOSE_CHANNEL, _NACK):
                raise ValueError(f"RabbitMQ refused: {payload[4:].decode(errors='replace')}")
            yield method, payload[4:]


def _frames(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yields kind, payload and end of each whole frame."""
    at = 0
    while at + _FRAME.size < len(data):
        kind, _, size = _FRAME.unpack_from(data, at)
        end = at + _FRAME.size + size + 1
        if end > len(data):
            return
        yield kind, data[at + _FRAME.size : end - 1], end
        at = end


def _replies(count: int) -> IsWhole:
    """Tells when all `count` messages of a request were confirmed, one by one or several at once."""
    first = 1

    def is_whole(data: bytes) -> bool:
        nonlocal first
        waiting = set(range(first, first + count))
        for method, arguments in _told(data):
            if method == _ACK:
                tag, several = struct.unpack_from(">QB", arguments)
                waiting -= {each for each in waiting if each <= tag} if several else {tag}
        if not waiting:
            first += count
        return not waiting

    return is_whole


def _method(kind: int, number: int, arguments: bytes, channel: int = _CHANNEL) -> bytes:
    return _frame(METHOD, struct.pack(">HH", kind, number) + arguments, channel)


def _frame(kind: int, payload: bytes, channel: int = _CHANNEL) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + END


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


WIRE = Wire(
    _replies,
    (
        b"AMQP\0\0\x09\x01",
        _method(10, 11, _long(b"") + _short(b"PLAIN") + _long(b"\0guest\0guest") + _short(b"en_US"), 0),
        # Tuned to what is said here, without heartbeats; the connection is opened in the same breath, and answered.
        _method(10, 31, struct.pack(">HIH", _CHANNEL, FRAME_BYTES_MAX, 0), 0)
        + _method(10, 40, _short(b"/") + b"\0\0", 0),
        _method(20, 10, b"\0"),
        _method(85, 10, b"\0"),
    ),
    frame_is_whole,
)
"""The steps: start, tune and open, a channel, and that it confirms."""
