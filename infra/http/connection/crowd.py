"""The connections that are open: how many there may be, and what those hear that are too many."""

from collections.abc import Callable, Iterable
from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.share import Share
from siltlog.infra.http.drain_rate import DrainRate

KEEP_ALIVE_SECONDS = 75.0


class Crowd:
    def __init__(
        self,
        connections_max: int,
        clock: Clock,
        *,
        per_address_max: int = 0,
        stands_for_many: Callable[[str], bool] = lambda address: False,
        strangers_max: int | None = None,
    ) -> None:
        """`per_address_max` bounds those of one address; 0 does not. Of an address that stands for many, such as a
        proxy's, there may be any number. Of those on which nobody has said yet who they are there may be
        `strangers_max`; None: nobody has to."""
        self.open: set[Any] = set()
        self.excess = 0
        """How many of them are above the limit."""
        self.share = Share()
        self._soonest_seconds = KEEP_ALIVE_SECONDS
        self._stands_for_many = stands_for_many
        self.reconfigure(connections_max, per_address_max, strangers_max)
        self._strangers: set[Any] = set()
        self._of_address: dict[str, int] = {}
        self._clock = clock
        self._closed = DrainRate(clock.monotonic())

    def reconfigure(self, connections_max: int, per_address_max: int, strangers_max: int | None) -> None:
        """Holds for connections that begin from now on; those that are open stay, however many they are."""
        self._max = connections_max
        self._per_address_max = per_address_max
        self._strangers_max = strangers_max

    def joined(self, connection: Any, address: str) -> bool:
        """Counts a connection; True when it is one too many. `address` is empty on a socket of this machine."""
        self.open.add(connection)
        fits = True
        if self._counts(address):
            of_it = self._of_address[address] = self._of_address.get(address, 0) + 1
            fits = not 0 < self._per_address_max < of_it
        if self._strangers_max is not None and address:
            fits = fits and len(self._strangers) < self._strangers_max
        if fits and len(self.open) - self.excess <= self._max:
            if self._strangers_max is not None and address:
                self._strangers.add(connection)
            return False
        self.excess += 1
        return True

    def known(self, connection: Any) -> None:
        """Somebody has said on it who they are."""
        self._strangers.discard(connection)

    def is_stranger(self, connection: Any) -> bool:
        return connection in self._strangers

    def has_room_for(self, address: str, begun: Iterable[str]) -> bool:
        """Whether one more may begin at an address, besides those that have `begun`."""
        if self._per_address_max == 0 or not self._counts(address):
            return True
        under_way = sum(1 for other in begun if other == address)
        return self._of_address.get(address, 0) + under_way < self._per_address_max

    def _counts(self, address: str) -> bool:
        return address != "" and not self._stands_for_many(address)

    def looked_at(self, soonest_seconds: float) -> None:
        """The next of them that stays idle is closed in so long."""
        self._soonest_seconds = soonest_seconds

    def left(self, connection: Any, address: str, *, excess: bool) -> None:
        if connection in self.open and self._counts(address):
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
        self.open.discard(connection)
        self._strangers.discard(connection)
        self.excess -= excess
        self._closed.left(1, self._clock.monotonic())

    def full(self) -> SiltlogError:
        """The refusal for a connection that is one too many."""
        retry_ms = self._closed.retry_ms(1, self._clock.monotonic())
        of_address = ""
        if self._strangers_max is not None:
            of_address = f", or {self._strangers_max} on which nobody has said who they are"
        if self._per_address_max:
            of_address += f", or {self._per_address_max} from one address (SILT_CONNECTIONS_PER_IP_MAX)"
        return problem(
            "overloaded",
            f"{self._max} connections are open, which is the limit (SILT_CONNECTIONS_MAX){of_address}; use one "
            "connection for many requests, or try again later",
            retry_after_ms=retry_ms or max(int(self._soonest_seconds * 1000), 1),
        )
