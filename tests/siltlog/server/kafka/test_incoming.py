"""Frames come out as they went in, however they were cut on the way; where large ones are read to, and what is kept."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.http.memory import SMALL_BYTES
from siltlog.server.kafka.incoming import LENGTH_BYTES, OWN_BYTES_MAX, OWN_SHARE, READ_BYTES_MAX, Incoming, scratch

LONGEST = 3 * SMALL_BYTES
_SCRATCH = scratch()
"""One for all, as on an event loop."""
EDGES = (0, 1, SMALL_BYTES // OWN_SHARE, SMALL_BYTES - LENGTH_BYTES, SMALL_BYTES, SMALL_BYTES + 1, LONGEST)
lengths = st.sampled_from(EDGES) | st.integers(0, LONGEST)
cuts = st.sampled_from((1, LENGTH_BYTES, SMALL_BYTES // OWN_SHARE, SMALL_BYTES)) | st.integers(1, SMALL_BYTES)


def incoming(longest: int = LONGEST) -> Incoming:
    return Incoming(_SCRATCH, lambda length: length > longest)


def come(to: Incoming, said: memoryview) -> int:
    """Reads as an event loop does, as much as there is room for."""
    room = to.room()
    count = min(len(room), len(said))
    room[:count] = said[:count]
    to.came(count)
    return count


def whole(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH_BYTES) + frame


def numbered(number: int, length: int) -> bytes:
    return bytes([number % 251 + 1]) * length


@given(st.lists(lengths, max_size=6), st.lists(cuts, max_size=6), st.integers(1, 4))
def test_frames_come_out_as_they_went_in(sizes: list[int], pieces: list[int], taken_after: int) -> None:
    """They are taken at once, or when more has come."""
    frames = [numbered(number, size) for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(whole, frames)))
    came = incoming()
    found: list[bytes | memoryview] = []
    left = sum(len(whole(frame)) for frame in frames)
    for size, number in zip(itertools.cycle([*pieces, LONGEST]), itertools.count(1)):
        stream = stream[come(came, stream[:size]) :]
        assert came.nbytes == left - len(stream)
        while came.due() is not None and (not stream or number % taken_after == 0):
            found.append(came.take())
            left -= LENGTH_BYTES + len(found[-1])
        if not stream:
            break
    assert [bytes(frame) for frame in found] == frames
    assert all(memoryview(frame).readonly for frame in found)
    assert came.nbytes == left == 0


def test_what_follows_a_large_frame_waits_behind_it() -> None:
    frames = [numbered(1, LONGEST), b"next", numbered(2, LONGEST)]
    came = incoming()
    stream = memoryview(b"".join(map(whole, frames)))
    while stream:
        assert came.room()
        stream = stream[come(came, stream) :]
    assert [bytes(came.take()) for _ in frames] == frames


def test_a_large_frame_is_read_to_where_it_stays() -> None:
    frame = numbered(1, 3 * SMALL_BYTES)
    came = incoming()
    come(came, memoryview(whole(frame)[:SMALL_BYTES]))
    room = came.room()
    assert len(room) == len(whole(frame)) - SMALL_BYTES
    room[:] = whole(frame)[SMALL_BYTES:]
    came.came(len(room))
    found = came.take()
    assert bytes(found) == frame
    room[-1] = 9
    assert found[-1] == 9
    assert came.room() is _SCRATCH


def announced(length: int, come_bytes: int, longest: int = OWN_BYTES_MAX) -> Incoming:
    """A frame of which so much has come, with its length."""
    came = incoming(longest)
    said = memoryview(length.to_bytes(LENGTH_BYTES) + bytes(come_bytes - LENGTH_BYTES))
    while said:
        said = said[come(came, said) :]
    assert came.nbytes == come_bytes
    return came


def test_what_is_too_long_has_no_memory_of_its_own() -> None:
    came = announced(SMALL_BYTES + 1, SMALL_BYTES, longest=SMALL_BYTES)
    assert came.due() == SMALL_BYTES + 1
    assert came.room() is _SCRATCH


def test_what_is_too_long_by_now_is_not_waited_for() -> None:
    longest = LONGEST
    came = Incoming(_SCRATCH, lambda length: length > longest)
    come(came, memoryview(LONGEST.to_bytes(LENGTH_BYTES) + bytes(SMALL_BYTES)))
    assert came.due() is None and came.room() is not _SCRATCH
    longest = SMALL_BYTES
    assert came.due() == LONGEST


def test_who_announces_much_and_sends_little_is_given_no_memory() -> None:
    part = LENGTH_BYTES + OWN_BYTES_MAX // OWN_SHARE
    assert announced(OWN_BYTES_MAX, part - 1).room() is _SCRATCH
    assert announced(OWN_BYTES_MAX, part).room() is not _SCRATCH
    assert announced(OWN_BYTES_MAX + 1, OWN_BYTES_MAX, longest=2 * OWN_BYTES_MAX).room() is _SCRATCH


def test_no_more_is_read_at_once_than_may_be_counted_late() -> None:
    assert len(announced(OWN_BYTES_MAX, OWN_BYTES_MAX // 2).room()) == READ_BYTES_MAX


def test_what_is_cleared_is_gone() -> None:
    came = incoming()
    come(came, memoryview(whole(numbered(1, LONGEST))))
    came.clear()
    assert (came.nbytes, came.due()) == (0, None)
    come(came, memoryview(whole(b"next")))
    assert came.take() == b"next"
