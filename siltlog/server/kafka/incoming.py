"""What has come on a connection of a client of Kafka and is no frame yet."""

from collections.abc import Callable

import numpy as np

from siltlog.infra.http.memory import SMALL_BYTES

LENGTH_BYTES = 4
READ_BYTES_MAX = 256 * 1024
"""So much is read at once: what there is room for is asked in between."""
OWN_BYTES_MAX = 2 * 1024 * 1024
"""Longer frames are gathered like small ones: from 4 MiB on numpy asks for huge pages, and a byte would take 2 MiB."""
OWN_SHARE = 8
"""Once this part of a large frame has come, there is memory for all of it: who announces much has to send some."""
Frame = bytes | memoryview


def scratch() -> memoryview:
    """The memory into which all connections of an event loop read what has no memory of its own: each takes out at once
    what came."""
    return memoryview(bytearray(SMALL_BYTES))


class Incoming:
    """Frames, in the order in which they come.

    Most are gathered, and copied once they are whole. A large one is read to where it stays, but for its beginning.
    """

    def __init__(self, scratch: memoryview, is_too_long: Callable[[int], bool]) -> None:
        self._scratch = scratch
        self._is_too_long = is_too_long
        self._gathered = bytearray()
        self._large: memoryview | None = None
        """The first frame that was not taken, without its length, if it is large; some of it may still be to come."""
        self._filled = 0
        """So much of that has come."""

    @property
    def nbytes(self) -> int:
        """What has come and was not taken."""
        large = 0 if self._large is None else LENGTH_BYTES + self._filled
        return large + len(self._gathered)

    def room(self) -> memoryview:
        """Where the next bytes go; `came` is told of them before another connection reads."""
        large, filled = self._large, self._filled
        return self._scratch if large is None or filled == len(large) else large[filled : filled + READ_BYTES_MAX]

    def came(self, nbytes: int) -> None:
        if self._large is not None and self._filled < len(self._large):
            self._filled += nbytes
            return
        self._gathered += self._scratch[:nbytes]
        self._make_room()

    def due(self) -> int | None:
        """The length of the first frame, once that is whole, or too long to be waited for."""
        if self._large is not None:
            length, there = len(self._large), self._filled
        else:
            length, there = self._next()
            if there < 0:
                return None
        return length if there >= length or self._is_too_long(length) else None

    def take(self) -> Frame:
        """Takes the first frame, which is whole."""
        frame: Frame
        if self._large is not None:
            frame = self._large.toreadonly()
            self._large = None
        else:
            end = LENGTH_BYTES + self._next()[0]
            frame = bytes(memoryview(self._gathered)[LENGTH_BYTES:end])
            del self._gathered[:end]
        self._make_room()
        return frame

    def clear(self) -> None:
        """Forgets all that came."""
        self._gathered.clear()
        self._large = None

    def _next(self) -> tuple[int, int]:
        """The length of the frame that was gathered first, and how much of it has come; below zero that is too little
        to know its length."""
        return int.from_bytes(self._gathered[:LENGTH_BYTES]), len(self._gathered) - LENGTH_BYTES

    def _make_room(self) -> None:
        """Has the rest of the frame that was gathered first come to where it stays, if that is large."""
        if self._large is not None or len(self._gathered) * OWN_SHARE < SMALL_BYTES:
            return
        length, there = self._next()
        if not SMALL_BYTES < length <= OWN_BYTES_MAX or self._is_too_long(length):
            return
        if not length <= there * OWN_SHARE < length * OWN_SHARE:
            return
        # Other than that of a bytearray this memory is not written to before something comes.
        large = np.empty(length, np.uint8).data
        large[:there] = memoryview(self._gathered)[LENGTH_BYTES:]
        self._gathered.clear()
        self._large, self._filled = large, there
