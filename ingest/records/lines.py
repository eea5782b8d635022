"""NDJSON: one value per line, stored byte for byte, or one record object per line.

`\n` ends a line, a `\r` before it is dropped, and lines of nothing but white space are passed over. Every refusal names
the line, counted from 1, and its byte where it is no JSON; a refused body has no effect.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.limits import malformed_json
from siltlog.ingest.records.body import (
    RECORDS_MAX,
    ROWS_MAX,
    Body,
    Rows,
    from_rows,
    plain_body,
    record_bytes,
    too_many_records,
)
from siltlog.ingest.records.json import body_of_records
from siltlog.ingest.records.json_columns import JsonRecord
from siltlog.ingest.records.plain import PlainRecords, keys_of, lengths_of
from siltlog.ingest.records.pointer import KeyPointer

_decode_record = msgspec.json.Decoder(JsonRecord).decode
_check_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_WHITE = b" \t\r\n"


class _Lines(NamedTuple):
    """The lines that have something, and the number of each where some have not."""

    contents: list[bytes]
    numbers: list[int] | None

    def number(self, index: int) -> int:
        return index + 1 if self.numbers is None else self.numbers[index]


def parse_value_lines(body: bytes, key_from: KeyPointer | None = None) -> Body:
    """One value per line; a line `null` is those four bytes, never a tombstone."""
    lines = _lines(body)
    values = lines.contents
    if not body.isascii():
        _check_utf8(body)
    try:
        for value in values:
            _check_syntax(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _malformed_line(body) from None
    keys = [None] * len(values) if key_from is None else _keys(lines, key_from)
    count = len(values)
    if count <= ROWS_MAX:
        nbytes = sum(record_bytes(value, key, None) for value, key in zip(values, keys, strict=True))
        rows = Rows([None] * count, list(keys), list(values), [None] * count, [-1] * count, [None] * count)
        return from_rows(rows, nbytes)
    return plain_body(PlainRecords(values, lengths_of(values), b"".join(values), keys_of(keys)))


def parse_record_lines(body: bytes, key_from: KeyPointer | None = None) -> Body:
    """One record object per line, as in a JSON body."""
    lines = _lines(body)
    if not body.isascii():
        _check_utf8(body)
    records: list[JsonRecord] = []
    try:
        for line in lines.contents:
            records.append(_decode_record(line))  # noqa: PERF401 (its length is where it stopped)
    except msgspec.ValidationError as error:
        if not _is_json(lines.contents[len(records)]):
            raise _malformed_line(body) from None
        raise _refusal(lines)(len(records), _in_words(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _malformed_line(body) from None
    return body_of_records(records, key_from, _refusal(lines))


def _lines(body: bytes) -> _Lines:
    if body.count(b"\n") > RECORDS_MAX:
        raise too_many_records()
    contents = body.split(b"\n")
    if contents[-1] == b"":
        contents.pop()
    if b"\r" in body:
        contents = [line.removesuffix(b"\r") for line in contents]
    numbers = None
    if b"" in contents or any(map(bytes.isspace, contents)):
        there = [(number, line) for number, line in enumerate(contents, 1) if line.strip(_WHITE)]
        numbers = [number for number, _ in there]
        contents = [line for _, line in there]
    if not contents:
        raise problem("invalid_request", "the body has no lines; send at least one")
    return _Lines(contents, numbers)


def _keys(lines: _Lines, key_from: KeyPointer) -> list[bytes | None]:
    keys: list[bytes | None] = []
    try:
        for value in lines.contents:
            keys.append(key_from.key(value))  # noqa: PERF401 (its length is where it stopped)
    except ValueError as error:
        raise _refusal(lines)(len(keys), str(error)) from None
    return keys


def _refusal(lines: _Lines) -> Callable[[int, str], SiltlogError]:
    def refuse(index: int, what: str) -> SiltlogError:
        line = lines.number(index)
        return problem("invalid_record", f"line {line}: {what}", index=index, line=line)

    return refuse


def _is_json(line: bytes) -> bool:
    try:
        _check_syntax(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _in_words(error: msgspec.ValidationError) -> str:
    """Returns the text without the path's `$`, which stands for nothing in a line."""
    return _PATH.sub(lambda match: f" - at `{match[1]}`" if match[1] else "", str(error))


def _check_utf8(body: bytes) -> None:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise problem(
            "malformed_body",
            f"line {line} is not UTF-8, at byte {error.start} of the body",
            line=line,
            byte=error.start,
        ) from None


def _malformed_line(body: bytes) -> SiltlogError:
    """The refusal of a body one of whose lines is no JSON: its first such line, and the byte in the body."""
    start = 0
    for number, whole in enumerate(body.split(b"\n"), 1):
        line = whole.removesuffix(b"\r")
        if line.strip(_WHITE):
            try:
                _check_syntax(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                found = malformed_json(line, error)
                byte = start + found.members.get("byte", 0)
                what = found.detail.rpartition(": ")[2]
                return problem(
                    "malformed_body",
                    f"line {number} is not valid JSON, at byte {byte} of the body: {what}",
                    line=number,
                    byte=byte,
                )
        start += len(whole) + 1
    raise AssertionError("every line is JSON")
