"""JSON Pointers as RFC 6901 has them, and the keys they find."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.infra.errors import Refused
from siltlog.infra.json.pointer import POINTER_CHARS_MAX, POINTER_TOKENS_MAX
from siltlog.ingest.records.pointer import KeyPointer

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.sampled_from(
    ["", "0", "1", "01", "-", "~", "/", "a/b", "m~n", 'q"', "b\\", "\n", "é"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
MISSING = object()


def looked_up(value: Any, tokens: list[str]) -> Any:
    """The same by Python's own JSON."""
    for token in tokens:
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token in [str(index) for index in range(len(value))]:
            value = value[int(token)]
        else:
            return MISSING
    return value


@settings(max_examples=250, deadline=None)
@given(VALUES, st.data(), st.sampled_from([None, 2]))
def test_as_python_looks_it_up(value: Any, data: st.DataObject, indent: int | None) -> None:
    tokens: list[str] = []
    at = value
    while isinstance(at, (dict, list)) and data.draw(st.booleans()):
        there = list(at) if isinstance(at, dict) else [str(index) for index in range(len(at))]
        tokens.append(data.draw(st.sampled_from(there) if there else NAMES) if data.draw(st.integers(0, 9)) else "x")
        at = looked_up(at, tokens[-1:])
    text = json.dumps(value, indent=indent, ensure_ascii=data.draw(st.booleans()))
    pointer = KeyPointer("".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens))
    wanted = looked_up(value, tokens)
    if wanted is MISSING or wanted is None or isinstance(wanted, (dict, list)):
        with pytest.raises(ValueError, match="key_from="):
            pointer.key(text.encode())
    else:
        key = pointer.key(text.encode())
        assert key == (wanted if isinstance(wanted, str) else json.dumps(wanted)).encode()


@pytest.mark.parametrize(
    ("pointer", "value", "key"),
    [
        ("/a", b'{"a": 1.0e2}', b"1.0e2"),
        ("/a", b'{"a": "\\u00e9\\n"}', "é\n".encode()),
        ("/a", b'{"\\u0061": true}', b"true"),
        ("/a", b'{"a": 1, "a": 2}', b"2"),
        ("", b' "x" ', b"x"),
        ("", b" 5\t", b"5"),
        ("/0", b'{"0": "member"}', b"member"),
        ("/0", b'["item"]', b"item"),
    ],
)
def test_the_text_of_a_key(pointer: str, value: bytes, key: bytes) -> None:
    assert KeyPointer(pointer).key(value) == key


@pytest.mark.parametrize(
    "text", ["a", "user/id", "/~", "/~2", "/a~", "/" * (POINTER_TOKENS_MAX + 1), "/" + "a" * POINTER_CHARS_MAX]
)
def test_what_is_no_pointer(text: str) -> None:
    with pytest.raises(Refused) as caught:
        KeyPointer(text)
    assert (caught.value.error_code, caught.value.members["parameter"]) == ("invalid_parameter", "key_from")
