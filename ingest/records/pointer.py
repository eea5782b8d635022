"""JSON Pointers (RFC 6901) into the text of JSON values: where `?key_from=` finds a record's key."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from siltlog.infra.errors import problem

POINTER_CHARS_MAX = 1_000
POINTER_TOKENS_MAX = 32
_CACHED_TOKENS_MAX = 256
_ESCAPED = re.compile("~(.)?", re.DOTALL)
_ESCAPES = {"0": "~", "1": "/"}
_INDEX = re.compile("0|[1-9][0-9]{0,8}", re.ASCII)
_UNNAMEABLE = re.compile('[\\x00-\\x1f"\\\\]')
"""Characters that msgspec takes in no field's name."""

_decode_text = msgspec.json.Decoder(str).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
Step = Callable[[bytes | msgspec.Raw], msgspec.Raw | None]


class JsonPointer:
    """Tells the key of a record by the text of its JSON value."""

    def __init__(self, text: str) -> None:
        """Raises Refused `invalid_parameter` where `text` is no JSON Pointer."""
        self.text = text
        self._steps = [_step(token) for token in _tokens(text)]

    def key(self, value: bytes | msgspec.Raw) -> bytes:
        """A string's text, the JSON text of a number or boolean. `value` must be valid JSON.

        Raises ValueError where there is nothing, or nothing that can be a key.
        """
        found: bytes | msgspec.Raw | None = value
        for step in self._steps:
            assert found is not None
            found = step(found)
            if found is None:
                raise ValueError(f"its value has nothing at key_from={self.text}")
        assert found is not None
        content = bytes(found).strip(b" \t\r\n")
        match content[0]:
            case 0x22:
                return _decode_text(content).encode()
            case 0x7B | 0x5B | 0x6E:
                kind = {0x7B: "an object", 0x5B: "an array", 0x6E: "null"}[content[0]]
                raise ValueError(
                    f"its value has {kind} at key_from={self.text}; a key is a string, a number or a boolean"
                )
        return content


def _tokens(text: str) -> list[str]:
    wrong = ""
    if text and not text.startswith("/"):
        wrong = "it must be empty or begin with /"
    elif len(text) > POINTER_CHARS_MAX or text.count("/") > POINTER_TOKENS_MAX:
        wrong = f"it may have {POINTER_TOKENS_MAX} parts and {POINTER_CHARS_MAX} characters"
    elif any(match[1] not in _ESCAPES for match in _ESCAPED.finditer(text)):
        wrong = "~ is written ~0, and / within a name ~1"
    if wrong:
        raise problem(
            "invalid_parameter",
            f"key_from={text[:80]!r} is not a JSON Pointer such as /user/id: {wrong}",
            parameter="key_from",
        )
    return [_ESCAPED.sub(lambda match: _ESCAPES[match[1]], token) for token in text.split("/")[1:]]


@lru_cache(_CACHED_TOKENS_MAX)
def _step(token: str) -> Step:
    """Makes the step from a value's text to the text of what `token` names in it; None when that is not there."""
    if _INDEX.fullmatch(token) or _UNNAMEABLE.search(token):
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
    index = int(token) if _INDEX.fullmatch(token) else len(items)
    return items[index] if index < len(items) else None
