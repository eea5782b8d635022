"""Which records a reader wants to see, decided a column at a time: tail, WebSocket and `silt consume` share it.

Filtering changes nothing of where a reader is: it goes on behind what it was not given, too.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Records with this key, whose value contains these bytes; None: with any. A tombstone contains nothing."""

    key: bytes | None = None
    contains: bytes | None = None

    def __bool__(self) -> bool:
        return self.key is not None or self.contains is not None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch`, which has the columns `key` and `value` (binary), that are wanted; in order."""
        for name, wanted, matches in (
            ("key", self.key, lambda column, text: pc.equal(column, pa.scalar(text, pa.binary()))),
            ("value", self.contains, pc.match_substring),
        ):
            if wanted is not None and batch.num_rows:
                batch = batch.filter(matches(batch.column(name), wanted), null_selection_behavior="drop")
        return batch

    def takes(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether one record is wanted, for who gets them one by one."""
        if self.key is not None and key != self.key:
            return False
        return self.contains is None or (value is not None and self.contains in value)
