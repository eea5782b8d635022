"""What `run` refuses to call, before a record is lost to it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.options import check_handler
from siltlog.infra.errors import ConfigError


class Handler:
    def __call__(self, record: Any) -> None: ...

    def handle(self, record: Any) -> None: ...


class AsyncHandler:
    async def __call__(self, record: Any) -> None: ...

    async def handle(self, record: Any) -> None: ...


def two(record: Any, other: Any) -> None: ...


def none() -> None: ...


async def waits(record: Any) -> None: ...


@pytest.mark.parametrize(
    "handle",
    [print, list[Any]().append, lambda record: record, Handler(), Handler().handle, partial(two, 1)],
    ids=["builtin", "method-in-c", "lambda", "object", "method", "partial"],
)
def test_what_takes_a_record_may_be_called(handle: Callable[..., Any]) -> None:
    check_handler(handle, awaits=False)
    check_handler(handle, awaits=True)


@pytest.mark.parametrize(
    "handle",
    [waits, AsyncHandler(), AsyncHandler().handle, partial(waits)],
    ids=["function", "object", "method", "partial"],
)
def test_a_coroutine_function_is_for_who_awaits_it(handle: Callable[..., Any]) -> None:
    check_handler(handle, awaits=True)
    with pytest.raises(ConfigError, match=r"AsyncConsumer\.run"):
        check_handler(handle, awaits=False)


@pytest.mark.parametrize("handle", [None, "handle", none, two], ids=["none", "name", "no-record", "more"])
def test_what_takes_no_record_is_refused(handle: Any) -> None:
    for awaits in (False, True):
        with pytest.raises(ConfigError, match="one record"):
            check_handler(handle, awaits=awaits)


def test_a_consumer_asks_first() -> None:
    with Consumer("http://127.0.0.1:1", group="g", topics="t") as consumer, pytest.raises(ConfigError):
        consumer.run(waits)
