"""The demo's book-keeping must notice every way in which records can go wrong."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siltlog.demo.ledger import Ledger, compare, out_of_order, value_hashes

places = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**40)), unique=True, max_size=50)


def ledger(rows: list[tuple[int, int]], values: list[bytes] | None = None) -> Ledger:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Ledger(columns[:, 0], columns[:, 1], value_hashes(values or [repr(row).encode() for row in rows]))


@given(places, st.randoms(use_true_random=False))
def test_the_same_records_in_any_order_agree(rows: list[tuple[int, int]], random: "np.random.Generator") -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    difference = compare(ledger(rows), ledger(shuffled))
    assert (difference.missing, difference.unknown, difference.altered, difference.repeated) == (0, 0, 0, 0)


@given(places, places)
def test_differences_are_those_of_sets(written: list[tuple[int, int]], read: list[tuple[int, int]]) -> None:
    difference = compare(ledger(written), ledger(read + read[:3]))
    assert difference.missing == len(set(written) - set(read))
    assert difference.unknown == len(set(read) - set(written))
    assert difference.repeated == len(read[:3])
    assert difference.altered == 0


def test_other_bytes_at_the_same_offset_are_noticed() -> None:
    difference = compare(ledger([(0, 0), (0, 1)], [b"a", b"b"]), ledger([(0, 1), (0, 0)], [b"b", b"c"]))
    assert difference.altered == 1


def test_an_offset_given_twice_is_not_distinct() -> None:
    assert ledger([(0, 1), (1, 1), (0, 1)]).distinct == 2


def test_order_is_per_partition() -> None:
    assert out_of_order(ledger([(0, 0), (1, 0), (0, 1), (1, 5), (0, 7)])) == 0
    assert out_of_order(ledger([(0, 1), (1, 0), (0, 0), (0, 2), (1, 0)])) == 2


def test_hashes_are_those_of_spark() -> None:
    # select xxhash64(cast('flights' as binary))
    assert value_hashes([b"", b"flights"]).tolist() == [-7444071767201028348, value_hashes([b"flights"])[0]]
    assert ledger([(0, 0), (0, 1)], [b"", b""]).hash_sum == 2 * -7444071767201028348
