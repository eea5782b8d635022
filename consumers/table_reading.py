"""What `read=` of a consumer says: which of its partitions are read from the table's files, and by whom."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from siltlog.consumers.far_behind import TABLE, FarBehind
from siltlog.consumers.row_source import Choose, Fetched, FetchPlan, Isolation, Source, Wanted, from_server
from siltlog.infra.client.address import default_s3
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock

if TYPE_CHECKING:
    from siltlog.consumers.table_source import TableSource

Read = Literal["auto", "server", "table"]
READS: tuple[Read, ...] = ("auto", "server", "table")


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
            from siltlog.consumers.table_source import TableSource

            self._opened = TableSource(self._open_caller(), self._clock, default_s3())
        return self._opened.read(plan)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
