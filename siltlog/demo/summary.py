"""The end of the demo: what happened, whether it holds, what to type next."""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from siltlog.demo.result import Check, Result, Table
from siltlog.infra import names

MIB = 1024 * 1024
QUERY = "select string(key) as carrier, count(*) as flights from flights group by 1 order by 2 desc"
INDENT = (0, 0, 0, 2)


def summary(result: Result) -> Group:
    """The whole of it, to be printed."""
    parts: list[RenderableType] = [
        "",
        Text.from_markup(f"[bold]Siltlog demo[/]  {result.records:,} flights, {result.seconds:.0f} s"),
        *section("The log", _log_lines(result)),
        *section("The kill", _kill_lines(result)),
    ]
    if result.table is not None:
        parts += section("The table, by Spark", _table_lines(result.table))
        parts += ["", Padding(_carriers(result.table), INDENT, expand=False)]
    else:
        parts += section("The table", iter([("left out", result.without_spark)]))
    parts += [*section("Checks", check_lines(result.checks)), *_next_steps(result)]
    return Group(*parts)


def section(title: str, lines: Iterator[tuple[str, str]]) -> list[RenderableType]:
    grid = Grid.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=22)
    grid.add_column()
    for name, value in lines:
        grid.add_row(name, value)
    return ["", Text.from_markup(f"[bold cyan]{title}[/]"), Padding(grid, INDENT, expand=False)]


def _log_lines(result: Result) -> Iterator[tuple[str, str]]:
    equal = "[green]=[/]" if result.published == result.acknowledged == result.read else "[red]≠[/]"
    yield (
        "records",
        (
            f"[bold]{result.published:,}[/] published {equal} [bold]{result.acknowledged:,}[/] acknowledged {equal} "
            f"[bold]{result.read:,}[/] read"
        ),
    )
    readers = ", ".join(f"{member} {count:,}" for member, count in sorted(result.members.items()))
    again = f"; {result.repeated:,} delivered again after the kill" if result.repeated else "; none delivered twice"
    yield "a group of two", f"{readers}{again}"
    if result.burst_s > 0:
        yield (
            "throughput",
            (
                f"[bold]{result.burst_records / result.burst_s:,.0f} records/s[/], "
                f"{result.burst_bytes / result.burst_s / MIB:,.0f} MiB/s, every one on disk before its ack "
                f"(the last {result.burst_records:,}, as fast as one Python producer sends)"
            ),
        )
    ack = result.ack_ms
    yield (
        "acknowledged in",
        (
            f"p50 [bold]{ack.p50:.1f} ms[/]  p99 [bold]{ack.p99:.1f} ms[/]  "
            f"({ack.count:,} records published one at a time beside {result.steady_records_per_s:,.0f}/s)"
        ),
    )
    fresh = result.freshness_ms
    yield (
        "in the table after",
        (
            f"p50 [bold]{fresh.p50 / 1000:.2f} s[/]  p99 [bold]{fresh.p99 / 1000:.2f} s[/]  "
            f"(from the ack to the commit that a query sees; of the same records, the kill included)"
        ),
    )


def _kill_lines(result: Result) -> Iterator[tuple[str, str]]:
    kill = result.kill
    if kill is None:
        yield "", "it did not come to that"
        return
    yield (
        "SIGKILL",
        (f"after {kill.acknowledged:,} acknowledged records, with {kill.unanswered:,} on their way or waiting"),
    )
    lost = kill.acknowledged - kill.recovered
    verdict = "[green]nothing lost[/]" if not lost else f"[red]{lost:,} lost[/]"
    yield "recovered", f"[bold]{kill.recovered:,}[/] of {kill.acknowledged:,}: {verdict}"
    yield (
        "up again in",
        (f"[bold]{kill.restart_s:.2f} s[/]; the publisher noticed only a wait of {kill.longest_ack_ms / 1000:.2f} s"),
    )


def _table_lines(table: Table) -> Iterator[tuple[str, str]]:
    yield "rows", f"[bold]{table.rows:,}[/], {table.distinct:,} distinct (partition, offset)"
    yield (
        "compaction",
        (
            f"[bold]{table.files_before:,} files → {table.files_after:,}[/], {table.bytes_before / MIB:.1f} → "
            f"{table.bytes_after / MIB:.1f} MiB, in {table.compaction_s:.1f} s"
        ),
    )


def _carriers(table: Table) -> Grid:
    grid = Grid(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    grid.add_column("latest on arrival", min_width=22)
    for column in ("flights", "min late leaving", "min late arriving"):
        grid.add_column(column, justify="right")
    for carrier in table.carriers:
        grid.add_row(
            f"{carrier.code} {carrier.name}",
            f"{carrier.flights:,}",
            f"{carrier.departure_delay_min:.1f}",
            f"{carrier.arrival_delay_min:.1f}",
        )
    return grid


def check_lines(checks: Sequence[Check]) -> Iterator[tuple[str, str]]:
    for check in checks:
        mark = "[green]✓[/]" if check.ok else "[bold red]✗[/]"
        yield f"{mark} {check.name}", check.detail if check.ok else f"[red]{check.detail}[/]"


def _next_steps(result: Result) -> list[RenderableType]:
    folder = shown(result.data_dir)
    lake = shown(result.data_dir / names.LAKE_FOLDER)
    return next_lines(
        f"silt serve --data-dir {folder}",
        "silt consume flights --max-records 5",
        f'silt query --data-dir {folder} "{QUERY}"',
        f"{lake}/topics/flights   is a Delta table: open it with Spark, DuckDB, Polars or Trino",
    )


def next_lines(*commands: str) -> list[RenderableType]:
    return [
        "",
        Text.from_markup("[bold cyan]Next[/]"),
        *(Text(f"  {command}", no_wrap=True, overflow="ignore") for command in commands),
    ]


def shown(path: Path) -> str:
    """Relative where that is shorter to type, quoted for a shell."""
    relative = os.path.relpath(path)
    return shlex.quote(f"./{relative}" if not relative.startswith("..") else str(path))
