"""Futures that wait for a partition to come as far as an offset."""

import asyncio


class Waiters:
    """The waiters for one position that only moves forward. A future that is cancelled or times out is let go of."""

    def __init__(self) -> None:
        self._offsets: dict[asyncio.Future[None], int] = {}

    def until(self, offset: int) -> "asyncio.Future[None]":
        """Done once everything below `offset` has come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offsets[future] = offset
        future.add_done_callback(self._gone)
        return future

    def reached(self, offset: int) -> None:
        """Everything below `offset` has come."""
        if not self._offsets:
            return
        for future in [future for future, end in self._offsets.items() if end <= offset]:
            del self._offsets[future]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        waiting, self._offsets = self._offsets, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    def __len__(self) -> int:
        return len(self._offsets)

    def _gone(self, future: "asyncio.Future[None]") -> None:
        self._offsets.pop(future, None)
