"""Has what the product does on several threads at once done in order on one, so that a seed always tells the same."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from siltlog.infra.cluster import steps
from siltlog.ingest.journal import reader


class InOrder:
    def __init__(self, threads: int) -> None:
        """However many there might be."""

    def __enter__(self) -> "InOrder":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is under way."""

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        return map(function, values)


@contextmanager
def one_thread() -> Iterator[None]:
    with patch.object(reader, "ThreadPoolExecutor", InOrder), patch.object(steps, "ThreadPoolExecutor", InOrder):
        yield
