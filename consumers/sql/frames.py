"""What a server and the process of a query say to each other over a socket: a kind, a length, and so many bytes.

The process asks for bytes of files on further sockets, one read at a time on each.
"""

import socket
import struct
from typing import NamedTuple

import msgspec

ASKED = b"A"
"""Server: the SQL."""
NAMED = b"N"
"""Process: the names of the tables in it, as it has them."""
TABLES = b"T"
"""Server: those tables, and how to answer; a head follows for each that has one."""
HEAD = b"H"
"""Server: an Arrow stream of RECORD_SCHEMA."""
ANSWER = b"R"
"""Process: the whole reply."""
FAILED = b"F"
"""Process: why there is none."""

HEADER = struct.Struct("!cQ")
READ = struct.Struct("!IQQ")
"""The number of a file, where to begin, and how many bytes."""
GIVEN = struct.Struct("!?Q")
"""Whether the file could be read, and how many bytes follow."""


class Frame(NamedTuple):
    kind: bytes
    body: bytearray


class Asked(msgspec.Struct):
    sql: str


class Named(msgspec.Struct):
    names: list[str]


class Table(msgspec.Struct):
    """A topic. `places` are the schemas and names of its views; each of `files` is its number, size, partition, and
    first and last offset."""

    name: str
    places: list[tuple[str, str]]
    files: list[tuple[int, int, int, int, int]]
    starts: dict[int, int]
    has_head: bool


class Tables(msgspec.Struct):
    """`told` are members of the reply that the server knows; `began` is when it began, by the monotonic clock."""

    tables: list[Table]
    arrow: bool
    plan: bool
    limit: int
    told: msgspec.Raw
    began: float


class Failed(msgspec.Struct):
    """`kind` is a FaultKind, or `refused` for what is no query; `place` is the line and the column of what is
    wrong, from 1 on."""

    kind: str
    reason: str
    name: str = ""
    place: tuple[int, int] | None = None


def send(to: socket.socket, kind: bytes, body: bytes | memoryview) -> None:
    to.sendall(HEADER.pack(kind, len(body)))
    to.sendall(body)


def receive(of: socket.socket, bytes_max: int) -> Frame:
    """Waits for the next frame. Raises EOFError where the other side is gone, ValueError for more than it may send."""
    kind, size = HEADER.unpack(exactly(of, HEADER.size))
    if size > bytes_max:
        raise ValueError(f"{size} bytes are more than {bytes_max}")
    return Frame(kind, exactly(of, size))


def exactly(of: socket.socket, size: int) -> bytearray:
    """Raises EOFError where the other side is gone before so many bytes came."""
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = of.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return content
