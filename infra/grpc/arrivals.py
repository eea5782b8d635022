"""What has come on a connection of gRPC and nobody has taken yet, by the frames that the client and the server send.

Whoever takes a message sees it unpacked. Counted by that, a compressed one would make room for what nobody counts, so
messages are measured on their way. Frames are those of RFC 9113, and messages in them those of "gRPC over HTTP2". Pure.
"""

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush

PREFACE_BYTES = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
FRAME_HEAD_BYTES = 9
MESSAGE_HEAD_BYTES = 5
"""A byte that says whether it is compressed, and its length."""
DATA, HEADERS, RST_STREAM = 0, 1, 3
END_STREAM, PADDED = 1, 8
_LENGTH_UNKNOWN = -1


Part = tuple[int, int, memoryview, bool]
"""A part of a frame, or all of it: its kind, its stream, its payload without padding, and whether with it who sent it
has ended the stream."""


class Frames:
    """Tells the frames of one direction apart, wherever they were cut."""

    def __init__(self, skipped: int = 0) -> None:
        """`skipped` bytes come before the first."""
        self._skipped = skipped
        self._head = b""
        self._kind = self._stream = 0
        self._ends_stream = False
        self._left = self._content = 0
        """What is left of the present frame, and of that before its padding."""

    def parts(self, data: bytes) -> Iterator[Part]:
        view = memoryview(data)
        at = min(self._skipped, len(data))
        self._skipped -= at
        while True:
            if self._left == 0:
                head = self._head + data[at : at + FRAME_HEAD_BYTES - len(self._head)]
                at += len(head) - len(self._head)
                self._head = head
                if len(head) < FRAME_HEAD_BYTES:
                    return
                self._begin(head)
            elif at == len(data):
                return
            payload = view[at : at + self._left]
            at += len(payload)
            payload = self._unpadded(payload)
            yield self._kind, self._stream, payload, self._ends_stream and self._left == 0

    def _begin(self, head: bytes) -> None:
        self._head = b""
        self._left = self._content = int.from_bytes(head[:3])
        self._kind, flags = head[3], head[4]
        self._stream = int.from_bytes(head[5:]) & 0x7FFF_FFFF
        self._ends_stream = self._kind == RST_STREAM or (self._kind in (DATA, HEADERS) and bool(flags & END_STREAM))
        if self._kind == DATA and flags & PADDED:
            self._content = _LENGTH_UNKNOWN

    def _unpadded(self, payload: memoryview) -> memoryview:
        self._left -= len(payload)
        if self._content == _LENGTH_UNKNOWN:
            if not payload:
                return payload
            payload, padding = payload[1:], payload[0]
            self._content = max(self._left + len(payload) - padding, 0)
        payload = payload[: self._content]
        self._content -= len(payload)
        return payload


class _Coming:
    """The message that is on its way on a stream."""

    __slots__ = ("came", "head")

    def __init__(self) -> None:
        self.head = b""
        self.came = 0
        """How many of its bytes have come, its head among them."""

    def take(self, payload: memoryview) -> int:
        """Takes what is its own of `payload`; how many bytes."""
        if len(self.head) < MESSAGE_HEAD_BYTES:
            self.head += bytes(payload[: MESSAGE_HEAD_BYTES - len(self.head)])
        taken = min(len(payload), self.size - self.came)
        self.came += taken
        return taken

    @property
    def size(self) -> int:
        """All its bytes, or those of its head until that is there."""
        head = self.head
        return MESSAGE_HEAD_BYTES + (int.from_bytes(head[1:]) if len(head) == MESSAGE_HEAD_BYTES else 0)

    @property
    def is_whole(self) -> bool:
        return len(self.head) == MESSAGE_HEAD_BYTES and self.came == self.size

    @property
    def is_packed(self) -> bool:
        return self.head[0] != 0


class Arrivals:
    """The messages of one connection. Where a client breaks HTTP/2 counts mean nothing, and the server ends it."""

    def __init__(self) -> None:
        self.nbytes = 0
        """What has come of messages that nobody has taken."""
        self.steps = 0
        """How many frames and messages were told apart of what the client has sent."""
        self._client, self._server = Frames(PREFACE_BYTES), Frames()
        self._coming: dict[int, _Coming] = {}
        self._open: set[int] = set()
        """The streams that the server may still read."""
        self._last = 0
        """The stream that was opened last: a later one has a higher number."""
        self._whole: Counter[int] = Counter()
        """How many messages of each size have come and wait to be taken."""
        self._sizes: list[int] = []
        """A heap of the sizes in `_whole`; some that are there no more are among them."""
        self._packed = False
        """Whether any that waits may be compressed."""

    def came(self, data: bytes) -> None:
        """Takes in what the client has sent."""
        for kind, stream, payload, ends in self._client.parts(data):
            self.steps += 1
            if kind == HEADERS and stream > self._last:
                self._open.add(stream)
                self._last = stream
            elif kind == DATA and stream in self._open:
                self._data(stream, payload)
            if ends:
                self._drop(stream)
                if kind == RST_STREAM:
                    self._close(stream)

    def sent(self, data: bytes) -> None:
        """Takes in what the server has sent. It keeps nothing of a stream that it has ended."""
        for _, stream, _, ends in self._server.parts(data):
            if ends:
                self._drop(stream)
                self._close(stream)

    def taken(self, nbytes: int) -> None:
        """Somebody has taken a message, which has `nbytes` unpacked. Where any that waits may be compressed, it counts
        as the smallest of them: that is never more than it took."""
        size = self._smallest() if self._packed else MESSAGE_HEAD_BYTES + nbytes
        if self._whole[size]:
            self._whole[size] -= 1
            self.nbytes -= size
            if not self._whole[size]:
                del self._whole[size]
            if not self._whole:
                self._forget_whole()

    def _data(self, stream: int, payload: memoryview) -> None:
        while payload:
            coming = self._coming.get(stream)
            if coming is None:
                coming = self._coming[stream] = _Coming()
            taken = coming.take(payload)
            self.steps += 1
            self.nbytes += taken
            payload = payload[taken:]
            if coming.is_whole:
                del self._coming[stream]
                self._wait(coming.size, packed=coming.is_packed)

    def _wait(self, size: int, *, packed: bool) -> None:
        if not self._whole[size]:
            heappush(self._sizes, size)
        self._whole[size] += 1
        self._packed = self._packed or packed

    def _smallest(self) -> int:
        while self._sizes and self._sizes[0] not in self._whole:
            heappop(self._sizes)
        return self._sizes[0] if self._sizes else 0

    def _drop(self, stream: int) -> None:
        """Forgets the message that was on its way."""
        coming = self._coming.pop(stream, None)
        if coming is not None:
            self.nbytes -= coming.came

    def _close(self, stream: int) -> None:
        self._open.discard(stream)
        if not self._open:
            # Nobody is left who would take what waits.
            self.nbytes -= sum(size * count for size, count in self._whole.items())
            self._forget_whole()

    def _forget_whole(self) -> None:
        self._whole.clear()
        self._sizes.clear()
        self._packed = False
