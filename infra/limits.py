"""Bounds of numbers that come from outside, and what a body is refused with that goes past one, whatever brought it."""

import re

from siltlog.infra.errors import SiltlogError, problem

INTEGER_MAX = 2**53 - 1
"""The largest integer that every JSON parser reads exactly (RFC 8259, section 6)."""
PARTITION_MAX = 2**31 - 1
EPOCH_MAX = 2**31 - 1
MEMBER_TIMEOUT_MS_MIN = 100
MEMBER_TIMEOUT_MS_MAX = 3_600_000
"""Between these are the session and the rebalance time-out of a group's member, whatever a server's settings say."""
TURN_ITEMS = 256
"""So many small things of one request are done on an event loop before all others have their turn."""
FILE_BYTES_TARGET = 128 * 1024 * 1024
"""How large compaction makes files."""
COMPACTED_FILE_BYTES_MIN = FILE_BYTES_TARGET // 2
"""Files of this size and above are left as they are."""
_DIGITS_MAX = 20
_LONE_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")


def whole_number(text: str) -> int | None:
    """The number that `text` is the ASCII digits of; None for anything else."""
    if not text.isascii() or not text.isdigit():
        return None
    # Beyond any number here; int() refuses thousands of digits with an error of its own.
    return int(text) if len(text) <= _DIGITS_MAX else 10**_DIGITS_MAX


def too_large(bytes_max: int) -> SiltlogError:
    return problem(
        "request_too_large",
        f"the body is above the limit of {bytes_max} bytes; send smaller batches",
        limit=bytes_max,
    )


def malformed_json(body: bytes, error: Exception) -> SiltlogError:
    """400 for a body that `msgspec` cannot read as JSON; it names the byte, but where nesting was too deep."""
    if isinstance(error, RecursionError):
        return problem("malformed_body", "the body is not taken: its JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        # The error may be of a text within the body, and count from there.
        byte = _text_end(body)
        return problem("malformed_body", f"the body is not UTF-8 at byte {byte}", byte=byte)
    what, _, place = str(error).removeprefix("JSON is malformed: ").rpartition(" (byte ")
    if what:
        byte = int(place.rstrip(")"))
    elif surrogate := _LONE_SURROGATE.search(body):
        what, byte = "lone surrogate", surrogate.start(1)
    else:
        what, byte = "it ends too early", len(body)
    return problem("malformed_body", f"the body is not valid JSON at byte {byte}: {what}", byte=byte)


def _text_end(body: bytes) -> int:
    """Where `body` stops being UTF-8."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return len(body)
