"""Queries that do not end by themselves, and the processes that run them."""

from pathlib import Path

from processes import stat_of

from siltlog.consumers.sql.process import MODULE

ENDLESS = "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r, {topic}"
BUSY_TICKS = 80


def children_of(pid: int) -> list[int]:
    """The processes of queries that a server has."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"\0{MODULE}\0{pid}\0" in (process / "cmdline").read_text():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def is_busy(pid: int) -> bool:
    """Whether a query of the server has worked for longer than its process takes to start."""
    return any(_ticks(child) > BUSY_TICKS for child in children_of(pid))


def _ticks(pid: int) -> int:
    """The processor time that it took, in hundredths of a second."""
    return sum(int(ticks) for ticks in stat_of(pid)[11:13])
