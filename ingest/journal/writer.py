"""What the writer of a journal does next: which group commits go into which object, and what has landed. Pure.

Of `Landing.FOREIGN` nothing may follow but the end of the process: two write one journal.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from siltlog.infra.store.store import Put
from siltlog.ingest.journal.codec import Header, ObjectKind, same_object

IN_FLIGHT_MAX = 8
"""How many objects may be under way beyond the last that landed, to a store far away."""
IN_FLIGHT_LOCAL_MAX = 1
"""The same on a disk of this machine, which an object costs more than its syncs: what comes meanwhile goes together."""
OBJECT_BYTES_MAX = 8 * 1024 * 1024
"""An object that has so much goes without waiting for its time; one group commit that is larger goes whole."""

T = TypeVar("T")


class Landing(Enum):
    """What came of an attempt to put an object."""

    LANDED = "landed"
    AGAIN = "again"
    """Nobody has the number, as far as is known: the same content is put again."""
    SEALED = "sealed"
    FOREIGN = "foreign"


def landing(own: Header, put: Put, found: Header | None) -> Landing:
    """Judges an attempt by its answer and, unless that was WRITTEN, by the header that stands under the number."""
    if put is Put.WRITTEN:
        return Landing.LANDED
    if found is None:
        return Landing.AGAIN
    if same_object(own, found):
        return Landing.LANDED
    return Landing.SEALED if found.kind is ObjectKind.SEAL else Landing.FOREIGN


class Shipment(NamedTuple, Generic[T]):
    """The content of one number, fixed."""

    number: int
    first: int
    groups: tuple[T, ...]


class Foretold(NamedTuple):
    """What the next object will be, should the next group go into it alone and at once."""

    number: int
    first: int


class Writer(Generic[T]):
    """Groups are taken in the order in which they come, whole, and land in that order."""

    def __init__(self, interval_seconds: float, in_flight_max: int) -> None:
        """Expects a journal whose object 0 has landed. `in_flight_max` objects may be under way beyond the last that
        landed."""
        self._interval_seconds = interval_seconds
        self._in_flight_max = in_flight_max
        self._waiting: deque[tuple[T, int]] = deque()
        self._waiting_bytes = 0
        self._taken_seconds = float("-inf")
        self._flying: dict[int, Shipment[T]] = {}
        self._answered: set[int] = set()
        self._firsts: dict[int, int] = {}
        self._next = 1
        self._landed = 1
        self._first = 0
        self._landed_first = 0
        self.first_told = 0
        """The highest `first` that an object says."""
        self._deleted = 0
        self.sealed = False

    @property
    def landed(self) -> int:
        """Every number below is known to be in the store."""
        return self._landed

    @property
    def next_number(self) -> int:
        return self._next

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._flying

    def add(self, group: T, nbytes: int) -> None:
        assert not self.sealed, "nothing goes into a sealed journal"
        self._waiting.append((group, nbytes))
        self._waiting_bytes += nbytes

    def due_at(self) -> float | None:
        """When the next object may go; None while there is nothing to go, or too much is under way."""
        if not self._waiting or self._next - self._landed >= self._in_flight_max or self.sealed:
            return None
        if self._waiting_bytes >= OBJECT_BYTES_MAX:
            return float("-inf")
        return self._taken_seconds + self._interval_seconds

    def foretold(self) -> Foretold | None:
        """What the object of a group that came now would be; None where others go with it, or it has to wait."""
        if self._interval_seconds or self._waiting or self._next - self._landed >= self._in_flight_max or self.sealed:
            return None
        return Foretold(self._next, self.first)

    def take(self, now_seconds: float) -> Shipment[T] | None:
        """The next object, whose content stays what it is however often it is put; None while none is due."""
        due_at = self.due_at()
        if due_at is None or now_seconds < due_at:
            return None
        groups: list[T] = []
        nbytes = 0
        while self._waiting and (not groups or nbytes + self._waiting[0][1] <= OBJECT_BYTES_MAX):
            group, size = self._waiting.popleft()
            groups.append(group)
            nbytes += size
        self._waiting_bytes -= nbytes
        self._taken_seconds = now_seconds
        # What has not landed may still be cut off: a successor that begins behind it would take a hole for the end.
        shipment = Shipment(self._next, self.first, tuple(groups))
        self._flying[self._next] = shipment
        self._firsts[self._next] = self.first_told = shipment.first
        self._next += 1
        return shipment

    def landed_one(self, number: int) -> list[Shipment[T]]:
        """Notes that `number` is in the store; what has landed by that, in order: nothing behind one that has not."""
        self._answered.add(number)
        landed: list[Shipment[T]] = []
        while self._landed in self._answered:
            self._answered.discard(self._landed)
            landed.append(self._flying.pop(self._landed))
            self._landed_first = self._firsts.pop(self._landed)
            self._landed += 1
        return landed

    def met_seal(self) -> None:
        """Nothing that has not landed ever will, as far as anybody relies on it."""
        self.sealed = True
        self._flying.clear()
        self._answered.clear()
        self._waiting.clear()
        self._waiting_bytes = 0

    def flushed_below(self, number: int) -> None:
        """Everything in the objects below `number` is in tables, or beside them."""
        self._first = max(self._first, number)

    @property
    def first(self) -> int:
        """What the next object would say."""
        return min(self._first, self._landed - 1)

    def has_below(self, number: int) -> bool:
        """Whether an object below `number` may be there, beside the first, which has no records."""
        return number > 1 and self._deleted < number

    def deletable(self) -> Sequence[int]:
        """The numbers that may go, to be deleted one after the other in this order."""
        return range(self._deleted, self._landed_first)

    def deleted(self, number: int) -> None:
        assert number == self._deleted < self._landed_first, "numbers go in rising order, below a first that landed"
        self._deleted = number + 1
