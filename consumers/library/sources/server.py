"""Where a consumer's rows come from: the seam between what it wants next and who has it.

The inbox says what is wanted as a `FetchPlan`, all of it from one source, which `choose` named for each partition. A
source answers with a `Fetched` for each partition it has something to say of, or raises SiltlogError for all of them.
`ServerSource` asks `POST /v1/fetch`; another one is added under its name to the `sources` of ConsumerThreads and
ConsumerTasks, and `choose` given to the Inbox. Each source has fetches of its own under way, so a slow one holds up no
other. For asyncio there is `asynchronous.py`, which also wraps a source that blocks.

What a source must keep: rows of a partition rise by offset from the wanted one on, `next_offset` says how far the
answer reaches (gaps included), and a plan it cannot serve at all is an error, never an answer without progress for
ever.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.arrow.arrays import numbers_of
from siltlog.infra.client.core import NODE_TIMEOUT_MS, Request, Response, json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, from_problem
from siltlog.infra.records import Bounds

SERVER = "server"
"""The name of the source that asks the server."""
GRACE_MS = 10_000
"""How much longer than its wait a reply may take."""
Isolation = Literal["wal", "table"]


class Wanted(NamedTuple):
    """One partition of a plan. `bounds` are those it had when last seen, `topic_id` says which topic it must be."""

    at: TopicPartition
    offset: int
    topic_id: str | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """A plan of what to read, in any order and share of the limits; an answer may wait `wait_ms` for a first record."""

    source: str
    wanted: tuple[Wanted, ...]
    isolation: Isolation
    records_max: int
    bytes_max: int
    wait_ms: int


class Fetched(NamedTuple):
    """The records of one partition from the wanted offset up to `next_offset`; rows (FETCH_SCHEMA), None for no record.

    With an `error` the partition could not be read; `bounds` are told where they are known.
    """

    at: TopicPartition
    next_offset: int
    rows: pa.Table | None = None
    bounds: Bounds | None = None
    error: SiltlogError | None = None


Choose = Callable[[Wanted, Isolation], str]
"""The name of the source to read a partition from next. Pure and quick: asked for every partition of every fetch."""


class Source(Protocol):
    def read(self, plan: FetchPlan) -> Sequence[Fetched]:
        """Reads on a thread for fetches, one of several at a time."""


class ServerSource:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def read(self, plan: FetchPlan) -> Sequence[Fetched]:
        return fetched_of(self._caller.call(fetch_request(plan)))


def from_server(wanted: Wanted, isolation: Isolation) -> str:
    """Everything from the server."""
    return SERVER


def fetch_request(plan: FetchPlan, partition_bytes_max: int | None = None) -> Request:
    """`partition_bytes_max`: of each partition so much, or one record."""
    document = {
        "partitions": [
            {"topic": one.at.topic, "partition": one.at.partition, "offset": one.offset}
            | ({} if one.topic_id is None else {"topic_id": one.topic_id})
            | ({} if partition_bytes_max is None else {"max_bytes": partition_bytes_max})
            for one in plan.wanted
        ],
        "max_records": plan.records_max,
        "max_bytes": plan.bytes_max,
        "wait_ms": plan.wait_ms,
        "isolation": plan.isolation,
    }
    return json_request(
        "POST",
        "/v1/fetch",
        document,
        accept=names.MEDIA_ARROW,
        read_timeout_ms=plan.wait_ms + GRACE_MS,
        repeatable=True,
        node_timeout_ms=plan.wait_ms + NODE_TIMEOUT_MS,
    )


def fetched_of(response: Response) -> list[Fetched]:
    """Raises OutcomeUnknown for a reply that is not understood."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(response.body)).read_all()
        parts: list[Mapping[str, Any]] = msgspec.json.decode(table.schema.metadata[names.ARROW_METADATA_KEY.encode()])
        rows = by_partition(table)
        return [_fetched(part, rows) for part in parts]
    except (pa.ArrowException, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise OutcomeUnknown(
            f"the reply to a fetch is not understood ({error!r}); is the URL that of a Siltlog server?",
            error_code="internal",
        ) from None


def _fetched(part: Mapping[str, Any], rows: Mapping[TopicPartition, pa.Table]) -> Fetched:
    at = TopicPartition(part["topic"], part["partition"])
    problem = part["error"]
    error = None if problem is None else from_problem(problem, problem.get("status", 500))
    numbers = [part[name] for name in Bounds._fields]
    bounds = None if None in numbers else Bounds(*numbers)
    return Fetched(at, part["next_offset"], rows.get(at), bounds, error)


def by_partition(table: pa.Table) -> dict[TopicPartition, pa.Table]:
    """The rows of each topic-partition, which lie together in a reply."""
    count = table.num_rows
    if count == 0:
        return {}
    table = table.replace_schema_metadata(None).select(FETCH_SCHEMA.names)
    ends = [TopicPartition(table["topic"][i].as_py(), table["partition"][i].as_py()) for i in (0, count - 1)]
    if ends[0] == ends[1]:
        return {ends[0]: table}
    partitions = numbers_of(table["partition"].combine_chunks(), np.int32)
    changes = partitions[1:] != partitions[:-1]
    topics = table["topic"].combine_chunks().dictionary_encode()
    if len(topics.dictionary) > 1:
        codes = numbers_of(topics.indices, np.int32)
        changes |= codes[1:] != codes[:-1]
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), count]
    found: dict[TopicPartition, pa.Table] = {}
    for start, stop in pairwise(starts):
        at = TopicPartition(topics[start].as_py(), int(partitions[start]))
        rows = table.slice(start, stop - start)
        found[at] = rows if at not in found else pa.concat_tables([found[at], rows])
    return found
