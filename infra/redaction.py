"""Takes credentials out of text that somebody will read: log lines, errors that quote others', what a child said.

What is quoted of a foreign error is nobody's choice, so it is done where text leaves, whatever the text is about.
"""

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

HIDDEN = "***"
VALUE_CHARS_MIN = 6
"""A shorter secret is a word of other texts too, and guessed anyway."""
_MAY_HOLD = re.compile(r"silt_|bearer|basic|eyJ|://|=|PRIVATE KEY", re.IGNORECASE)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
        f"PRIVATE KEY {HIDDEN}",
    ),
    # Its id stays: it is in lists of keys too, and says whose it was.
    (re.compile(r"(silt_[0-9A-Za-z]{12}_)[0-9A-Za-z]{16,}", re.ASCII), rf"\1{HIDDEN}"),
    # In a sealed one (JWE) nothing is between the first two dots.
    (re.compile(r"\beyJ[\w-]{6,}\.\.?[\w-]{2,}(?:\.[\w-]*)*", re.ASCII), HIDDEN),
    (
        re.compile(r"\b(bearer|basic)(\s+|%20|\.)(?=[\w.~+/=-]*[\w=])[\w.~+/=-]{8,}", re.IGNORECASE | re.ASCII),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(://[^\s/:@\"'<>]*):[^\s/\"'<>]*@"), rf"\1:{HIDDEN}@"),
    (re.compile(r"://[^\s/:@\"'<>]+@"), f"://{HIDDEN}@"),
    (
        re.compile(
            r"((?:password|passwd|secret|secret[_-]?(?:access[_-]?)?key|token|signature|x-amz-credential)=)[^\s&\"',;)]+",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
)
_ADDRESS = re.compile(r"^((?:[\w+.-]*://)?[^:/@]*):.*@", re.DOTALL)


def redacted(text: str) -> str:
    """`text` without API keys, tokens, private keys, and passwords in addresses or behind `password=`."""
    if _MAY_HOLD.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def without_password(address: str) -> str:
    """`redis://user:***@host` of an address that somebody wrote, maybe wrong, with any character in its password."""
    return redacted(_ADDRESS.sub(rf"\1:{HIDDEN}@", address))


class Redaction:
    """`redacted`, and secrets that are known by their values."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values if len(value) >= VALUE_CHARS_MIN for form in _quoted(value)}
        # The longer first: another may be a part of it.
        self._values = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, HIDDEN)
        return redacted(text)

    def __repr__(self) -> str:
        return f"Redaction({len(self._values)} values)"


def _quoted(value: str) -> tuple[str, ...]:
    """The value, and as it stands inside the quotes of JSON and of Python."""
    return value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]


def hide_in_others(hide: Redaction) -> None:
    """Has what libraries log, warnings and worse, and errors that nobody caught pass `hide` on their way to stderr."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(HidingFormatter("%(message)s", hide))
    logging.basicConfig(handlers=[handler], force=True)
    hide_in_tracebacks(hide)


def hide_in_tracebacks(hide: Redaction) -> None:
    """Has the traceback of an error that nobody caught pass `hide`."""

    def say(kind: type[BaseException], error: BaseException | None, place: Any) -> None:
        sys.stderr.write(hide("".join(traceback.format_exception(kind, error, place))))

    def say_of_thread(told: threading.ExceptHookArgs) -> None:
        if told.exc_type is not SystemExit:
            say(told.exc_type, told.exc_value, told.exc_traceback)

    sys.excepthook = say
    threading.excepthook = say_of_thread


class HidingFormatter(logging.Formatter):
    """Formats records of the standard library's loggers, with their tracebacks."""

    def __init__(self, form: str, hide: Redaction) -> None:
        super().__init__(form)
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        return self._hide(super().format(record))
