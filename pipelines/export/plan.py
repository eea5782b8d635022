"""Plans what an export writes and where: decided once, stored beside its files, and kept by processes that go on
with it."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from siltlog.infra.errors import problem
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.replay.range import Selection, Slice

Format = Literal["parquet", "ndjson", "csv", "delta"]
FORMATS: tuple[Format, ...] = ("parquet", "ndjson", "csv", "delta")
Compression = Literal["none", "gzip", "zstd"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "gzip", "zstd")
CODING_ENDINGS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
PART_BYTES = 128 * 1024 * 1024
"""Files of the table are gathered to so much for one file of the export. Exports that were begun count on it, so it is
never to be changed."""
FOLDER = "_export"
"""The folder beside the files; readers of such folders pass over names that begin with an underscore."""
PLAN_OBJECT = f"{FOLDER}/plan.json"
DONE_OBJECT = f"{FOLDER}/done.json"


class ExportPlan(msgspec.Struct, frozen=True):
    topic: str
    topic_id: str
    version: int
    """Version of the table: the export writes what the table held then."""
    selection: Selection
    format: Format
    compression: Compression
    """Compression of whole files of lines or CSV."""
    run: str
    """Names what Spark found, where it looked."""


class Part(msgspec.Struct, frozen=True):
    """One file of the export, and the records that are in it."""

    path: str
    """Relative to where the export goes."""
    records: Slice


def parts_of(made: ExportPlan, slices: Sequence[Slice]) -> list[Part]:
    """The same for the same slices: neighbouring files gathered up to PART_BYTES, never of two partitions."""
    parts: list[Part] = []
    for whole in slices:
        gathered: list[int] = []
        size = 0
        for index, file in enumerate(whole.files):
            if gathered and size + file.size_bytes > PART_BYTES:
                parts.append(_part(made, whole, gathered))
                gathered, size = [], 0
            gathered.append(index)
            size += file.size_bytes
        parts.append(_part(made, whole, gathered))
    return parts


def _part(made: ExportPlan, whole: Slice, indexes: Sequence[int]) -> Part:
    files = whole.files[indexes[0] : indexes[-1] + 1]
    start, end = max(whole.start, files[0].first_offset), min(whole.end, files[-1].last_offset + 1)
    name = f"{made.topic}-{whole.partition:05d}-{start:020d}"
    if made.format == "delta":
        path = f"partition={whole.partition}/{name}.parquet"
    elif made.format == "parquet":
        path = f"{name}.parquet"
    else:
        path = f"{name}.{made.format}{CODING_ENDINGS[made.compression]}"
    return Part(path, Slice(whole.partition, start, end, files))


def begun(target: ObjectStore, made: ExportPlan, version: int | None) -> ExportPlan:
    """`made`, or what an earlier process began there with the same words; `version` is the one that was asked for.

    Raises `invalid_request` where another export is.
    """
    if put_once(target, PLAN_OBJECT, msgspec.json.encode(made)):
        return made
    there = msgspec.json.decode(target.get(PLAN_OBJECT), type=ExportPlan)
    selection = there.selection if made.selection.is_same(there.selection) else made.selection
    same = msgspec.structs.replace(
        made, version=there.version if version is None else version, run=there.run, selection=selection
    )
    if same != there:
        raise problem(
            "invalid_request",
            f"{target.root_uri} has an export of other records, of topic {there.topic} at version {there.version} as "
            f"{there.format}; choose another place, or repeat that one to go on with it",
        )
    return there
