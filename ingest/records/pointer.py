"""JSON Pointers (RFC 6901) into the text of JSON values: where `?key_from=` finds a record's key."""

import msgspec

from siltlog.infra.errors import problem
from siltlog.infra.json.pointer import JsonPointer

_decode_text = msgspec.json.Decoder(str).decode


class KeyPointer:
    """Tells the key of a record by the text of its JSON value."""

    def __init__(self, text: str) -> None:
        """Raises Refused `invalid_parameter` where `text` is no JSON Pointer."""
        self.text = text
        try:
            self._pointer = JsonPointer(text)
        except ValueError as error:
            raise problem("invalid_parameter", f"key_from={error}", parameter="key_from") from None

    def key(self, value: bytes | msgspec.Raw) -> bytes:
        """A string's text, the JSON text of a number or boolean. `value` must be valid JSON.

        Raises ValueError where there is nothing, or nothing that can be a key.
        """
        found = self._pointer.find(value)
        if found is None:
            raise ValueError(f"its value has nothing at key_from={self.text}")
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
