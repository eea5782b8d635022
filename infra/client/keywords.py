"""Keywords that several constructors take: their names, types and meaning once, in a TypedDict."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(keywords: type, options: type, **defaults: object) -> Callable[[F], F]:
    """Shows the keywords in the signature and help of a constructor that takes `**options: Unpack[keywords]`.

    Defaults are those of the dataclass `options`, but for those that are given here.
    """
    known = {field.name: field.default for field in fields(options)} | defaults
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known[name], annotation=kind)
        for name, kind in inspect.get_annotations(keywords).items()
    ]

    def show(init: F) -> F:
        signature = inspect.signature(init)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        last = [one for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]
        parameters = [*own[: len(own) - len(last)], *shared, *last]
        init.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        init.__doc__ = "\n\n".join(inspect.cleandoc(each.__doc__ or "") for each in (init, keywords))
        return init

    return show


def check_known(constructor: str, given: Iterable[str], keywords: type) -> None:
    """Raises TypeError for what is no keyword, and names the one that is most like it."""
    known = inspect.get_annotations(keywords)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{constructor}() got an unexpected keyword argument {name!r}{meant}")
