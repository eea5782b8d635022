"""The formats of a publish: what says which one a body has, its own parameters, and how it is read."""

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.http.coding import request_coding
from siltlog.infra.http.query import Query
from siltlog.ingest.records.arrow import parse_arrow
from siltlog.ingest.records.arrow_messages import inflated_within
from siltlog.ingest.records.body import Body, HeaderList, one_record, timestamp_us
from siltlog.ingest.records.json import decode_base64, parse_json
from siltlog.ingest.records.lines import parse_record_lines, parse_value_lines
from siltlog.ingest.records.pointer import KeyPointer

PARAMETERS: Mapping[str, frozenset[str]] = {
    names.MEDIA_JSON: frozenset(("key_from",)),
    names.MEDIA_NDJSON: frozenset(("key_from", "lines")),
    names.MEDIA_BYTES: frozenset(("key", "key_base64", "timestamp")),
    names.MEDIA_ARROW: frozenset(),
}
"""Each media type that is taken, and the query parameters that only it has."""

LINES = ("value", "record")
FORM_MEDIA = "application/x-www-form-urlencoded"
THREAD_BYTES_MIN = 1024 * 1024
"""Bodies from this size on are parsed on a thread: the event loop would stand still for milliseconds."""
ARROW_THREAD_BYTES_MIN = 8 * 1024 * 1024
THREADS = 2

_RECORD_PREFIX = names.HEADER_RECORD_PREFIX.lower().encode()
_RECORD_HEADER = names.HEADER_RECORD_PREFIX.lower()


def checked_media(headers: Mapping[str, str]) -> str:
    """The media type of a body, by its request's headers (names in lower case).

    Raises Refused `unsupported_media_type` that says what to send, `invalid_request` for headers of another format.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in PARAMETERS:
        offered = ", ".join(PARAMETERS)
        if media in ("", FORM_MEDIA):
            detail = (
                f"say what the body is, one of {offered}: with curl add -H 'Content-Type: {names.MEDIA_JSON}' for one "
                f"document, or -H 'Content-Type: {names.MEDIA_NDJSON}' for one value per line, and send files with "
                "--data-binary"
            )
        else:
            detail = f"{media[:80]} is not taken here; send one of {offered}"
        raise problem("unsupported_media_type", detail)
    if media != names.MEDIA_BYTES and any(name.startswith(_RECORD_HEADER) for name in headers):
        raise problem(
            "invalid_request",
            f"{names.HEADER_RECORD_PREFIX}… is for a body of one record; give each record its headers",
        )
    return media


def checked_coding(headers: Mapping[str, str]) -> str:
    """The content coding of a body; empty for none. Raises Refused `unsupported_encoding`."""
    encoding = headers.get("content-encoding")
    return "" if encoding is None else request_coding(encoding)


class BodyParser:
    """Parses bodies; the large ones on threads of their own, so few that what parsing takes at once is bounded."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` is what an Arrow body may become once its buffers are inflated."""
        self.reconfigure(bytes_max)
        self._threads = ThreadPoolExecutor(THREADS, "parse")

    def reconfigure(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max

    async def parsed(self, media: str, content: bytes, fields: Iterable[tuple[bytes, bytes]], query: Query) -> Body:
        """The body as columns; `fields` are the request's headers, whose order counts for a body of one record.

        Raises Refused that names the byte, the line or the record's index.
        """
        if media == names.MEDIA_BYTES:
            return _parse_one(content, fields, query)
        if _quick(media, content):
            return _parse(media, content, query, self._bytes_max)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _parse, media, content, query, self._bytes_max)


def _quick(media: str, content: bytes) -> bool:
    if media != names.MEDIA_ARROW:
        return len(content) < THREAD_BYTES_MIN
    # Arrow is only looked at, unless its buffers are compressed.
    return len(content) < ARROW_THREAD_BYTES_MIN and inflated_within(content, THREAD_BYTES_MIN)


def _parse(media: str, content: bytes, query: Query, bytes_max: int) -> Body:
    if media == names.MEDIA_ARROW:
        return parse_arrow(content, bytes_max)
    key_from = KeyPointer(query.text("key_from")) if "key_from" in query else None
    if media == names.MEDIA_JSON:
        return parse_json(content, key_from)
    if query.choice("lines", LINES, "value") == "record":
        return parse_record_lines(content, key_from)
    return parse_value_lines(content, key_from)


def _parse_one(content: bytes, fields: Iterable[tuple[bytes, bytes]], query: Query) -> Body:
    if "key" in query and "key_base64" in query:
        raise problem("invalid_parameter", "key and key_base64 are both given; send one", parameter="key_base64")
    key = query.text("key").encode() if "key" in query else None
    if "key_base64" in query:
        try:
            key = decode_base64(query.text("key_base64"), "key_base64")
        except ValueError as error:
            raise problem("invalid_parameter", str(error), parameter="key_base64") from None
    timestamp = None
    if "timestamp" in query:
        try:
            timestamp = timestamp_us(query.text("timestamp"))
        except ValueError as error:
            raise problem("invalid_request", f"timestamp: {error}") from None
    own: HeaderList = [
        (name.removeprefix(_RECORD_PREFIX).decode("latin-1"), value)
        for name, value in fields
        if name.startswith(_RECORD_PREFIX)
    ]
    return one_record(content, key, own or None, timestamp)
