"""The value of a record of `_offsets`: where a group goes on in one partition."""

import msgspec


class StoredOffset(msgspec.Struct, frozen=True):
    """An offset as it is stored, in JSON; members may be added. The record's key is `names.offset_key`.

    Of two for the same key the higher version wins.
    """

    topic: str
    offset: int
    """The next offset to read."""
    version: int
    metadata: str
    committed_ms: int
    partitions_seen: int = 0
    """How many partitions the topic had when the group first read it; 0 where it has not yet."""


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(StoredOffset).decode
