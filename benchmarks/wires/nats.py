"""JetStream: publishes to SUBJECT, each of which is answered at the inbox of its connection."""

import json

from benchmarks.wires.wire import CONNECTION, IsWhole, Wire

SUBJECT = b"bench"
INBOX = b"_INBOX." + CONNECTION
_HELLO = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"lang":"load","version":"1"}\r\nSUB %s 1\r\nPING\r\n'
)


def publishes(value: bytes, count: int) -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (SUBJECT, INBOX, len(value), value) * count


def call(subject: str, document: dict[str, object]) -> bytes:
    """A request to the API of JetStream."""
    body = json.dumps(document).encode()
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), INBOX, len(body), body)


def _replies(count: int) -> IsWhole:
    def is_whole(data: bytes) -> bool:
        if b'"error"' in data or b"-ERR" in data:
            raise ValueError(data.decode(errors="replace")[-300:])
        # A message is two lines, its head and its body; a ping of the server is one.
        return data.endswith(b"\r\n") and data.count(b"\r\n") - data.count(b"PING\r\n") >= 2 * count

    return is_whole


def _is_open(data: bytes) -> bool:
    return data.endswith(b"PONG\r\n")


WIRE = Wire(_replies, (_HELLO % INBOX,), _is_open)
