"""What replies hold, as Structs that the document's schemas are made from. Open: members may be added within `/v1`."""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from siltlog.pipelines.schedule.runs import Outcome, Trigger

Whole = Annotated[int, Meta(ge=0)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Problem(msgspec.Struct):
    """RFC 9457. `detail` says what is wrong and what to do next; some codes have members of their own."""

    type: Annotated[str, Meta(description="`/errors/{error_code}`")]
    title: str
    status: int
    detail: str
    error_code: str
    retryable: Annotated[
        Literal["yes", "unknown", "no"],
        Meta(
            description="`yes`: nothing happened, try again; `unknown`: it may have happened; `no`: it would not help"
        ),
    ]
    request_id: str | None
    retry_after_ms: Whole | UnsetType = UNSET


class Header(msgspec.Struct):
    """`value_base64` where the bytes are not UTF-8."""

    key: str
    value: str | UnsetType | None = UNSET
    value_base64: str | UnsetType = UNSET


class Record(msgspec.Struct):
    """`value` is text, JSON (`values=json`) or null for a tombstone; `value_base64` where it is none of them."""

    partition: Whole
    offset: Whole
    timestamp: Time
    headers: list[Header]
    topic: str | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: str | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    value_base64: str | UnsetType = UNSET


class PublishedPartition(msgspec.Struct):
    """What of a request went to one partition. Offsets are inclusive; null: not known (yet, or any more)."""

    partition: Whole
    first_offset: Whole | None
    last_offset: Whole | None
    count: Whole
    duplicate: Annotated[bool, Meta(description="All of it was there already: nothing was appended")]


class Published(msgspec.Struct):
    topic: str
    acks: Literal["none", "wal", "table"]
    partitions: list[PublishedPartition]
    records: Annotated[
        list[tuple[Whole, Whole | None]] | UnsetType,
        Meta(description="`[partition, offset]` of each record in the request's order; left out for Arrow"),
    ] = UNSET


class ProducerPartition(msgspec.Struct):
    partition: Whole
    next_sequence: Whole
    last_offset: Annotated[
        Whole | None, Meta(description="Of the producer's last record; null when not known any more")
    ]


class ProducerState(msgspec.Struct):
    producer_id: str
    producer_epoch: Whole
    partitions: Annotated[list[ProducerPartition], Meta(description="A partition that is absent begins at 0")]


class Bounds(msgspec.Struct):
    """Of one partition."""

    log_start_offset: Annotated[Whole, Meta(description="The lowest offset that retention has left")]
    table_offset: Annotated[Whole, Meta(description="Everything below it is in the Delta table")]
    high_watermark: Annotated[Whole, Meta(description="Everything below it is visible to readers")]


class PartitionBounds(Bounds):
    partition: Whole


class PartitionOffset(PartitionBounds):
    offset: Annotated[
        Whole | UnsetType,
        Meta(description="With `timestamp`: the lowest offset at or after it, else the high watermark"),
    ] = UNSET


class TopicOffsets(msgspec.Struct):
    topic: str
    topic_id: str
    partitions: list[PartitionOffset]


class PartitionRecords(Bounds):
    topic: str
    partition: Whole
    records: list[Record]
    next_offset: Annotated[Whole, Meta(description="Read on from here: offsets may have gaps")]


class DeletedRecords(Bounds):
    topic: str
    partition: Whole


class FetchedPartition(msgspec.Struct):
    """Bounds are null where the partition was not found; `error` is a problem of this partition alone."""

    topic: str
    partition: Whole
    next_offset: Whole
    log_start_offset: Whole | None
    table_offset: Whole | None
    high_watermark: Whole | None
    error: Problem | None


class Fetched(msgspec.Struct):
    partitions: list[FetchedPartition]
    records: list[Record]


class Polled(Fetched):
    generation: Annotated[Whole, Meta(description="Send it with the next poll")]


class ConfigEntry(msgspec.Struct):
    value: int | str
    source: Literal["topic", "server", "default"]


class Topic(msgspec.Struct):
    """`records` is an upper bound where compaction left gaps; `bytes` and `files` are those of the Delta table."""

    name: str
    topic_id: Annotated[str, Meta(description="New after delete and create")]
    partitions: Annotated[int, Meta(ge=1)]
    created_at: Time
    table_uri: str
    config: dict[str, ConfigEntry]
    records: Whole
    bytes: Whole
    files: Whole
    offsets: list[PartitionBounds]


class Topics(msgspec.Struct):
    topics: list[Topic]
    next: Annotated[str | None, Meta(description="Send it as `after` for more; null: these were the last")]


class Assigned(msgspec.Struct):
    topic: str
    partition: Whole
    topic_id: Annotated[str, Meta(description="Another one than before: the topic was deleted and created again")]
    offset: Annotated[Whole, Meta(description="Where to read from")]
    delivered: Annotated[
        Whole | msgspec.UnsetType,
        Meta(
            description="There when records below it were handed out to a former holder that committed less: one of "
            "them may have ended it, so count an attempt at each before it is handled"
        ),
    ] = msgspec.UNSET


class Attempts(msgspec.Struct, omit_defaults=True):
    attempts: Whole
    spent: Annotated[bool | None, Meta(description="Only with `attempts_max`: it had as many before, give it up")] = (
        None
    )


class DeadLetter(msgspec.Struct):
    topic: Annotated[str, Meta(description="The topic of the dead letters")]
    partition: Whole
    offset: Annotated[Whole | None, Meta(description="Of the dead letter; null: it was there before, and is not known")]
    attempts: Whole
    duplicate: Annotated[bool, Meta(description="It was there before")]


class Replayed(msgspec.Struct):
    topic: str
    replay_id: str
    replayed: Annotated[Whole, Meta(description="Dead letters that went back now")]
    duplicates: Annotated[Whole, Meta(description="Those that this replay had brought back before")]


class Assignment(msgspec.Struct):
    generation: Whole
    assignment: Annotated[list[Assigned] | None, Meta(description="Null: unchanged since the generation sent")]
    heartbeat_interval_ms: Whole


class GroupEntry(msgspec.Struct):
    group: str
    state: Literal["empty", "stable", "rebalancing"]
    members: Whole


class GroupList(msgspec.Struct):
    groups: list[GroupEntry]
    next: str | None


class HeldPartition(msgspec.Struct):
    topic: str
    partition: Whole


class MovingPartition(HeldPartition):
    to: Annotated[str | None, Meta(description="The member that gets it once its holder let go")]


class GroupMember(msgspec.Struct):
    member_id: str
    client_id: str | None
    instance_id: Annotated[str | None, Meta(description="Of a static member")]
    topics: list[str]
    topic_pattern: str | None
    auto_offset_reset: Literal["earliest", "latest", "error"]
    assignment: list[HeldPartition]


class GroupPartition(HeldPartition):
    member_id: str | None
    offset: Whole
    log_start_offset: Whole
    high_watermark: Whole
    lag: Annotated[Whole, Meta(description="Records")]
    lag_seconds: float | None


class Group(msgspec.Struct):
    group: str
    state: Literal["empty", "stable", "rebalancing"]
    generation: Whole
    members: list[GroupMember]
    moving: list[MovingPartition]
    partitions: list[GroupPartition]


class Committed(HeldPartition):
    offset: Annotated[Whole, Meta(description="The next offset to read")]
    metadata: str
    committed_at: Time


class GroupOffsets(msgspec.Struct):
    group: str
    offsets: list[Committed]


class OffsetMoved(HeldPartition):
    before: Annotated[Whole | None, Meta(description="Null where the group had no offset")]
    after: Whole


class OffsetsMoved(msgspec.Struct):
    offsets: list[OffsetMoved]


class Index(msgspec.Struct):
    name: Literal["siltlog"]
    version: str
    docs: str
    openapi: str
    topics: str
    groups: str
    cluster: str
    health: str
    readiness: str
    metrics: str


class Health(msgspec.Struct):
    status: Literal["up"]


class Readiness(msgspec.Struct):
    status: Literal["ready", "not_ready"]
    reasons: Annotated[list[str], Meta(description="Why it cannot acknowledge")]
    warnings: Annotated[list[str], Meta(description="What else is wrong, such as groups being away")]


class Node(msgspec.Struct):
    id: str
    url: str


class Limits(msgspec.Struct):
    """What one request may be; larger waits and fetches are cut, larger bodies refused."""

    request_bytes: Whole
    record_bytes: Whole
    records: Whole
    wait_ms: Whole
    fetch_bytes: Whole


class Cluster(msgspec.Struct):
    version: str
    cluster_id: str
    nodes: list[Node]
    limits: Limits
    features: list[str]


class JobTopic(msgspec.Struct):
    """What a run did to one topic."""

    topic: str
    done: dict[str, Whole]
    error: str | None


class JobRun(msgspec.Struct):
    """A run of a job that has ended. `topics` empty: every topic; `results` are of those where something was done."""

    offset: Annotated[int, Meta(ge=0, description="Where it is in the topic `_jobs`")]
    run_id: str
    job: str
    outcome: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": list(get_args(Outcome))})]
    started_at: Time
    ended_at: Time
    trigger: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": list(get_args(Trigger))})]
    dry_run: bool
    topics: list[str]
    done: dict[str, Whole]
    results: list[JobTopic]
    error: str | None


class JobRuns(msgspec.Struct):
    jobs: list[JobRun]
    next: str | None


class JobRecorded(msgspec.Struct):
    """`offset` is null where the run was there before."""

    run_id: str
    offset: Whole | None
    duplicate: bool


class ScheduledJob(msgspec.Struct):
    """`next_at` is null where nobody is there to run it; `unavailable` says why its last time passed without a run."""

    job: str
    cron: Annotated[str, Meta(description="In UTC")]
    next_at: Time | None
    running_since: Time | None
    unavailable: str | None


class Schedule(msgspec.Struct):
    """`runner` is null where nobody runs it."""

    runner: str | None
    jobs: list[ScheduledJob]
