"""Where the records of partitions are in the files of their tables: what `POST /v1/files` answers.

The server fills these in, a consumer that reads the files itself and the interface's description go by them.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from siltlog.infra.records import Bounds

_Whole = Annotated[int, Meta(ge=0)]


class ListedFile(msgspec.Struct, frozen=True):
    """A Parquet file of the table."""

    path: Annotated[str, Meta(description="Relative to the topic's table: `{root_uri}/topics/{topic}/{path}`")]
    rows: _Whole
    size_bytes: _Whole
    first_offset: _Whole
    last_offset: Annotated[int, Meta(ge=0, description="Inclusive")]
    footer_crc: Annotated[int | None, Meta(description="CRC-32 of its Parquet footer, where it is known")] = None


class PartitionFiles(msgspec.Struct):
    """Every record in [the offset asked for, `next_offset`) is in `files`; bounds are null where nothing was found."""

    topic: str
    partition: _Whole
    topic_id: str | None
    next_offset: Annotated[int, Meta(ge=0, description="Ask for more from here")]
    log_start_offset: _Whole | None
    table_offset: _Whole | None
    high_watermark: _Whole | None
    error: Annotated[dict[str, Any] | None, Meta(description="A problem of this partition alone")]
    files: Annotated[list[ListedFile], Meta(description="Ascending; their offsets may have gaps")] = []

    @property
    def bounds(self) -> Bounds | None:
        if self.log_start_offset is None or self.table_offset is None or self.high_watermark is None:
            return None
        return Bounds(self.log_start_offset, self.table_offset, self.high_watermark)


class FileLists(msgspec.Struct):
    cluster_id: Annotated[str, Meta(description="The first line of the object `cluster/id` under `root_uri`")]
    root_uri: str
    partitions: list[PartitionFiles]
