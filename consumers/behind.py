"""How far behind a reader or a group is: the one value that the server and the library tell it by."""

import msgspec


class Lag(msgspec.Struct, frozen=True, gc=False):
    """`records` counts offsets from the position to the end; fewer records may be there, because offsets have gaps.

    `seconds` is the age of the next record to read; 0 when there is none.
    """

    records: int
    seconds: float
