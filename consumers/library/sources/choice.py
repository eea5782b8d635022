"""The choice of a source: `read="auto"` reads the files of tables where a partition is far behind, and else the server.

`TableReading` makes the sources of each `read`, and opens tables only when they are first read.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from siltlog.consumers.library.sources.server import (
    SERVER,
    Choose,
    Fetched,
    FetchPlan,
    Isolation,
    ServerSource,
    Source,
    Wanted,
    from_server,
)
from siltlog.infra.client.address import default_s3
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, OffsetOutOfRange, SiltlogError, UnknownTopic

if TYPE_CHECKING:
    from siltlog.consumers.library.sources.table import TableSource


TABLE = "table"
"""The name of the source, as `read="table"` has it."""

MIB = 1024 * 1024
FAR_BYTES = 32 * MIB
"""How much of the table, decoded, must lie ahead for its files to be read: less is not worth their beginning."""
NEAR_BYTES = 8 * MIB
"""Below so much a partition goes back to the server, and from there on to the head."""
PROBE_RECORDS = 10_000
"""Nearer than that nothing is far, also where it is not known yet what a record weighs."""
RETRY_S = 60.0
"""How long the server is asked for everything after the files could not be read."""
PAUSE_S = 1.0

_HEARD = (OffsetOutOfRange, UnknownTopic)
"""Errors that tell of the position, as the server sees it, and not of the files."""
_log = logging.getLogger("siltlog.consumer")
Read = Literal["auto", "server", "table"]
READS: tuple[Read, ...] = ("auto", "server", "table")


class FarBehind:
    """Chooses, and is the Source under the name TABLE. It raises nothing: what fails, the server is asked for."""

    def __init__(self, table: Source, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._record_bytes: dict[str, float] = {}
        self._far: set[TopicPartition] = set()
        self._not_before = 0.0

    def choose(self, wanted: Wanted, isolation: Isolation) -> str:
        """A `Choose` of `sources/server.py`."""
        if wanted.bounds is None or self._clock.monotonic() < self._not_before:
            return SERVER
        behind = wanted.bounds.table_offset - wanted.offset
        record_bytes = self._record_bytes.get(wanted.at.topic)
        far_bytes = NEAR_BYTES if wanted.at in self._far else FAR_BYTES
        far = behind >= PROBE_RECORDS if record_bytes is None else behind * record_bytes >= far_bytes
        (self._far.add if far else self._far.discard)(wanted.at)
        return TABLE if far else SERVER

    def read(self, plan: FetchPlan) -> list[Fetched]:
        """Reads what the table gives at once; returns nothing where there is nothing, or where it fails."""
        try:
            found = list(self._table.read(replace(plan, wait_ms=0)))
        except SiltlogError as error:
            self._rest(error)
            return []
        for part in found:
            if part.error is not None and not isinstance(part.error, _HEARD):
                self._rest(part.error)
            if part.rows is not None and part.rows.num_rows:
                self._record_bytes[part.at.topic] = part.rows.nbytes / part.rows.num_rows
        if not found:
            self._not_before = self._clock.monotonic() + PAUSE_S
        return [part for part in found if part.error is None or isinstance(part.error, _HEARD)]

    def _rest(self, error: SiltlogError) -> None:
        level = logging.DEBUG if isinstance(error, ConfigError) else logging.INFO
        _log.log(level, "reading from the server, not from the table: %s", error)
        self._not_before = self._clock.monotonic() + RETRY_S


class TableReading:
    """`sources` beside the server's, and the `choose` that goes with them."""

    def __init__(self, read: Read, open_caller: Callable[[], Caller], clock: Clock) -> None:
        """`open_caller` is called on the thread of the first read that goes to the table."""
        self.sources: Mapping[str, Source] = {}
        self.choose: Choose = from_server
        self._table = _LazyTable(open_caller, clock)
        if read == "auto":
            far = FarBehind(self._table, clock)
            self.sources, self.choose = {TABLE: far}, far.choose
        elif read == "table":
            self.sources, self.choose = {TABLE: self._table}, from_table

    def close(self) -> None:
        self._table.close()


class Sources:
    """All that a consumer reads from, by name, and the choice among them."""

    def __init__(self, read: Read, caller: Caller, clock: Clock) -> None:
        self._table = TableReading(read, lambda: caller, clock)
        self.choose = self._table.choose
        self.by_name: Mapping[str, Source] = {SERVER: ServerSource(caller), **self._table.sources}

    def close(self) -> None:
        self._table.close()


def from_table(wanted: Wanted, isolation: Isolation) -> str:
    """Everything from the table."""
    return TABLE


class _LazyTable:
    """A TableSource, made when it is needed: most consumers never read a file, and need no Parquet."""

    def __init__(self, open_caller: Callable[[], Caller], clock: Clock) -> None:
        self._open_caller = open_caller
        self._clock = clock
        self._opened: TableSource | None = None

    def read(self, plan: FetchPlan) -> list[Fetched]:
        if self._opened is None:
            from siltlog.consumers.library.sources.table import TableSource

            self._opened = TableSource(self._open_caller(), self._clock, default_s3())
        return self._opened.read(plan)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
