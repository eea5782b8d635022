"""A place in a topic, as an option says it: an offset, a time, or a word. One way to read it for every command."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from siltlog.cli.session import Session
from siltlog.infra.clock import MICROS_PER_SECOND, TIME_MIN_US, SystemClock, format_us, parse_us
from siltlog.infra.settings.units import duration_ms

EARLIEST, LATEST = "earliest", "latest"
OFFSET_MAX = 2**63 - 1
PLACES = "OFFSET|-COUNT|TIME|AGO"
TIMES = "a time such as 2026-11-21T07:36:00Z, a day such as 2026-11-21 or yesterday, a time ago such as 1h"
_DAY_US = 86_400 * MICROS_PER_SECOND
_NUMBER = re.compile(r"-?[0-9]{1,30}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_YEARS_LIKELY = range(1970, 2101)
_SECONDS_LIKELY = range(10**9, 4_100_000_000)
"""Below the offsets that a first take-over of a log makes."""
_MILLIS_LIKELY = range(10**12, 10**13)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in every partition: an offset, which counts from the end where it is negative, or the first record at or
    after a time."""

    offset: int | None = None
    time_us: int | None = None
    said: str | None = None
    """How a time was said that is another one later, such as `1h`."""


def parse_place(text: str, words: tuple[str, ...], now_us: int) -> Place | str:
    """Reads one of `words`, an offset, a number of offsets before the end (`-5`), or a time. Raises ValueError."""
    if text in words:
        return text
    if _NUMBER.fullmatch(text):
        number = int(text)
        if number == 0 and text.startswith("-"):
            raise ValueError(f"{text!r} is no place: the end is where it ends by itself, -1 leaves out one record")
        if abs(number) > OFFSET_MAX:
            raise ValueError(f"{text!r} is beyond every offset")
        return Place(offset=number)
    time_us = _fixed_time(text)
    if time_us is not None:
        return Place(time_us=time_us)
    time_us = _time_from(text, now_us)
    if time_us is not None:
        return Place(time_us=time_us, said=text)
    there_are = ", ".join([*words, "an offset such as 1000", "-5 for the last five of each partition", TIMES])
    raise ValueError(f"{text[:60]!r} is none of: {there_are}")


def parse_time(text: str, now_us: int) -> int | None:
    """Microseconds of an RFC 3339 time, a day (its midnight in UTC), `now`, `today`, `yesterday` or `1h` (ago).

    None for anything else. Raises ValueError, with a sentence, for a time without a zone or before the year 1.
    """
    fixed = _fixed_time(text)
    return _time_from(text, now_us) if fixed is None else fixed


def _fixed_time(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return None
    if _DAY.fullmatch(text):
        return _rfc_3339(f"{text}T00:00:00Z")
    if _rfc_3339(f"{text}Z") is not None:
        raise ValueError(f"{text!r} does not say in which zone: {text}Z is UTC")
    return _rfc_3339(text)


def _time_from(text: str, now_us: int) -> int | None:
    midnight = now_us - now_us % _DAY_US
    named = {"now": now_us, "today": midnight, "yesterday": midnight - _DAY_US}.get(text.lower())
    if named is not None:
        return named
    ago = text.removeprefix("-")
    if not ago[:1].isdigit() or ago.isdigit():
        return None
    try:
        time_us = now_us - duration_ms(ago) * 1000
    except ValueError:
        return None
    if time_us < TIME_MIN_US:
        raise ValueError(f"{text!r} is before the year 1")
    return time_us


def _rfc_3339(text: str) -> int | None:
    try:
        return parse_us(text)
    except ValueError:
        return None


def time_meant(offset: int) -> str | None:
    """The time that somebody who wrote this number as an offset may have meant: a year, a day, a Unix time."""
    digits = str(offset)
    if offset in _YEARS_LIKELY:
        return f"{digits}-01-01"
    if len(digits) == len("20261121") and int(digits[:4]) in _YEARS_LIKELY:
        try:
            return datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC).date().isoformat()
        except ValueError:
            return None
    if offset in _SECONDS_LIKELY:
        return format_us(offset * MICROS_PER_SECOND)
    return format_us(offset * 1000) if offset in _MILLIS_LIKELY else None


def place(*words: str) -> Callable[[click.Context, click.Parameter, str | None], Place | str | None]:
    """An option's callback; who writes a time as a number is told that it is an offset."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> Place | str | None:
        if text is None:
            return None
        try:
            found = parse_place(text, words, SystemClock().now_us())
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if isinstance(found, Place) and found.offset is not None:
            meant = time_meant(found.offset)
            if meant is not None:
                option = param.opts[0]
                ctx.ensure_object(Session).output.note(
                    f"{option} {text} is an offset; for a time write {option} {meant}"
                )
        return found

    return read


def moment(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """An option's callback: microseconds of a time; a whole number is milliseconds since 1970."""
    if text is None:
        return None
    try:
        found = parse_us(text) if _NUMBER.fullmatch(text) else parse_time(text, SystemClock().now_us())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if found is None:
        raise click.BadParameter(f"{text[:60]!r} is none of: {TIMES}")
    return found
