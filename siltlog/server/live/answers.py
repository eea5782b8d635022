"""The data of live events, as JSON. Open: members may be added within `/v1`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from siltlog.infra.http.answers import Time
from siltlog.server.job_log import JobRun
from siltlog.server.live.part import Attention, Disk, Reason, Wal

Kind = Literal["overview", "topics", "groups", "jobs"]
KINDS: tuple[Kind, ...] = ("overview", "topics", "groups", "jobs")


class NodeState(msgspec.Struct, frozen=True):
    """A node of the cluster; what it measured is null where it is silent."""

    node: str
    state: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": ["up", "draining", "away"]})]
    here: bool
    ready: bool | None = None
    version: str | None = None
    wal: Wal | None = None
    disk: Disk | None = None


class Rates(msgspec.Struct, frozen=True):
    """Per second, over about the last five."""

    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float


class WorstLag(msgspec.Struct, frozen=True):
    group: str
    topic: str
    records: int
    seconds: float


class Totals(msgspec.Struct, frozen=True):
    topics: int
    groups: int
    connections: int | None
    records: int
    bytes: int


class Overview(msgspec.Struct, frozen=True):
    """Without `describe` of the cluster it has only the topics and groups that the caller may describe."""

    time: Time
    node: str
    version: str
    started_at: Time | None
    ready: bool
    reasons: list[Reason]
    nodes: list[NodeState]
    silent: list[str]
    rates: Rates
    ack_p99_ms: float | None
    table_lag_p95_s: float
    worst_lag: WorstLag | None
    wal: Wal | None
    disk: Disk | None
    totals: Totals
    attention: list[Attention]


class GroupLag(msgspec.Struct, frozen=True):
    group: str
    lag: int
    lag_seconds: float


class TopicRow(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    records: int
    bytes: int
    files: int
    records_in_per_s: float
    bytes_in_per_s: float
    records_out_per_s: float
    bytes_out_per_s: float
    groups: list[GroupLag]
    table_lag_s: float
    small_files_share: float | None


class Topics(msgspec.Struct, frozen=True):
    time: Time
    topics: list[TopicRow]
    of: int
    cut: bool


class GroupRow(msgspec.Struct, frozen=True):
    group: str
    state: str | None
    members: int
    topics: list[str]
    lag: int
    lag_seconds: float | None


class Groups(msgspec.Struct, frozen=True):
    time: Time
    groups: list[GroupRow]
    of: int
    cut: bool


class RunningJob(msgspec.Struct, frozen=True):
    job: str
    run_id: str | None
    started_at: Time
    trigger: str
    runner: str


class Jobs(msgspec.Struct, frozen=True):
    time: Time
    running: list[RunningJob]
    latest: list[JobRun]
