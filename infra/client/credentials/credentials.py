"""The credentials of a client, and where its token may go. Pure."""

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from siltlog.infra.client.endpoints import UNIX, is_loopback
from siltlog.infra.errors import ConfigError

PathLike = str | os.PathLike[str]
Pair = tuple[PathLike, PathLike]
"""A certificate and its key."""
Token = str | Callable[[], str | Awaitable[str]]
"""A token, or what gives the one that holds now; for a client of asyncio it may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is None is looked for elsewhere; an empty token is none."""

    token: Token | None = field(default=None, repr=False)
    ca: PathLike | None = None
    cert: PathLike | Pair | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot be a token or a certificate."""
        if not (self.token is None or isinstance(self.token, str) or callable(self.token)):
            raise ConfigError("token= is a text, or a function that gives one")
        if isinstance(self.token, str) and self.token:
            check_token(self.token)
        for name, given in (("ca", self.ca), ("cert", self.cert)):
            paths = given if name == "cert" and isinstance(given, tuple) and len(given) == len("ck") else (given,)
            if not all(path is None or isinstance(path, str | os.PathLike) for path in paths):
                raise ConfigError(f"{name}= is the path of a file{', or two: certificate and key' * (name == 'cert')}")

    @property
    def keywords(self) -> dict[str, Any]:
        """What a client's constructor takes them by."""
        return {"token": self.token, "ca": self.ca, "cert": self.cert}


def check_token(token: object) -> str:
    """Gives it back. Raises ConfigError, without it, for what no header field can carry (RFC 6750 section 2.1)."""
    if not isinstance(token, str):
        raise ConfigError(f"a token is a text, not {type(token).__name__}")
    if not token:
        raise ConfigError("the token is empty")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError("the token has a space, a line end or another character that no token has")
    return token


def check_blocking(token: Token | None) -> None:
    """Raises ConfigError for a function that only asyncio can await."""
    if token is None or isinstance(token, str):
        return
    called = token if inspect.isroutine(token) else type(token).__call__
    if inspect.iscoroutinefunction(token) or inspect.iscoroutinefunction(called):
        raise ConfigError("token= is a coroutine function, which only the clients for asyncio await; give a function")


def check_may_carry(urls: Iterable[str]) -> None:
    """Raises ConfigError where a token would go to another machine in plain text."""
    for url in urls:
        if not url.startswith(UNIX) and urlsplit(url).scheme != "https" and not is_loopback(url):
            raise ConfigError(
                f"a token does not go to {url} over plain http, where anybody on the way can read it: use https://, or "
                "leave the token out"
            )
