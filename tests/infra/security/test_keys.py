import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.security.keys import ApiKey, fits, hash_of, make_key, read_key

HASH_KEY = bytes(range(32))


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32))
def test_a_key_is_read_as_it_was_made(id_bytes: bytes, secret_bytes: bytes) -> None:
    key = make_key(lambda count: {16: id_bytes, 32: secret_bytes}[count])
    text = key.text()
    assert len(text) == 67
    assert read_key(text) == key
    assert fits(key, hash_of(key, HASH_KEY), HASH_KEY)


@given(st.integers(0, 66), st.characters(codec="ascii"))
def test_a_key_with_one_other_character_is_none(at: int, other: str) -> None:
    text = make_key(os.urandom).text()
    changed = text[:at] + other + text[at + 1 :]
    assert (read_key(changed) is None) is (changed != text)


@pytest.mark.parametrize(
    "text", ["", "silt_", "Bearer x", "silt_" + "0" * 62, "silt_" + "0" * 12 + "_" + "0" * 49 + "\n"]
)
def test_what_is_no_key(text: str) -> None:
    assert read_key(text) is None


def test_two_keys_differ() -> None:
    one, other = make_key(os.urandom), make_key(os.urandom)
    assert one.key_id != other.key_id
    assert not fits(other, hash_of(one, HASH_KEY), HASH_KEY)
    assert not fits(one, hash_of(one, HASH_KEY), bytes(32))


def test_a_key_does_not_show_its_secret() -> None:
    key = ApiKey("A" * 12, "s" * 43)
    assert "s" * 43 not in repr(key)
    assert "s" * 43 not in f"{key}"
