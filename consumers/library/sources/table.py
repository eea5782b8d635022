"""Reading partitions from the files of their Delta tables, without the server between.

The server says which files hold which offsets (`POST /v1/files`), of one version of the table; the files are read here.
A list is used for a few seconds: by then compaction may have put the same records into other files, retention may have
taken some away, and the topic may be another. A file that is gone before is asked for anew from the position reached.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow as pa

from siltlog.consumers.library.sources.root import TableRoot
from siltlog.consumers.library.sources.server import Fetched, FetchPlan, Wanted
from siltlog.infra.arrow.arrays import repeated_text
from siltlog.infra.client.address import S3Address
from siltlog.infra.client.core import NODE_TIMEOUT_MS, json_request
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import Clock
from siltlog.infra.columns import FETCH_SCHEMA, RECORD_SCHEMA
from siltlog.infra.errors import CorruptData, SiltlogError, from_problem
from siltlog.infra.listing.file_list import FileLists, PartitionFiles
from siltlog.infra.records import Bounds
from siltlog.infra.table.data_file import DataFile, row_groups

LIST_S_MAX = 5.0
"""How long a list of files is used: as old as the server's own knowledge of its tables may be."""
LIST_FILES_MAX = 256
RELIST_S_MIN = 0.5
"""How soon a partition whose end was reached is asked for again while others are read."""
GRACE_MS = 10_000
SCANS_MAX = 2
"""Partitions read at a time; the others' turn comes when the files listed for one of them are read."""
LANES_MAX = 2
"""Files of a partition read at a time. Each is a row group of 16 MiB ahead: SCANS_MAX x LANES_MAX of them are decoded
before they are taken, and as many more while two sets of partitions are asked for in turn."""


