"""Moving the log start of a topic's partitions: the door's operation for retention and for deleting records.

Under the rules of a rewrite: on a handle at the version that its plan read, fenced by `rewrite/{p}`. So neither a
compaction planned before it nor another move lands beside it, and it does not land on settings it was not planned by.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deltalake import DeltaTable

from siltlog.infra import delta_names
from siltlog.infra.table.data_file import DataFile
from siltlog.infra.table.delta import live_paths, remove_action
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.table.table import TopicTable


@dataclass(frozen=True, slots=True)
class StartMove:
    """The log start of one partition moves to `start`; `files` lie wholly below it and go."""

    partition: int
    before: int
    start: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """The rows of its files, including those that were below the log start before."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def start_move(snapshot: TableSnapshot, partition: int, start: int) -> StartMove:
    """Everything wholly below `start` goes; a file that straddles it stays, and readers hide its rows below."""
    files = []
    for file in snapshot.files_of(partition):
        if file.last_offset >= start:
            break
        files.append(file)
    return StartMove(partition, snapshot.starts[partition], start, tuple(files))


def move_starts(
    table: TopicTable, plan_version: int, moves: Mapping[int, StartMove], commit_id: str, *, now_ms: int
) -> TableSnapshot:
    """Moves log starts and removes the files below them, in one commit that streaming readers see as a deletion.

    `plan_version` is the version that the moves were planned on. Raises ValueError for a move that lowers a start or
    goes past the table offset, Fenced when a rewrite, another move or a change of the topic came first (plan anew),
    UnknownTopic, OutcomeUnknown, Unavailable.
    """
    handle = table.planned_handle(plan_version)
    _check_moves(handle, moves)
    actions = [remove_action(file, data_change=True, now_ms=now_ms) for move in moves.values() for file in move.files]
    transactions = {name: number for move in moves.values() for name, number in _transactions(move, plan_version)}
    return table.commit_planned(handle, actions, transactions, commit_id)


def _transactions(move: StartMove, plan_version: int) -> Iterator[tuple[str, int]]:
    yield delta_names.txn_start(move.partition), move.start
    yield delta_names.txn_rewrite(move.partition), plan_version + 1


def _check_moves(handle: DeltaTable, moves: Mapping[int, StartMove]) -> None:
    live = live_paths(handle)
    for partition, move in moves.items():
        start = handle.transaction_version(delta_names.txn_start(partition)) or 0
        table_offset = handle.transaction_version(delta_names.txn_offset(partition)) or 0
        if not start <= move.start <= table_offset:
            raise ValueError(
                f"the log start of partition {partition} is {start} and its table offset {table_offset}: it cannot "
                f"move to {move.start}"
            )
        for file in move.files:
            if file.partition != partition or file.last_offset >= move.start:
                raise ValueError(f"{file.path} holds offset {file.last_offset}, which {move.start} keeps")
            if file.path not in live:
                raise ValueError(f"{file.path} is not in version {handle.version()}")
