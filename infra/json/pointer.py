"""JSON Pointers (RFC 6901) into the text of JSON values."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

POINTER_CHARS_MAX = 1_000
POINTER_TOKENS_MAX = 32
_CACHED_TOKENS_MAX = 256
_ESCAPED = re.compile("~(.)?", re.DOTALL)
_ESCAPES = {"0": "~", "1": "/"}
_INDEX = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)
_UNNAMEABLE = re.compile('[\\x00-\\x1f"\\\\]')
"""Characters that msgspec takes in no field's name."""

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
Step = Callable[[bytes | msgspec.Raw], msgspec.Raw | None]


class JsonPointer:
    """Finds the text of what is at one place of JSON values."""

    def __init__(self, text: str) -> None:
        """Raises ValueError, which says what is wrong with it, where `text` is no JSON Pointer."""
        self.text = text
        self.tokens = _tokens(text)
        self._steps = [_step(token) for token in self.tokens]

    def find(self, value: bytes | msgspec.Raw) -> bytes | msgspec.Raw | None:
        """The text of what is there, with the white space around it; None where nothing is.

        Of what is passed over no more is looked at than where it ends. Raises msgspec.DecodeError for what is no JSON,
        and RecursionError.
        """
        found: bytes | msgspec.Raw | None = value
        for step in self._steps:
            assert found is not None
            found = step(found)
            if found is None:
                return None
        return found


def is_index(token: str) -> bool:
    """Whether a part of a pointer may be a place in an array."""
    return _INDEX.fullmatch(token) is not None


def _tokens(text: str) -> list[str]:
    wrong = ""
    if text and not text.startswith("/"):
        wrong = "it must be empty or begin with /"
    elif len(text) > POINTER_CHARS_MAX or text.count("/") > POINTER_TOKENS_MAX:
        wrong = f"it may have {POINTER_TOKENS_MAX} parts and {POINTER_CHARS_MAX} characters"
    elif any(match[1] not in _ESCAPES for match in _ESCAPED.finditer(text)):
        wrong = "~ is written ~0, and / within a name ~1"
    if wrong:
        raise ValueError(f"{text[:80]!r} is not a JSON Pointer such as /user/id: {wrong}")
    return [_ESCAPED.sub(lambda match: _ESCAPES[match[1]], token) for token in text.split("/")[1:]]


@lru_cache(_CACHED_TOKENS_MAX)
def _step(token: str) -> Step:
    """Makes the step from a value's text to the text of what `token` names in it; None when that is not there."""
    if is_index(token) or _UNNAMEABLE.search(token):
        return lambda value: _looked_up(value, token)
    # A struct of the one member: the others are passed over without being made.
    fields: list[Any] = [("found", msgspec.Raw, msgspec.field(default=msgspec.Raw(), name=token))]
    decode = msgspec.json.Decoder(msgspec.defstruct("Member", fields, gc=False)).decode

    def member(value: bytes | msgspec.Raw) -> msgspec.Raw | None:
        try:
            found: msgspec.Raw = decode(value).found  # type: ignore[attr-defined]
        except msgspec.ValidationError:
            # No object.
            return None
        return found if found else None

    return member


def _looked_up(value: bytes | msgspec.Raw, token: str) -> msgspec.Raw | None:
    try:
        return _decode_members(value).get(token)
    except msgspec.ValidationError:
        pass
    try:
        items = _decode_items(value)
    except msgspec.ValidationError:
        return None
    index = int(token) if is_index(token) else len(items)
    return items[index] if index < len(items) else None
