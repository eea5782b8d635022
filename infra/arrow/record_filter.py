"""Finds among records those that somebody wants: by key, value, header and producer."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Records with this key, whose value contains these bytes, that have this header, and of this producer; None: with
    any. A tombstone contains nothing."""

    key: bytes | None = None
    contains: bytes | None = None
    header: str | None = None
    header_value: bytes | None = None
    """What one of the headers of that name is to have; None: anything."""
    producer_id: str | None = None

    def __bool__(self) -> bool:
        content = self.key is not None or self.contains is not None or self.header is not None
        return content or self.producer_id is not None

    @property
    def columns(self) -> list[str]:
        """The columns by which it is told."""
        asked = {"key": self.key, "value": self.contains, "headers": self.header, "producer_id": self.producer_id}
        return [name for name, wanted in asked.items() if wanted is not None]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch`, which has those columns, that are wanted; in order."""
        for name, wanted, matches in (
            ("key", self.key, lambda column, text: pc.equal(column, pa.scalar(text, pa.binary()))),
            ("producer_id", self.producer_id, pc.equal),
            ("value", self.contains, pc.match_substring),
        ):
            if wanted is not None and batch.num_rows:
                batch = batch.filter(matches(batch.column(name), wanted), null_selection_behavior="drop")
        return batch if self.header is None or not batch.num_rows else self._with_header(batch)

    def takes(self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bool:
        """Whether one record is wanted, for who gets them one by one, and so without their producers."""
        assert self.producer_id is None, "the record says who sent it"
        if self.key is not None and key != self.key:
            return False
        if self.header is not None and not any(
            name == self.header and self.header_value in (None, text) for name, text in headers
        ):
            return False
        return self.contains is None or (value is not None and self.contains in value)

    def _with_header(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column("headers")
        headers, rows = pc.list_flatten(column), pc.list_parent_indices(column)
        has = pc.equal(pc.struct_field(headers, "key"), self.header)
        if self.header_value is not None:
            same = pc.equal(pc.struct_field(headers, "value"), pa.scalar(self.header_value, pa.binary()))
            has = pc.and_(has, pc.fill_null(same, False))
        return batch.take(pc.unique(rows.filter(has)))
