"""Members within JSON values: pointers as RFC 6901 gives them, and that narrowing by Arrow loses nothing."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.searching.member import Member, is_same

RFC_6901 = {
    "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8,
}  # fmt: skip
"""The example of section 5."""
TEXTS = st.text(st.sampled_from('a/~"\\\u00e9\n0'), max_size=3)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | TEXTS
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", RFC_6901), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3),
        ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8),
    ],
)  # fmt: skip
def test_the_examples_of_the_rfc(path: str, found: Any) -> None:
    value = msgspec.json.encode(RFC_6901)
    assert Member(path, found).is_in(value)
    assert not Member(path, "another").is_in(value)


@pytest.mark.parametrize("path", ["/foo/2", "/foo/-", "/foo/00", "/foo/+1", "/foo/bar", "/none", "/a~1b/c", "/foo/١"])
def test_what_is_not_there_equals_nothing(path: str) -> None:
    assert not Member(path, None).is_in(msgspec.json.encode(RFC_6901))


@pytest.mark.parametrize("path", ["foo", "#/foo", "/a~", "/a~2b", "/a~\n"])
def test_what_is_no_pointer(path: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON Pointer"):
        Member(path, 1)


@pytest.mark.parametrize("value", [b"", b"{", b'{"a": 1} x', b"\xff", b'"' + b"\xc3" + b'"', b"[" * 100_000])
def test_what_is_no_json_has_nothing(value: bytes) -> None:
    assert not Member("", 1).is_in(value)


def test_numbers_are_equal_by_their_value_and_no_truth() -> None:
    assert is_same(1, 1.0)
    assert is_same({"a": [1, None], "b": "x"}, {"b": "x", "a": [1.0, None]})
    for found, wanted in (
        (True, 1),
        (0, False),
        ("1", 1),
        (None, False),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        ([], {}),
    ):
        assert not is_same(found, wanted)
        assert not is_same(wanted, found)


def test_a_value_to_compare_with_is_not_endlessly_deep() -> None:
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        Member("", deep)


def _pointers(document: Any, path: str = "") -> list[tuple[str, Any]]:
    found = [(path, document)]
    children = document.items() if isinstance(document, dict) else ()
    children = enumerate(document) if isinstance(document, list) else children
    for name, child in children:
        found += _pointers(child, f"{path}/{str(name).replace('~', '~0').replace('/', '~1')}")
    return found


@given(DOCUMENTS, st.data(), st.booleans())
def test_narrowing_loses_nothing_however_it_is_written(document: Any, data: st.DataObject, escaped: bool) -> None:
    path, equals = data.draw(st.sampled_from(_pointers(document)))
    text = msgspec.json.encode(document)
    if escaped:
        text = text.replace("é".encode(), b"\\u00e9").replace(b"a", b"\\u0061") if b"a" in text else text
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        text = msgspec.json.encode(document)  # an `a` of a word such as `false` was written otherwise
    batch = pa.record_batch({"value": pa.array([None, text, b"no"], pa.binary())})
    member = Member(path, equals)
    assert member.is_in(text)
    assert text in member.narrowed(batch).column("value").to_pylist()
    assert None not in member.narrowed(batch).column("value").to_pylist()


def test_most_values_are_told_by_arrow_alone() -> None:
    values = [b'{"user": {"id": 7}}', b'{"user": 7}', b'{"id": 7}', b"tea", None, b'{"us\\u0065r": {"id": 7}}']
    batch = pa.record_batch({"value": pa.array(values, pa.binary())})
    assert Member("/user/id", 7).narrowed(batch).column("value").to_pylist() == [values[0], values[5]]
