"""Keywords that several constructors take: their names, types and meaning once, in a TypedDict."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar

from siltlog.infra.client.core import CONNECT_TIMEOUT_MS
from siltlog.infra.client.credentials.credentials import Credentials, Pair, PathLike, Token
from siltlog.infra.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


class ConnectionKeywords(TypedDict, total=False):
    """Every client takes these.

    token: a key or another token that says who calls, or a function that gives one; "" for none. Without it that of
        `SILT_TOKEN`, else in the file `SILT_TOKEN_FILE`, else of the context for this server that `silt login` made.
    ca: a file with the certificates of the authorities that a server's may be of, instead of the system's.
    cert: this client's certificate: a file that has its key too, or a pair of files, certificate and key.
    connect_timeout_ms: how long a connection to a server may take until it is there, TLS and all. What it takes to
        answer is another time.
    """

    token: Token | None
    ca: PathLike | None
    cert: PathLike | Pair | None
    connect_timeout_ms: int


_OF_CONNECTIONS = frozenset(ConnectionKeywords.__annotations__)
_OF_CREDENTIALS = frozenset(field.name for field in fields(Credentials))


def credentials_of(given: Mapping[str, Any]) -> Credentials:
    """The credentials among the keywords of a client."""
    return Credentials(**{name: value for name, value in given.items() if name in _OF_CREDENTIALS})


def connect_timeout_of(given: Mapping[str, Any]) -> int:
    """The time-out for connecting, among the keywords of a client. Raises ConfigError where it is none."""
    timeout_ms: int = given.get("connect_timeout_ms", CONNECT_TIMEOUT_MS)
    check_timeout("connect_timeout_ms", timeout_ms)
    return timeout_ms


def check_timeout(name: str, given: object) -> None:
    """Raises ConfigError for what is no time-out in milliseconds."""
    if not isinstance(given, int | float) or isinstance(given, bool) or given < 1:
        raise ConfigError(f"{name} must be a number of at least 1, not {given!r}")


def options_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a client that do not say how it is connected."""
    return {name: value for name, value in given.items() if name not in _OF_CONNECTIONS}


def spelled_out(keywords: type, options: type, **defaults: object) -> Callable[[F], F]:
    """Shows the keywords in the signature and help of a constructor that takes `**options: Unpack[keywords]`.

    Defaults are those of the dataclass `options`, but for those that are given here.
    """
    known = {field.name: field.default for field in (*fields(Credentials), *fields(options))}
    known |= {"connect_timeout_ms": CONNECT_TIMEOUT_MS, **defaults}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known[name], annotation=kind)
        for name, kind in sorted(inspect.get_annotations(keywords).items(), key=lambda one: one[0] in _OF_CONNECTIONS)
    ]
    docs = [keywords.__doc__] if keywords is ConnectionKeywords else [keywords.__doc__, ConnectionKeywords.__doc__]

    def show(init: F) -> F:
        signature = inspect.signature(init)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        last = [one for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]
        parameters = [*own[: len(own) - len(last)], *shared, *last]
        init.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        init.__doc__ = "\n\n".join(inspect.cleandoc(each or "") for each in (init.__doc__, *docs))
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
