"""A place in a topic, as an option says it: an offset, a time, or a word."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from siltlog.infra.clock import parse_us

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in every partition: an offset, or the first record at or after a time."""

    offset: int | None
    time_us: int | None


def place(*words: str) -> Callable[[click.Context, click.Parameter, str | None], Place | str | None]:
    """Reads an offset, an RFC 3339 time, or one of `words`."""

    def read(_: click.Context, __: click.Parameter, text: str | None) -> Place | str | None:
        if text is None or text in words:
            return text
        if text.isascii() and text.isdigit():
            return Place(int(text), None)
        try:
            return Place(None, parse_us(text))
        except ValueError:
            if _is_time(f"{text}Z"):
                raise click.BadParameter(f"{text!r} does not say in which zone: {text}Z is UTC") from None
            there_are = ", ".join([*words, "an offset such as 1000", "a time such as 2026-11-21T07:36:00Z"])
            raise click.BadParameter(f"{text!r} is none of: {there_are}") from None

    return read


def _is_time(text: str) -> bool:
    try:
        parse_us(text)
    except ValueError:
        return False
    return True
