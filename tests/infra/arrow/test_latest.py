"""The last row of each key, whatever its hash."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from siltlog.infra.arrow import latest
from siltlog.infra.arrow.latest import COMPARED_ROWS, HASHED_ROWS, hashes_of, is_latest

Keys = Sequence[bytes | None]
KEYS = st.one_of(
    st.none(),
    # Few bytes, so that some are the same; lengths around those of a word.
    st.lists(st.sampled_from([0, 1]), max_size=3).map(bytes),
    st.tuples(st.sampled_from([7, 8, 9, 15, 16, 17, 40]), st.integers(0, 2)).map(lambda k: b"k" * k[0] + bytes([k[1]])),
)
SPLIT = st.lists(st.lists(KEYS, max_size=30), max_size=4)


def model(keys: Keys) -> list[bool]:
    last = {key: row for row, key in enumerate(keys)}
    return [key is None or last[key] == row for row, key in enumerate(keys)]


def array(keys: Keys) -> pa.Array:
    """A part of a larger one, as files and slices give it."""
    return pa.array([b"before", None, *keys, b"after"], pa.binary()).slice(2, len(keys))


def found(pieces: Sequence[Keys]) -> list[bool]:
    return list(is_latest([array(piece) for piece in pieces]).tolist())


@given(SPLIT)
@example([[]])
@example([[b""], [None], [b""]])
def test_the_last_row_of_each_key_is_found(pieces: list[Keys]) -> None:
    assert found(pieces) == model([key for piece in pieces for key in piece])


@pytest.mark.rule("K8")
@pytest.mark.parametrize("bits", [0, 1, 3])
@given(pieces=SPLIT)
@example(pieces=[[b"a", b"b", b"a"], [b"b", b"c", None, b"c", b"d"]])
def test_keys_whose_hashes_collide_are_told_apart(bits: int, pieces: list[Keys]) -> None:
    def few(keys: pa.Array) -> npt.NDArray[np.uint64]:
        return hashes_of(keys) & np.uint64(((1 << bits) - 1) << 64 - bits)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latest, "hashes_of", few)
        assert found(pieces) == model([key for piece in pieces for key in piece])


@pytest.mark.parametrize("rows", [HASHED_ROWS + 1, COMPARED_ROWS + 1, 2 * COMPARED_ROWS + 1])
def test_more_rows_than_are_taken_at_a_time(rows: int) -> None:
    """Each key twice, far apart, and the last row alone."""
    half = rows // 2
    keys = [b"%d" % (row % half) for row in range(rows - 1)] + [b"end"]
    wanted = [row >= half for row in range(rows)]
    assert found([keys[: half // 3], keys[half // 3 :]]) == wanted


@given(st.lists(KEYS, min_size=1, max_size=20))
def test_a_hash_goes_by_the_bytes_alone(keys: Keys) -> None:
    together = hashes_of(array(keys))
    for row, key in enumerate(keys):
        if key is not None:
            assert hashes_of(pa.array([key], pa.binary()))[0] == together[row]


def test_hashes_of_keys_that_are_alike_are_spread() -> None:
    keys = [b"key-%010d" % number for number in range(20_000)] + [b"x" * length for length in range(200)]
    hashes = hashes_of(pa.array(keys, pa.binary()))
    assert len(np.unique(hashes >> np.uint64(23))) == len(keys)
