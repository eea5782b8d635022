"""What is told of a table's health."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from siltlog.infra.http.answers import Bounds, Time, Whole


class TableState(msgspec.Struct):
    version: Whole
    committed_at: Annotated[Time | None, Meta(description="When that version was committed; null where not known")]
    age_ms: Annotated[Whole | None, Meta(description="How long ago that is")]
    lag_ms: Annotated[
        Whole | None,
        Meta(
            description="Age of the oldest record that is not in the table yet; null without one, or where the topic's "
            "owner does not answer"
        ),
    ]
    files: Whole
    bytes: Whole
    rows: Whole
    small_files: Annotated[Whole, Meta(description="Smaller than compaction leaves files")]
    small_files_share: Annotated[float, Meta(ge=0, le=1, description="`small_files` of `files`; 0 without any")]
    checkpoint_version: Annotated[
        Whole | None, Meta(description="Readers begin there; null without a checkpoint, or where not known")
    ]
    checkpoint_at: Time | None
    checkpoint_age_ms: Whole | None
    commits_since_checkpoint: Annotated[
        Whole | None, Meta(description="So many entries of the log follow it; null where not known")
    ]


class PartitionTable(Bounds):
    partition: Whole
    files: Whole
    bytes: Whole
    rows: Whole
    small_files: Whole


class NewStart(msgspec.Struct):
    partition: Whole
    before: Annotated[Whole, Meta(description="The log start offset as it is")]
    after: Annotated[Whole, Meta(description="The log start offset then")]
    files: Whole
    rows: Whole
    bytes: Whole


class Removal(msgspec.Struct):
    """What retention would remove now."""

    files: Whole
    rows: Whole
    bytes: Whole
    log_start_offsets: Annotated[list[NewStart], Meta(description="Of the partitions whose log start would move")]


class Retention(Removal):
    """Altogether, and by each limit alone; null where the topic has no such limit."""

    by_time: Annotated[Removal | None, Meta(description="By `retention.ms`")]
    by_bytes: Annotated[Removal | None, Meta(description="By `retention.bytes`")]
    by_records: Annotated[Removal | None, Meta(description="By `retention.records`")]


class Compaction(msgspec.Struct):
    """What `silt compact` would do now."""

    files: Annotated[Whole, Meta(description="To be merged")]
    files_after: Annotated[Whole, Meta(description="What they become")]
    bytes: Annotated[Whole, Meta(description="To be written anew")]
    key_partitions: Annotated[
        Whole, Meta(description="Partitions that may be due for key compaction, which also rewrites files")
    ]


class TableProblem(msgspec.Struct):
    severity: Annotated[
        Literal["error", "warning"], Meta(description="`error`: something does not go on until somebody acts")
    ]
    detail: str


class TopicHealth(msgspec.Struct):
    topic: str
    topic_id: str
    time: Time
    table: TableState
    partitions: list[PartitionTable]
    retention: Annotated[Retention | None, Meta(description="Null where it cannot be planned: see `problems`")]
    compaction: Annotated[Compaction | None, Meta(description="Null where it cannot be planned: see `problems`")]
    problems: list[TableProblem]
