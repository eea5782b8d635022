"""The plan of a run of a replay, stored before it begins, so that another process can go on with it."""

from collections.abc import Sequence

import msgspec

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import XXHASH64
from siltlog.infra.errors import problem
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.pipelines.replay.range import Selection

BLOCK_OFFSETS = 16_384
"""No request has records of two blocks of so many offsets, so all before the block of the highest sequence has arrived.
Runs that were begun count on it, so it is never to be changed."""
RUN_CHARS_MAX = 128


class Target(msgspec.Struct, frozen=True):
    """The topic that is published to, as its server says it is."""

    topic: str
    topic_id: str
    partitions: int
    partitioner: str = XXHASH64.name


class ReplayPlan(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    version: int
    """Version of the table: the run reads what the table held then, whatever happens to it since. So the run ends, and
    reads nothing that it publishes itself."""
    selection: Selection
    into: Target
    """Records go by this number of partitions to the end, also where the topic grows meanwhile."""
    keep_partitions: bool
    """Each record stays in the partition it was in; else keys decide, by the target's partitioner."""


class Progress(msgspec.Struct):
    """How far a run is."""

    next_offsets: dict[int, int] = {}
    """Everything below these offsets has arrived; a partition that was not begun has none."""
    finished: bool = False


def plan(topic: str, snapshot: TableSnapshot, selection: Selection, into: Target) -> ReplayPlan:
    """Pure. Raises `invalid_request` where only the server may publish to `into`."""
    if names.is_system_topic(into.topic):
        raise problem("invalid_request", f"only the server publishes to {into.topic}; choose another topic for --into")
    never_grown = len(snapshot.partition_history) <= 1
    return ReplayPlan(
        topic=topic,
        topic_id=snapshot.topic_id,
        version=snapshot.version,
        selection=selection,
        into=into,
        keep_partitions=never_grown
        and (snapshot.partitions, snapshot.config["partitioner"]) == (into.partitions, into.partitioner),
    )


def checked_run(run: str) -> str:
    """Raises `invalid_request` for what cannot name a run."""
    if len(run) > RUN_CHARS_MAX or names.name_problem(run) is not None:
        raise problem(
            "invalid_request",
            f"a run is named by up to {RUN_CHARS_MAX} letters, digits, '.', '_' and '-', not {run[:200]!r}",
        )
    return run


def resume_from(start: int, progress: int | None, last_sequences: Sequence[int]) -> int:
    """The lowest offset of a partition that may not have arrived. `last_sequences` are of any target."""
    known = [start] if progress is None else [start, progress]
    if last_sequences:
        known.append(max(last_sequences) // BLOCK_OFFSETS * BLOCK_OFFSETS)
    return max(known)


def read_plan(store: ObjectStore, run: str) -> ReplayPlan | None:
    """Reads the plan of a run; None where there is no such run."""
    try:
        content = store.get(names.replay_plan_object(run))
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=ReplayPlan)


def write_plan(store: ObjectStore, run: str, made: ReplayPlan) -> bool:
    """Writes the plan of a run. Returns False, and writes nothing, where the run is there already."""
    return put_once(store, names.replay_plan_object(run), msgspec.json.encode(made))


def read_progress(store: ObjectStore, run: str) -> Progress:
    try:
        return msgspec.json.decode(store.get(names.replay_progress_object(run)), type=Progress)
    except FileNotFoundError:
        return Progress()


def write_progress(store: ObjectStore, run: str, progress: Progress) -> None:
    store.put(names.replay_progress_object(run), msgspec.json.encode(progress))
    store.sync([names.replay_progress_object(run)])
