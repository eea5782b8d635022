"""What `run` may call: found out before the first record, because whatever a handler raises costs its record."""

import inspect
from collections.abc import Callable
from typing import Any

from siltlog.infra.errors import ConfigError


def check_handler(handle: Callable[..., Any], *, awaits: bool) -> None:
    """Raises ConfigError for what cannot be called with one record, or would have to be awaited and is not."""
    if not callable(handle):
        raise ConfigError(f"run takes a function of one record, not {handle!r}")
    called = handle if inspect.isroutine(handle) else type(handle).__call__
    if not awaits and (inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(called)):
        raise ConfigError("the handler is a coroutine function, which only AsyncConsumer.run awaits; give a function")
    try:
        inspect.signature(handle).bind(object())
    except TypeError:
        raise ConfigError(f"run calls {handle!r} with one record, which it does not take alone") from None
    except ValueError:
        # Of some that are written in C nobody knows what they take.
        return
