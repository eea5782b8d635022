"""The result of one run of the demo: plain data, printed by `summary` and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold. `detail` has the numbers."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of `count` samples."""

    count: int
    p50: float
    p99: float
    maximum: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Quantiles":
        if not samples:
            return cls(0, 0.0, 0.0, 0.0)
        p50, p99, maximum = (float(value) for value in np.quantile(samples, (0.5, 0.99, 1.0)))
        return cls(len(samples), p50, p99, maximum)


@dataclass(frozen=True, slots=True)
class Kill:
    """The server killed with SIGKILL while records were on their way."""

    acknowledged: int
    """records acknowledged at the moment of the kill"""
    unanswered: int
    """records sent and not yet acknowledged at that moment"""
    recovered: int
    """of those acknowledged, how many a consumer read at the end, byte for byte, at the offset of their ack"""
    restart_s: float
    """from the command to start again until the server could acknowledge"""
    longest_ack_ms: float
    """the longest that a single publish waited for its ack: across the kill"""


@dataclass(frozen=True, slots=True)
class Carrier:
    code: str
    name: str
    flights: int
    departure_delay_min: float
    arrival_delay_min: float


@dataclass(frozen=True, slots=True)
class Table:
    """The Delta table, as Spark sees it."""

    rows: int
    distinct: int
    hash_sum: int
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    compaction_s: float
    rows_after: int
    """rows counted again after the compaction"""
    carriers: tuple[Carrier, ...]


class Checked:
    """What a result is: the checks that it passed and failed."""

    __slots__ = ()
    checks: list[Check]

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def check(self, name: str, ok: bool, detail: str) -> None:
        self.checks.append(Check(name, ok, detail))


@dataclass(slots=True)
class Result(Checked):
    records: int
    partitions: int
    url: str
    data_dir: Path
    published: int = 0
    acknowledged: int = 0
    read: int = 0
    """distinct (topic, partition, offset) that the group read"""
    repeated: int = 0
    """deliveries of a record that had been read before: a group delivers at least once"""
    members: dict[str, int] = field(default_factory=dict)
    steady_records_per_s: float = 0.0
    burst_records: int = 0
    burst_s: float = 0.0
    burst_bytes: int = 0
    ack_ms: Quantiles = field(default_factory=lambda: Quantiles.of(()))
    freshness_ms: Quantiles = field(default_factory=lambda: Quantiles.of(()))
    hash_sum: int = 0
    """sum of the XXH64 of every published value"""
    kill: Kill | None = None
    table: Table | None = None
    without_spark: str = ""
    """why the parts that need Spark were left out; empty when they were not"""
    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Gives the result for JSON; sums of hashes are text, as they do not fit the numbers of most readers."""
        document = {**asdict(self), "data_dir": str(self.data_dir), "ok": self.ok, "hash_sum": str(self.hash_sum)}
        if self.table is not None:
            document["table"]["hash_sum"] = str(self.table.hash_sum)
        return document
