"""Queries that do not end by themselves, and the processes that run them."""

from pathlib import Path

from processes import processor_seconds

from siltlog.consumers.sql.process import MODULE

ENDLESS = "with recursive r as (select 1 as n union all select n + 1 from r) select count(*) from r, {topic}"
BUSY_SECONDS = 0.8


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
    return any(processor_seconds(child) > BUSY_SECONDS for child in children_of(pid))
