"""Reading a Valkey stream as one member of a group, as fast as Python can: a regular expression takes a reply apart,
and what was read is acknowledged in the same round trip that asks for more."""

import re
import socket
from typing import Any

from benchmarks.loads.load import resp_request

STREAM = b"stream-00000"
"""Where `Bench.load_stream` adds entries."""
RECEIVE_BYTES = 1024 * 1024
NOTHING = b"*-1\r\n"
_HEAD = re.compile(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n")


class StreamReader:
    def __init__(self, port: int, group: str, value_bytes: int, *, acknowledging: bool = True) -> None:
        """The group begins with the stream's first entry; each has one value of `value_bytes`.

        With `acknowledging` an entry that was read comes again after a crash; else Valkey forgets it as it gives it.
        """
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group = group.encode()
        self._value = b"\r\nv\r\n$%d\r\n" % value_bytes
        pattern = rb"\$\d+\r\n([0-9-]+)\r\n\*2\r\n\$1" + re.escape(self._value) + rb"(.{%d})\r\n" % value_bytes
        self._entries: Any = re.compile(pattern, re.DOTALL)
        self._value_bytes = value_bytes
        self._options = () if acknowledging else (b"NOACK",)
        self._read: list[bytes] = []
        """Entries that are to be acknowledged."""
        self._buffer = b""
        self._socket.sendall(resp_request(b"XGROUP", b"CREATE", STREAM, self._group, b"0", b"MKSTREAM"))
        self._line()

    def read(self, count_max: int, block_ms: int) -> list[bytes]:
        """The values of the next entries, none when none came in `block_ms`."""
        arguments = (b"GROUP", self._group, b"reader", b"COUNT", b"%d" % count_max, b"BLOCK", b"%d" % block_ms)
        request = resp_request(b"XREADGROUP", *arguments, *self._options, b"STREAMS", STREAM, b">")
        if not self._read:
            self._socket.sendall(request)
        else:
            self._socket.sendall(resp_request(b"XACK", STREAM, self._group, *self._read) + request)
            self._line()
        found = self._entries.findall(self._reply())
        self._read = [] if self._options else [entry for entry, _ in found]
        return [value for _, value in found]

    def close(self) -> None:
        self._socket.close()

    def _line(self) -> None:
        """A reply of one line."""
        while b"\r\n" not in self._buffer:
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        if line.startswith(b"-"):
            raise RuntimeError(line.decode())

    def _reply(self) -> bytes:
        """The whole reply to an XREADGROUP, the last of what was asked for."""
        while (head := _HEAD.match(self._buffer)) is None:
            if self._buffer == NOTHING or self._buffer.startswith(b"-"):
                reply, self._buffer = self._buffer, b""
                if reply != NOTHING:
                    raise RuntimeError(reply.decode())
                return b""
            self._receive()
        pieces, count = [self._buffer], self._buffer.count(self._value)
        wanted = int(head[1])
        while True:
            last = pieces[-1].rfind(self._value)
            if count == wanted and last >= 0 and len(pieces[-1]) - last == len(self._value) + self._value_bytes + 2:
                self._buffer = b""
                return b"".join(pieces)
            piece = self._socket.recv(RECEIVE_BYTES)
            if not piece:
                raise RuntimeError("Valkey closed the connection")
            # What is looked for may lie across two pieces: the shorter tail of the one goes to the other.
            kept = len(self._value) + self._value_bytes + 2
            tail = pieces[-1][-kept:]
            count -= tail.count(self._value)
            pieces[-1] = pieces[-1][:-kept] if len(pieces[-1]) > kept else b""
            piece = tail + piece
            count += piece.count(self._value)
            pieces.append(piece)

    def _receive(self) -> None:
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise RuntimeError("Valkey closed the connection")
        self._buffer += data
