"""Records as they are printed: aligned lines for people, NDJSON with HTTP's names, bare values."""

import base64
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from siltlog.cli.output import emit, printable
from siltlog.cli.session import OutputFormat
from siltlog.infra.client.record import time_us
from siltlog.infra.clock import format_us

if TYPE_CHECKING:
    from siltlog.consumers.library.record import ConsumerRecord

POSITION_CHARS = 14
KEY_CHARS = 12


def document_of(record: "ConsumerRecord") -> dict[str, Any]:
    """The record as HTTP gives it: text where the bytes are UTF-8, else `value_base64`; a tombstone's value is null."""
    headers = [{"key": name, **_field("value", value)} for name, value in record.headers]
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": format_us(time_us(record.timestamp)),
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": headers,
    }


class RecordPrinter:
    """Prints records one by one as they come; `flush` after each run of them."""

    def __init__(self, format_: OutputFormat) -> None:
        self._format = format_
        self._headed = False

    def print(self, record: "ConsumerRecord", more: Mapping[str, Any] | None = None) -> None:
        """Prints a record; where it is JSON, with `more` members."""
        if self._format == "json":
            emit(json.dumps({**document_of(record), **(more or {})}, ensure_ascii=False))
        elif self._format == "value":
            if record.value is not None:
                self.flush()
                sys.stdout.buffer.write(record.value + b"\n")
        else:
            self._print_line(record)

    def flush(self) -> None:
        sys.stdout.flush()

    def _print_line(self, record: "ConsumerRecord") -> None:
        if not self._headed:
            self._headed = True
            emit(f"{'POSITION':<{POSITION_CHARS}}  {'TIMESTAMP':<24}  {'KEY':<{KEY_CHARS}}  VALUE")
        position = f"{record.partition}:{record.offset}"
        moment = format_us(time_us(record.timestamp))
        value = "(tombstone)" if record.value is None else printable(_text(record.value))
        key = "" if record.key is None else printable(_text(record.key))
        emit(f"{position:<{POSITION_CHARS}}  {moment[:-4]}Z  {key:<{KEY_CHARS}}  {value}")


def _field(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
