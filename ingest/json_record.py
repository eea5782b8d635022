"""A record as a JSON object, and its headers: what a publisher may write, before any of it is checked."""

import msgspec


class JsonHeader(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """`value` is the text of any JSON value, empty where there is none; `topic` and `offset` are passed over."""

    value: msgspec.Raw = msgspec.Raw()
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str | None] | list[JsonHeader] | None = None
    timestamp: int | str | None = None
    partition: int | None = None
    sequence: int | None = None
    topic: msgspec.Raw = msgspec.Raw()
    offset: msgspec.Raw = msgspec.Raw()


class PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record of nothing but a value and perhaps a key, as most are."""

    value: msgspec.Raw = msgspec.Raw()
    key: str | None = None
