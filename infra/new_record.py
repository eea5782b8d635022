"""A record that the server itself makes: it has no offset yet."""

from typing import NamedTuple


class NewRecord(NamedTuple):
    """`headers` in order, duplicates kept. `timestamp_us` None: the time of the append."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_us: int | None = None
