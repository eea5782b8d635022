"""Idempotency keys: found again whatever the body and the partition count, until they expire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.errors import Refused
from siltlog.ingest.producers.idempotency import KEY_CHARS_MAX, IdempotencyKey, KnownKeys, idempotency_key
from siltlog.ingest.producers.sequencer import is_key

TEXTS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40)


@given(TEXTS, TEXTS, st.lists(st.binary(max_size=5), max_size=3), st.lists(st.binary(max_size=5), max_size=3))
def test_keys_and_bodies_are_told_apart(one: str, other: str, said: list[bytes], says: list[bytes]) -> None:
    first, second = idempotency_key(one, *said), idempotency_key(other, *says)
    assert (first.key_hash == second.key_hash) == (one == other)
    assert (first.body_hash == second.body_hash) == (said == says)


@pytest.mark.parametrize("text", ["", "a\tb", "\x7f", "x" * (KEY_CHARS_MAX + 1)])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(Refused) as caught:
        idempotency_key(text, b"")
    assert (caught.value.error_code, caught.value.members) == (
        "invalid_parameter",
        {"parameter": names.HEADER_IDEMPOTENCY_KEY},
    )


def key(text: str, body: bytes = b"1") -> IdempotencyKey:
    return idempotency_key(text, body)


@pytest.mark.rule("E5")
def test_a_key_is_found_by_the_partition_count_of_its_first_request() -> None:
    known = KnownKeys()
    first = known.find(key("a"), 3, 0)
    assert is_key(first.producer_id) and names.name_problem(first.producer_id) is not None, "no user's id is like it"
    assert (first.partitions, first.keyless_partition) == (3, partition_of(b"a", 3))
    assert known.find(key("a"), 5, 0).partitions == 5, "nothing was published yet"
    known.remember(first.producer_id, 10)
    assert known.find(key("a"), 5, 10) == first
    with pytest.raises(Refused) as caught:
        known.find(key("a", b"2"), 5, 10)
    assert caught.value.error_code == "idempotency_key_reused"
    assert known.find(key("a", b"2"), 5, 11).partitions == 5, "it has expired"


def test_keys_expire_by_their_first_request_and_are_known_again_after_a_restart() -> None:
    known = KnownKeys()
    ids = [known.find(key(text), 1, 0).producer_id for text in "abc"]
    for now, producer_id in enumerate(ids):
        known.remember(producer_id, now)
        known.remember(producer_id, now + 100)
    assert (known.expire(1), len(known), known.is_known(ids[0]), known.is_known(ids[1])) == (1, 2, False, True)
    reused = known.find(key("b", b"2"), 1, 50).producer_id
    again = KnownKeys()
    again.load([(ids[2], 7), (reused, 6), (ids[1], 5)])
    assert again.find(key("b", b"2"), 9, 0).producer_id == reused
    with pytest.raises(Refused):
        again.find(key("b"), 9, 0)
    assert (again.expire(7), len(again)) == (1, 1)
