"""Results on standard output, everything else on standard error: tables, JSON, bare values, progress."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from siltlog.cli.session import OutputFormat

PLAIN_WIDTH = 1_000
"""Columns of a table that goes to a file or a pipe: nothing is cut."""
PADDING = (0, 2, 0, 0)
TYPED_AGAIN = ("offset", "watermark", "generation", "partition", "before", "after")
"""How names of numbers end that are places, not amounts: people type them again, so they have no separators."""
Row = Mapping[str, Any]


class ResultConsole(Console):
    """A console whose closed pipe is an error of ours to handle, not rich's to exit on."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def show(*renderables: Any) -> None:
    """Prints tables and text as the result; where that is no terminal nothing is cut and no line ends in blanks."""
    terminal = sys.stdout.isatty()
    console = ResultConsole(file=sys.stdout, highlight=False, width=None if terminal else PLAIN_WIDTH)
    if terminal:
        console.print(*renderables, sep="\n", crop=False)
        return
    with console.capture() as capture:
        console.print(*renderables, sep="\n")
    for line in capture.get().splitlines():
        emit(line.rstrip())


def error_console() -> Console:
    return ResultConsole(file=sys.stderr, highlight=False, soft_wrap=True)


def progress(transient: bool = True) -> Progress:
    """A progress bar on standard error; draws nothing when that is no terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=transient,
        disable=not sys.stderr.isatty(),
    )


class TopicBars:
    """A bar for each topic that a job comes to."""

    def __init__(self, bars: Progress, what: str) -> None:
        """`what` stands before a topic's name: "compacting"."""
        self._bars = bars
        self._what = what
        self._tasks: dict[str, TaskID] = {}

    def advance(self, topic: str, done: int, planned: int) -> None:
        """Shows how far a job is, in whatever unit it counts."""
        if topic not in self._tasks:
            self._tasks[topic] = self._bars.add_task(f"{self._what} {topic}")
        self._bars.update(self._tasks[topic], completed=done, total=planned)


@contextmanager
def publish_progress(
    topic: str, total: int | None, what: str = "publishing to"
) -> Iterator[Callable[[int, int, int], None]]:
    """A bar with rate and time left; called with the records published, those that were there, and the place."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[records]:,} records, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(f"{what} {topic}", total=total, records=0, rate=0.0)

        def show(count: int, already: int, position: int) -> None:
            elapsed = bar.tasks[0].elapsed or 0.0
            bar.update(task, completed=position, records=count + already, rate=count / elapsed if elapsed else 0.0)

        yield show


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A spinner on standard error; draws nothing when that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(file=sys.stderr).status(text):
        yield


class Output:
    """Prints results in one of the three forms. Fields are named as in HTTP."""

    def __init__(self, format_: OutputFormat) -> None:
        self.format = format_

    def document(self, document: Any, *, value: Iterable[Any] | None = None, tables: Iterable[Table] = ()) -> None:
        """One result: as JSON, as bare `value` lines, or as `tables` for people."""
        if self.format == "json":
            emit(json.dumps(document, ensure_ascii=False))
        elif self.format == "value":
            for item in value if value is not None else ():
                emit(plain(item))
        else:
            show(*tables)

    def note(self, text: str) -> None:
        """A remark for a person, on standard error."""
        if self.format == "table":
            error_console().print(text, style="dim", markup=False)


def emit(line: str) -> None:
    """One line of the result. A closed pipe raises BrokenPipeError, which ends the command with success."""
    sys.stdout.write(line + "\n")


def grid(
    rows: Sequence[Row],
    columns: Sequence[str],
    *,
    title: str | None = None,
    titles: Sequence[str] = (),
    numbers: Iterable[str] = (),
) -> Table:
    """A table of `rows`; the columns in `numbers` are right-aligned. `titles` head them unless their names do."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False, padding=PADDING)
    right = frozenset(numbers)
    for index, column in enumerate(columns):
        table.add_column(
            titles[index] if titles else column.upper().replace("_", " "),
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=not sys.stdout.isatty(),
        )
    for row in rows:
        table.add_row(*(Text(_cell(column, row.get(column))) for column in columns))
    return table


def pairs(entries: Mapping[str, Any], *, title: str | None = None) -> Table:
    """A table of names and values."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False, padding=PADDING)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in entries.items():
        table.add_row(name.replace("_", " "), Text(_cell(name, value)))
    return table


def _cell(name: str, value: Any) -> str:
    return str(value) if isinstance(value, int) and name.endswith(TYPED_AGAIN) else printable(value)


def plain(value: Any) -> str:
    """A value as a shell wants it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def printable(value: Any) -> str:
    """A value in a table: no control character of a record reaches the terminal."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    text = plain(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
