"""Reckons how much the log may still take: pure arithmetic over segments, exact and on the safe side."""

from siltlog.ingest.wal.segment import file_bytes_for, segment_room


class Budget:
    """Counts room in the segment that is planned to be written and in those that may still come after it.

    A submit goes into one segment whole, so up to one submit's size is lost at the end of each. `reserve` allows for
    the worst of that: what it granted always finds room in the segments of the budget, in whatever order it comes and
    however it is joined, unless the state has grown since. Files count by their bytes, since not all are of the usual
    size. One segment of the budget is kept for what nobody reserves: control frames, states, the one made ahead. Not
    thread-safe; the log's lock guards it.
    """

    def __init__(self, *, segment_bytes: int, bytes_max: int, submit_bytes_max: int) -> None:
        self.segment_bytes = segment_bytes
        self._submit_bytes_max = submit_bytes_max
        self.reconfigure(bytes_max)
        self.file_bytes = 0
        """The files of live segments, those included that submits not yet written will open."""
        self._planned_bytes = 0
        """The file of the planned segment, which is the newest."""
        self.room = 0
        """The bytes that the planned segment has left; a little below 0 at worst, by one marker."""
        self.state_bytes = 0
        """The bytes of the newest state, with which the next segment will begin."""
        self.reserved_bytes = 0

    def reconfigure(self, bytes_max: int) -> None:
        """What was granted stays granted: with less than is used, nothing more is until segments were given back."""
        self.file_bytes_max = max(bytes_max // self.segment_bytes - 1, 1) * self.segment_bytes

    def begin(self, size_bytes: int, state_bytes: int) -> None:
        """The next segment is planned, in a file of `size_bytes`, with a state that takes `state_bytes`."""
        assert size_bytes >= self.segment_bytes, "no file is smaller than usual"
        self.file_bytes += size_bytes
        self._planned_bytes = size_bytes
        self.state_bytes = state_bytes
        self.room = segment_room(size_bytes) - state_bytes

    def give_back(self, file_bytes: int) -> None:
        """Segments that others follow are gone."""
        self.file_bytes -= file_bytes

    def used_bytes(self) -> int:
        return self.file_bytes - max(self.room, 0)

    def free_bytes(self, segments_ready: int | None) -> int:
        """All that is left beside what is reserved. `segments_ready`: how many files exist when no more can be made."""
        room, segments = self._left(segments_ready)
        return max(room + segments * self._fresh_room() - self.reserved_bytes, 0)

    def reserve(self, size: int, segments_ready: int | None) -> bool:
        room, segments = self._left(segments_ready)
        fresh = self._fresh_room()
        most = self._submit_bytes_max
        # One fresh segment takes all that does not fit here; over several, each may lose nearly a submit at its end.
        surely = max(
            room,
            fresh if segments else 0,
            max(room - most, 0) + segments * max(fresh - most, 0),
        )
        if self.reserved_bytes + size > surely and not self._takes_larger(size, segments, segments_ready):
            return False
        self.reserved_bytes += size
        return True

    def _takes_larger(self, size: int, segments: int, segments_ready: int | None) -> bool:
        """Whether `size`, with nothing beside it, finds room in a segment that is larger than usual."""
        if self.reserved_bytes or segments_ready is not None:
            return False
        return file_bytes_for(self.state_bytes + size, self.segment_bytes) <= segments * self.segment_bytes

    def unreserve(self, size: int) -> None:
        assert size <= self.reserved_bytes
        self.reserved_bytes -= size

    def _left(self, segments_ready: int | None) -> tuple[int, int]:
        # One that is all there is cannot be given back before another follows it: were it too large for that, the log
        # would take nothing any more.
        alone = self.file_bytes == self._planned_bytes
        taken = self.segment_bytes if alone else self.file_bytes
        segments = (self.file_bytes_max - taken) // self.segment_bytes
        room = max(self.room, 0) if segments >= 0 else 0
        if segments_ready is not None:
            segments = min(segments, segments_ready)
        return room, max(segments, 0)

    def _fresh_room(self) -> int:
        return max(segment_room(self.segment_bytes) - self.state_bytes, 0)
