"""A member within JSON values that is to equal something: a JSON Pointer (RFC 6901), and the value looked for."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.infra.json.pointer import JsonPointer, is_index

_PLAIN = re.compile(r"[^\"\\\x00-\x1f]*")


class Member:
    """Tells values in which the member at a pointer equals a JSON value. Used on any thread."""

    def __init__(self, path: str, equals: Any) -> None:
        """Raises ValueError, with a sentence, for what is no JSON Pointer or nests too deeply."""
        self._pointer = JsonPointer(path)
        self._equals = equals
        self._needles = _needles(self._pointer.tokens, equals)
        try:
            is_same(equals, equals)
        except RecursionError:
            raise ValueError("equals is nested too deeply to be compared") from None

    def narrowed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch`, which has the column `value` (binary), that may be wanted, by Arrow alone.

        A name or a text stands in JSON as it is, or with a backslash somewhere.
        """
        values = batch.column("value")
        plain = pc.is_valid(values)
        for needle in self._needles:
            plain = pc.and_(plain, pc.match_substring(values, needle))
        if self._needles:
            plain = pc.or_(plain, pc.match_substring(values, b"\\"))
        return batch.filter(plain, null_selection_behavior="drop")

    def is_in(self, value: bytes) -> bool:
        """Whether `value` is JSON that has it; what is no JSON, or nests too deeply to be read, has nothing."""
        try:
            text = self._pointer.find(value)
            return text is not None and is_same(msgspec.json.decode(text), self._equals)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False


def is_same(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal: numbers by their value, objects whatever the order of their members."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_same(found[name], wanted[name]) for name in wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    return bool(found == wanted)


def _needles(tokens: Sequence[str], equals: Any) -> list[bytes]:
    """Bytes that stand in every wanted value without a backslash; an index may stand for a place in an array."""
    texts = [token for token in tokens if not is_index(token)]
    if isinstance(equals, str):
        texts.append(equals)
    needles = [f'"{text}"'.encode() for text in texts if _PLAIN.fullmatch(text)]
    if equals is None or isinstance(equals, bool):
        needles.append(msgspec.json.encode(equals))
    return needles
