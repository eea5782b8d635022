"""Tells of each request to a store: which it was, how long it took, and whether the store did it."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError

Request = Literal["get", "put", "head", "list", "delete"]
Observe = Callable[[Request, float, bool], None]
"""Hears of a request, the seconds it took, and whether it failed; called on the thread that made it."""
_Method = TypeVar("_Method", bound=Callable[..., Any])
_CLOCK = SystemClock()


def unobserved(request: Request, seconds: float, failed: bool) -> None:
    return


def observed(request: Request) -> Callable[[_Method], _Method]:
    """Has a method of a store tell its `observe` of each call. An object that is absent is an answer, no failure."""

    def decorate(method: _Method) -> _Method:
        @wraps(method)
        def told(self: Any, *arguments: Any, **named: Any) -> Any:
            began, failed = _CLOCK.monotonic(), False
            try:
                return method(self, *arguments, **named)
            except SiltlogError:
                failed = True
                raise
            finally:
                self.observe(request, _CLOCK.monotonic() - began, failed)

        return cast(_Method, told)

    return decorate
