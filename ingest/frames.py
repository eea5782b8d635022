"""Where records lie in the write-ahead log, compactly: an outage of the tables' store makes millions of frames."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from siltlog.ingest.wal import Location

_NUMBERS = 1 + len(Location._fields)


class Frames(Sequence[tuple[int, Location]]):
    """(first offset, place) of frames, oldest first, in 40 bytes each; a tuple of tuples takes ten times as much."""

    __slots__ = ("_numbers",)

    def __init__(self, frames: Iterable[tuple[int, Location]] = ()) -> None:
        self._numbers = array("q")
        for first_offset, place in frames:
            self.add(first_offset, place)

    def add(self, first_offset: int, place: Location) -> None:
        self._numbers.append(first_offset)
        self._numbers.extend(place)

    def join(self, others: Sequence[tuple[int, Location]]) -> None:
        """Puts `others` after these."""
        if isinstance(others, Frames):
            self._numbers.extend(others._numbers)
        else:
            for first_offset, place in others:
                self.add(first_offset, place)

    def __len__(self) -> int:
        return len(self._numbers) // _NUMBERS

    def __iter__(self) -> Iterator[tuple[int, Location]]:
        numbers = self._numbers
        for at in range(0, len(numbers), _NUMBERS):
            yield numbers[at], Location(*numbers[at + 1 : at + _NUMBERS])

    @overload
    def __getitem__(self, index: int) -> tuple[int, Location]: ...
    @overload
    def __getitem__(self, index: slice) -> "Frames": ...
    def __getitem__(self, index: int | slice) -> "tuple[int, Location] | Frames":
        if isinstance(index, slice):
            return Frames(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index] * _NUMBERS
        return self._numbers[at], Location(*self._numbers[at + 1 : at + _NUMBERS])