class TableSource:
    """A Source (`row_source`) of the table alone. From any thread; reads wait for one another."""

    def __init__(self, caller: Caller, clock: Clock, s3: S3Address) -> None:
        self._caller = caller
        self._clock = clock
        self._s3 = s3
        self._root: tuple[TableRoot, str] | None = None
        self._pool = ThreadPoolExecutor(SCANS_MAX * LANES_MAX, "siltlog-table")
        self._scans: dict[TopicPartition, _Scan] = {}
        self._turn_taken = threading.Lock()
        self._closed = False

    def read(self, plan: FetchPlan) -> list[Fetched]:
        """Reads what comes next of some partitions of the plan; nothing when the tables hold no more for the plan's
        wait.

        Reads on where the last call ended, with what was read ahead, when that is asked for; else begins anew.
        A problem of one partition is in its part. Raises ConfigError where the tables cannot be reached from here, and
        what asking the server raises.
        """
        with self._turn_taken:
            scans = self._scans_of(plan.wanted)
            while not self._closed:
                waited = self._list(scans, plan.wait_ms)
                found = self._found(scans, plan)
                if found or waited:
                    return found
            return []

    def _found(self, scans: Sequence["_Scan"], plan: FetchPlan) -> list[Fetched]:
        turn = self._turn(scans)
        try:
            found = [part for scan in turn if (part := self._read(scan, plan, len(turn))) is not None]
        except RuntimeError:
            # The threads that would read ahead have ended.
            if self._closed:
                return []
            raise
        given = {part.at for part in found}
        return found + [scan.refused() for scan in scans if scan.refusing and scan.at not in given]

    def close(self) -> None:
        """A read under way ends soon; nobody waits for it."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def _scans_of(self, wanted: Sequence[Wanted]) -> list["_Scan"]:
        """Finds or makes the scans of what is wanted, in the order of their turns: older ones first."""
        now = self._clock.monotonic()
        asked = {one.at: one for one in wanted}
        for one in wanted:
            scan = self._scans.get(one.at)
            if scan is None or (scan.position, scan.topic_id) != (one.offset, one.topic_id):
                self._scans[one.at] = scan = _Scan(one)
            scan.asked_at = now
        self._forget([scan for at, scan in self._scans.items() if at not in asked], now)
        return [scan for at, scan in self._scans.items() if at in asked]

    def _forget(self, others: Sequence["_Scan"], now: float) -> None:
        """Drops, after a while, what was read ahead of partitions that are not asked for now, such as paused ones."""
        for scan in others:
            if now - scan.asked_at > LIST_S_MAX:
                del self._scans[scan.at]
        ahead = [scan for scan in others if scan.lanes]
        for scan in sorted(ahead, key=lambda scan: scan.asked_at)[:-SCANS_MAX]:
            scan.begin_anew()

    def _turn(self, scans: Sequence["_Scan"]) -> list["_Scan"]:
        """Picks the scans to read from now, the ones begun before the others."""
        begun = [scan for scan in scans if scan.lanes]
        others = [scan for scan in scans if scan.open and not scan.lanes]
        return [*begun, *others][:SCANS_MAX]

    def _list(self, scans: Sequence["_Scan"], wait_ms: int) -> bool:
        """Has the server list the files of those that need it; True when there was nothing to do but to wait."""
        now = self._clock.monotonic()
        turn = self._turn(scans)
        due = [scan for scan in scans if scan.due(now, in_turn=scan in turn)]
        idle = not any(scan.open for scan in scans)
        if not due and not idle:
            return False
        waiting = idle and all(scan.at_end for scan in scans)
        asking = list(scans) if idle else due
        document = {
            "partitions": [
                {"topic": scan.at.topic, "partition": scan.at.partition, "offset": scan.listed_from}
                | ({} if scan.topic_id is None else {"topic_id": scan.topic_id})
                for scan in asking
            ],
            "max_files": LIST_FILES_MAX,
            "wait_ms": wait_ms if waiting else 0,
        }
        request = json_request(
            "POST",
            "/v1/files",
            document,
            read_timeout_ms=wait_ms + GRACE_MS,
            repeatable=True,
            node_timeout_ms=wait_ms + NODE_TIMEOUT_MS,
        )
        lists = msgspec.json.decode(self._caller.call(request).body, type=FileLists)
        self._reach(lists)
        for scan, part in zip(asking, lists.partitions, strict=True):
            scan.take_list(part, self._clock.monotonic())
        return waiting

    def _reach(self, lists: FileLists) -> None:
        if self._root is None or (self._root[0].uri, self._root[1]) != (lists.root_uri, lists.cluster_id):
            root = TableRoot(lists.root_uri, self._s3)
            root.check(lists.cluster_id)
            self._root = (root, lists.cluster_id)

    def _read(self, scan: "_Scan", plan: FetchPlan, shares: int) -> Fetched | None:
        """The next records of one partition; None when it has to be listed first."""
        offset = scan.position
        tables: list[pa.Table] = []
        records_left, bytes_left = -(-plan.records_max // shares), plan.bytes_max // shares
        self._fill(scan)
        while records_left > 0 and bytes_left > 0:
            try:
                table = self._next(scan)
            except SiltlogError as error:
                if tables:
                    break
                return self._failed(scan, error)
            if table is None:
                break
            taken = scan.hand_out(table, records_left, bytes_left)
            tables.append(taken)
            records_left -= taken.num_rows
            bytes_left -= taken.nbytes
        if not scan.reading:
            # The list is read to its end, where offsets may name no record.
            scan.position = max(scan.position, scan.listed_to)
            self._scans[scan.at] = self._scans.pop(scan.at)
        if scan.position == offset:
            return None
        rows = _with_topic(scan.at.topic, pa.concat_tables(tables)) if tables else None
        return Fetched(scan.at, scan.position, rows, scan.bounds)

    def _next(self, scan: "_Scan") -> pa.Table | None:
        """The next rows of the files listed; None after the last of them."""
        if scan.rest is not None:
            return scan.rest
        while scan.lanes:
            table = scan.lanes[0].take()
            if table is not None:
                scan.suspect = None
                return table
            scan.position = scan.lanes.popleft().file.last_offset + 1
            self._fill(scan)
        return None

    def _fill(self, scan: "_Scan") -> None:
        """Begins to read the files that come next."""
        assert self._root is not None
        while scan.files and len(scan.lanes) < LANES_MAX:
            file = scan.files.popleft()
            scan.lanes.append(_Lane(self._pool, self._root[0], scan.at.topic, file, scan.listed_from))
            scan.listed_from = file.last_offset + 1
        if not scan.files:
            scan.listed_from = scan.listed_to

    def _failed(self, scan: "_Scan", error: SiltlogError) -> Fetched | None:
        """A file that is damaged or gone counts only if the server, asked again, names it again."""
        assert self._root is not None
        path = scan.lanes[0].file.path
        if isinstance(error, CorruptData):
            error = self._root[0].unavailable(error.__cause__) or error
        again = isinstance(error, CorruptData) and scan.suspect != path
        scan.suspect = path if again else None
        scan.begin_anew()
        return None if again else Fetched(scan.at, scan.position, None, scan.bounds, error)


class _Scan:
    """Where the reading of one partition is: [`position`, `listed_from`) is being read, [`listed_from`, `listed_to`)
    is in `files`."""

    def __init__(self, wanted: Wanted) -> None:
        self.at = wanted.at
        self.topic_id = wanted.topic_id
        self.position = wanted.offset
        self.asked_at = 0.0
        self.bounds: Bounds | None = None
        self.suspect: str | None = None
        """The path of a file that could not be read."""
        self.begin_anew()

    def begin_anew(self) -> None:
        self.files: deque[DataFile] = deque()
        self.lanes: deque[_Lane] = deque()
        self.rest: pa.Table | None = None
        """Rows that were read and not handed out."""
        self.listed_from = self.listed_to = self.position
        self.error: SiltlogError | None = None
        self._listed_at: float | None = None

    @property
    def reading(self) -> bool:
        return bool(self.lanes or self.files or self.rest is not None)

    @property
    def open(self) -> bool:
        """The reading goes on without asking: in files, or past the offsets at the end that name no record."""
        return self.reading or self.listed_to > self.position

    @property
    def refusing(self) -> bool:
        """The server gave a reason instead of a list, and what was listed before is read."""
        return self.error is not None and not self.open

    @property
    def at_end(self) -> bool:
        """The table held nothing more when it was asked last."""
        return self._listed_at is not None and not self.open and self.error is None

    def due(self, now: float, *, in_turn: bool) -> bool:
        if self._listed_at is None:
            return True
        age = now - self._listed_at
        if self.files:
            return in_turn and age > LIST_S_MAX
        if self.bounds is not None and self.listed_to < self.bounds.table_offset:
            return True
        return not self.lanes and age > RELIST_S_MIN

    def take_list(self, part: PartitionFiles, now: float) -> None:
        self._listed_at = now
        self.bounds = part.bounds
        self.error = None if part.error is None else from_problem(part.error, part.error.get("status", 500))
        self.files = deque(_data_files(part))
        self.listed_to = part.next_offset

    def hand_out(self, table: pa.Table, records_max: int, bytes_max: int) -> pa.Table:
        """Hands out as much of `table`, which comes next, as the limits allow, at least a row, and keeps the rest."""
        count = table.num_rows
        if table.nbytes > bytes_max:
            count = max(count * bytes_max // table.nbytes, 1)
        count = min(count, records_max)
        self.rest = table.slice(count) if count < table.num_rows else None
        self.position = table.column("offset")[count - 1].as_py() + 1
        return table.slice(0, count)

    def refused(self) -> Fetched:
        """Returns the problem that the server told instead of a list."""
        error = self.error
        self.begin_anew()
        return Fetched(self.at, self.position, None, self.bounds, error)


class _Lane:
    """One file, read a row group ahead of who takes them."""

    def __init__(self, pool: ThreadPoolExecutor, root: TableRoot, topic: str, file: DataFile, offset: int) -> None:
        self.file = file
        self._pool = pool
        self._groups: Iterator[pa.Table] = row_groups(
            root, topic, file, columns=RECORD_SCHEMA.names, first_offset=offset
        )
        self._ahead = pool.submit(next, self._groups, None)

    def take(self) -> pa.Table | None:
        """The next row group, None after the last one. Raises what reading it raises, each time it is asked for."""
        table: pa.Table | None = self._ahead.result()
        if table is not None:
            self._ahead = self._pool.submit(next, self._groups, None)
        return table


def _data_files(part: PartitionFiles) -> Iterator[DataFile]:
    for file in part.files:
        yield DataFile(
            path=file.path,
            partition=part.partition,
            rows=file.rows,
            size_bytes=file.size_bytes,
            first_offset=file.first_offset,
            last_offset=file.last_offset,
            min_timestamp_us=0,
            max_timestamp_us=0,
            modified_ms=0,
            footer_crc=file.footer_crc,
        )


def _with_topic(topic: str, rows: pa.Table) -> pa.Table:
    return pa.table([repeated_text(topic, rows.num_rows), *rows.columns], schema=FETCH_SCHEMA)
