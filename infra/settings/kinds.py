"""The kinds of values that settings have: what a text must look like, amounts with units. All raise ValueError."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from siltlog.infra import names
from siltlog.infra.locations import (
    http_url,
    listening_at,
    named_hosts,
    networks,
    page_origins,
    redis_url,
    region_name,
    root_parts,
    url_prefix,
)
from siltlog.infra.security.exposure import insecure_words
from siltlog.infra.settings.cron import Cron
from siltlog.infra.settings.units import duration_ms, size_bytes

OFF = "off"
"""Stands for no cron expression, as an empty variable of the environment counts as unset."""


def _with_unit(parse: Callable[[str], int]) -> BeforeValidator:
    """Takes an amount with a unit too; what has no letter is left to pydantic."""

    def number(value: Any) -> Any:
        return parse(value) if isinstance(value, str) and any(map(str.isalpha, value)) else value

    return BeforeValidator(number)


def _checked(check: Callable[[str], object], *, empty: bool = False) -> AfterValidator:
    """Has `check` look at a text, an empty one only with `empty`; it raises ValueError, and changes nothing."""

    def passed(value: str) -> str:
        if value or empty:
            check(value)
        return value

    return AfterValidator(passed)


def _check_name(value: str) -> None:
    problem = names.name_problem(value)
    if problem is not None:
        raise ValueError(problem)


def _location(value: str) -> str:
    value = value.rstrip("/")
    if value:
        root_parts(value)
    return value


def _cron(value: str) -> str:
    if value in ("", OFF):
        return ""
    Cron(value)
    return value


def _file(value: str) -> str:
    return str(Path(value).expanduser().absolute()) if value else ""


def _check_redis(value: str) -> None:
    redis_url(value)
    with suppress(ModuleNotFoundError):  # who lacks the server's packages connects to no Redis either
        from siltlog.infra.redis.access import RedisAccess

        RedisAccess(value).checked()


def _rules(value: Any) -> Any:
    """Takes the tables of a file as well: as JSON, as anybody writes them elsewhere."""
    text = json.dumps(value) if isinstance(value, list) else value
    if isinstance(text, str) and text:
        from siltlog.infra.security.callers.certificate_rules import read_rules

        read_rules(text)
    return text


def _check_issuer(value: str) -> None:
    from siltlog.infra.security.callers.https import checked_url

    if checked_url(value).query:
        raise ValueError("an issuer has no query")


def _scopes(value: str) -> str:
    scopes = value.split()
    if "openid" not in scopes or not value.isascii() or not value.isprintable():
        raise ValueError("scopes are words with spaces between them, openid among them")
    return " ".join(scopes)


Millis = Annotated[int, _with_unit(duration_ms)]
Bytes = Annotated[int, _with_unit(size_bytes)]
AbsolutePath = Annotated[Path, AfterValidator(lambda value: value.expanduser().absolute())]
File = Annotated[str, AfterValidator(_file)]
Name = Annotated[str, _checked(_check_name, empty=True)]
Zone = Annotated[str, _checked(_check_name)]
CronTime = Annotated[str, AfterValidator(_cron)]
Location = Annotated[str, AfterValidator(_location)]
ListenAddress = Annotated[str, _checked(listening_at)]
HttpUrl = Annotated[str, _checked(http_url)]
RedisUrl = Annotated[str, _checked(_check_redis)]
Region = Annotated[str, _checked(region_name)]
Issuer = Annotated[str, _checked(_check_issuer)]
Rules = Annotated[str, BeforeValidator(_rules)]
Scopes = Annotated[str, AfterValidator(_scopes)]
Networks = Annotated[str, _checked(networks)]
PathPrefix = Annotated[str, _checked(url_prefix)]
Words = Annotated[str, _checked(insecure_words)]
Hosts = Annotated[str, _checked(named_hosts)]
Origins = Annotated[str, _checked(page_origins)]
