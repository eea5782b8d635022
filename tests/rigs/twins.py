"""Makes the synchronous modules that are an asynchronous one without its `async` and `await`: `make twins`.

Only the asynchronous one is written by hand. Where the two truly differ (transports, threads and tasks, waiting) each
has a module of its own under the same name, so that no twin needs a condition.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
SILENT = ("async", "await")
NAMES = (
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b(_*)Async(?=[A-Z])", r"\1"),
    (r"\b(_*)async_(?=[a-z])", r"\1"),
    (r"\b__a(?=(?:enter|exit|iter|next)__)", "__"),
    (r"\bConsumerTasks\b", "ConsumerThreads"),
    (r"(?<![A-Za-z])task(?=s?\b)", "thread"),
)
"""What every twin calls otherwise, wherever it stands: in code, in comments and in docstrings."""


class Twin(NamedTuple):
    source: str
    made: str
    phrases: Mapping[str, str]
    """Text of the source, and what the twin has in its place; each occurs there."""

    def text(self) -> str:
        text = (TOP / self.source).read_text("utf-8")
        for phrase, other in self.phrases.items():
            if phrase not in text:
                raise ValueError(f"{self.source} does not have {phrase!r}, which {self.made} says otherwise")
            text = text.replace(phrase, other)
        for pattern, other in NAMES:
            text = re.sub(pattern, other, text)
        notice = f"# Made of {Path(self.source).name} by `make twins`: change that one.\n"
        return formatted(notice + synchronous(text), self.made)


TWINS = (
    Twin(
        "infra/client/async_admin.py",
        "infra/client/admin.py",
        {"from asyncio": "from Python", "Shared by the tasks of one event loop.": "Safe from several threads."},
    ),
    Twin(
        "consumers/library/handling/async_handler_run.py",
        "consumers/library/handling/handler_run.py",
        {"in the task that": "on the thread that"},
    ),
    Twin(
        "consumers/library/async_consumer.py",
        "consumers/library/consumer.py",
        {
            "from asyncio": "from Python",
            "sources.asynchronous import": "sources.choice import",
            " A cancelled call has handed nothing out: the next goes on where it was.": "",
            "between two records, and may be coroutine functions:": "between two records, by the thread that reads:",
            "is not valid, or aiohttp is missing.": "is not valid.",
            "what it returns is awaited.": "otherwise this thread does.",
            "        Where this is cancelled the handlers are too, and what is done is committed.\n": "",
            "awaits=True": "awaits=False",
            "From any task or thread.": "From any thread.",
            "  # nothing is awaited until the return: none of it can be lost": "",
            "an AsyncConsumer": "a Consumer",
        },
    ),
)


def synchronous(text: str) -> str:
    """The code without its `async` and `await`."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kept, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in SILENT:
            kept.append(text[at : starts[token.start[0] - 1] + token.start[1]])
            at = starts[token.end[0] - 1] + token.end[1] + 1
    return "".join(kept) + text[at:]


def formatted(text: str, path: str) -> str:
    """The text as ruff leaves a file of that path: names have other lengths, and another order among imports."""
    ruff = (sys.executable, "-m", "ruff")
    for command in (("check", "--quiet", "--fix-only", "--select", "I"), ("format", "--quiet")):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", path, "-"],
            cwd=TOP, input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        text = done.stdout
    return text


if __name__ == "__main__":
    for twin in TWINS:
        (TOP / twin.made).write_text(twin.text(), "utf-8")
