"""Whether files hold the records that their commit says: asked before every commit."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from siltlog.infra.arrow.latest import is_latest
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.data_file import DataFile, read_data_file

CHECKS_AT_ONCE = 2
"""Files whose keys are in memory at the same time."""


def check_cover(files: Sequence[DataFile], bounds: Mapping[int, tuple[int, int]]) -> None:
    """Raises ValueError unless the files of each partition hold exactly the offsets of its bounds."""
    grouped: dict[int, list[DataFile]] = {partition: [] for partition in bounds}
    for file in files:
        grouped[file.partition].append(file)
    for partition, (first, end) in bounds.items():
        position = first
        for file in sorted(grouped[partition], key=lambda file: file.first_offset):
            if file.first_offset != position or file.last_offset - file.first_offset + 1 != file.rows:
                raise ValueError(f"{file.path} does not hold the offsets from {position}")
            position = file.last_offset + 1
        if position != end:
            raise ValueError(f"the files of partition {partition} end at {position}, not {end}")


class Totals(NamedTuple):
    """Totals of the offsets of one partition."""

    rows: int
    lowest: int
    highest: int
    total: int


def compare_totals(store: ObjectStore, topic: str, sources: Sequence[DataFile], outputs: Sequence[DataFile]) -> None:
    """Reads the offsets of all files, verifying their page checksums.

    Raises CorruptData when a file is damaged, says other than it holds, or the totals of a partition differ.
    """
    before, after = _totals(store, topic, sources), _totals(store, topic, outputs)
    for partition in sorted(before.keys() | after.keys()):
        if before.get(partition) != after.get(partition):
            raise _changed(topic, partition, f"{before.get(partition)} before, {after.get(partition)} after")


class Kept(NamedTuple):
    """The records of one partition that stay."""

    rows: int
    total: int
    """The sum of their offsets."""
    keyless: int
    unique_below: int
    """Below this offset no more than one record of each key stays."""


def check_kept(store: ObjectStore, topic: str, outputs: Sequence[DataFile], kept: Mapping[int, Kept]) -> None:
    """Reads offsets and keys of `outputs`, verifying their page checksums.

    Raises CorruptData unless each partition has exactly what `kept` says, in the order of offsets.
    """
    unique_below = {partition: wanted.unique_below for partition, wanted in kept.items()}
    found = {partition: wanted._replace(rows=0, total=0, keyless=0) for partition, wanted in kept.items()}
    with ThreadPoolExecutor(CHECKS_AT_ONCE) as pool:
        each = pool.map(lambda file: _kept_of(store, topic, file, unique_below[file.partition]), outputs)
        for file, (rows, total, keyless, _) in zip(outputs, each, strict=True):
            before = found[file.partition]
            found[file.partition] = before._replace(
                rows=before.rows + rows, total=before.total + total, keyless=before.keyless + keyless
            )
    for partition, wanted in kept.items():
        if found[partition] != wanted:
            raise _changed(topic, partition, f"{wanted} are to stay, {found[partition]} were written")


def _kept_of(store: ObjectStore, topic: str, file: DataFile, unique_below: int) -> Kept:
    records = read_data_file(store, topic, file, columns=["offset", "key"], as_stored=True)
    offsets, keys = records.column("offset").to_numpy(), records.column("key")
    if len(offsets) != file.rows or np.any(np.diff(offsets) <= 0):
        raise _changed(topic, file.partition, f"{file.path} has {len(offsets)} rows, or not in their order")
    below = keys.slice(0, int(np.searchsorted(offsets, unique_below)))
    if not is_latest(below.chunks).all():
        raise _changed(topic, file.partition, f"{file.path} has several records of a key")
    return Kept(len(offsets), _sum(offsets), keys.null_count, unique_below)


def _changed(topic: str, partition: int, reason: str) -> SiltlogError:
    return problem(
        "corrupt_data",
        f"the rewrite of topic {topic}, partition {partition}, would change its records: {reason}; nothing was "
        "committed",
        topic=topic,
        partition=partition,
    )


def _totals(store: ObjectStore, topic: str, files: Sequence[DataFile]) -> dict[int, Totals]:
    totals: dict[int, Totals] = {}
    for file in files:
        offsets = read_data_file(store, topic, file, columns=["offset"]).column("offset")
        bounds = pc.min_max(offsets)
        found = Totals(len(offsets), bounds["min"].as_py(), bounds["max"].as_py(), _sum(offsets.to_numpy()))
        if found[:3] != (file.rows, file.first_offset, file.last_offset):
            raise problem(
                "corrupt_data",
                f"{file.path} of topic {topic} holds {found}, not {file.rows} rows from {file.first_offset} to "
                f"{file.last_offset}",
                topic=topic,
                path=file.path,
                partition=file.partition,
            )
        known = totals.get(file.partition)
        totals[file.partition] = (
            found
            if known is None
            else Totals(
                known.rows + found.rows,
                min(known.lowest, found.lowest),
                max(known.highest, found.highest),
                known.total + found.total,
            )
        )
    return totals


def _sum(offsets: npt.NDArray[np.int64]) -> int:
    """Exact: 64 bits do not hold the sum of many large offsets."""
    base = int(offsets[0]) if len(offsets) else 0
    return int((offsets - base).sum()) + base * len(offsets)
