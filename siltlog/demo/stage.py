"""Shows the audience how the demo runs: live bars on a terminal, plain lines elsewhere. All on standard error."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from siltlog.infra.clock import Clock

REDRAW_S = 0.1
PLAIN_LINE_S = 2.0


class Counts(NamedTuple):
    """How far it is, for the eye; the checks count for themselves."""

    published: int
    acknowledged: int
    read: int


class Stage:
    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._live = console.is_terminal

    def act(self, text: str) -> None:
        """A heading."""
        self._console.print(f"\n[bold cyan]▸[/] [bold]{text}[/]" if self._live else f"> {text}", highlight=False)

    def say(self, text: str, style: str = "") -> None:
        self._console.print(f"  {text}", style=style if self._live else "", highlight=False)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps the clients' warnings off the stage: that a server is gone is what is played."""
        log = logging.getLogger("siltlog")
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)

    @contextmanager
    def counting(self, look: Callable[[], Counts], total: int) -> Iterator[None]:
        """Shows the counts on their way to `total` until the block ends; a thread of its own calls `look` for them."""
        ended = threading.Event()
        draw = self._draw_bars if self._live else self._print_lines
        thread = threading.Thread(target=draw, args=(look, total, ended), name="demo-stage", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows that something takes a moment."""
        if self._live:
            with self._console.status(f"[dim]{text}[/]"):
                yield
        else:
            self.say(text)
            yield

    def _draw_bars(self, look: Callable[[], Counts], total: int, ended: threading.Event) -> None:
        columns = (
            TextColumn("  {task.description:<13}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, auto_refresh=False) as progress:
            published = progress.add_task("published", total=total)
            acknowledged = progress.add_task("acknowledged", total=total)
            read = progress.add_task("read", total=total)
            last = False
            while not last:
                last = ended.wait(REDRAW_S)
                counts = look()
                progress.update(published, completed=counts.published)
                progress.update(acknowledged, completed=counts.acknowledged)
                progress.update(read, completed=min(counts.read, total))
                progress.refresh()

    def _print_lines(self, look: Callable[[], Counts], total: int, ended: threading.Event) -> None:
        started = self._clock.monotonic()
        last = False
        while not last:
            last = ended.wait(PLAIN_LINE_S)
            counts = look()
            self.say(
                f"{self._clock.monotonic() - started:5.1f} s   published {counts.published:>7,}   "
                f"acknowledged {counts.acknowledged:>7,}   read {min(counts.read, total):>7,}   of {total:,}"
            )
