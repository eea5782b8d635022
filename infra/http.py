"""What every HTTP handler of the server shares: parameters, bodies, replies."""

import asyncio
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.clock import parse_us
from siltlog.infra.errors import SiltlogError, problem, problem_document

T = TypeVar("T")

INTEGER_MAX = 2**53 - 1
BODY_TIMEOUT_MS = 30_000
BODY_LOOK_SECONDS = 0.05
_DIGITS_MAX = 20
_LONE_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})(?!\\u[dD][c-fC-F])")
_JSON = msgspec.json.Encoder()
_NO_STORE = {"Cache-Control": "no-store"}
_JSON_HEADERS = [(b"content-type", names.MEDIA_JSON.encode()), (b"cache-control", b"no-store")]


class JsonReply:
    """`json_reply` as a bare ASGI application, without what the hot path can spare."""

    def __init__(self, document: Any, status: int = 200) -> None:
        self.body = _JSON.encode(document)
        self.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_JSON.encode(document), status, {**_NO_STORE, **(headers or {})}, names.MEDIA_JSON)


def problem_reply(error: SiltlogError, request_id: str | None) -> Response:
    document = problem_document(error, request_id)
    headers = dict(_NO_STORE)
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    if error.error_code == "request_timeout":
        # The rest of the body is still to come, and nothing behind it could be read.
        headers["Connection"] = "close"
    return Response(_JSON.encode(document), document["status"], headers, names.MEDIA_PROBLEM)


class Query:
    """The query of a request. Raises Refused `invalid_parameter` that names the parameter."""

    def __init__(self, request: HTTPConnection, allowed: Iterable[str]) -> None:
        self._values: dict[str, str] = {}
        if not (text := request.scope["query_string"]):
            return
        known = frozenset(allowed)
        try:
            pairs = parse_qsl(text.decode("utf-8"), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise problem(
                "invalid_parameter", "the query is not UTF-8; send bytes that are no text as base64", parameter=""
            ) from None
        for name, value in pairs:
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                raise problem(
                    "invalid_parameter",
                    f"there is no parameter {name[:80]!r} here; there are: {there}",
                    parameter=name[:80],
                )
            if name in self._values:
                raise problem("invalid_parameter", f"the parameter {name} is given twice; give it once", parameter=name)
            self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def integer(
        self, name: str, default: int, *, minimum: int = 0, maximum: int = INTEGER_MAX, cut: bool = False
    ) -> int:
        """A whole number in [minimum, maximum]; with `cut` one above the maximum becomes the maximum."""
        text = self._values.get(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None or number < minimum or (number > maximum and not cut):
            raise problem(
                "invalid_parameter",
                f"{name} must be a whole number from {minimum} to {maximum}, not {text[:80]!r}",
                parameter=name,
            )
        return min(number, maximum)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._values.get(name, default)
        if value not in choices:
            raise problem(
                "invalid_parameter",
                f"{name} must be one of {', '.join(choices)}, not {value[:80]!r}",
                parameter=name,
            )
        return value

    def time_us(self, name: str) -> int | None:
        """Microseconds; Refused `invalid_request` (422) where it is no time."""
        text = self._values.get(name)
        if text is None:
            return None
        try:
            return parse_us(text)
        except ValueError as error:
            raise problem("invalid_request", f"{name}: {error}") from None


def whole_number(text: str) -> int | None:
    """The number that `text` is the ASCII digits of; None for anything else."""
    if not text.isascii() or not text.isdigit():
        return None
    # Beyond any number here; int() refuses thousands of digits with an error of its own.
    return int(text) if len(text) <= _DIGITS_MAX else 10**_DIGITS_MAX


class BodyReader:
    """Reads whole bodies of at most `bytes_max`, each within `timeout_ms`.

    One timer looks after all that are being read: a timer each would cost a small publish a tenth of its time.
    """

    def __init__(self, bytes_max: int, timeout_ms: int = BODY_TIMEOUT_MS) -> None:
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, receive: Receive, content_length: str) -> bytes:
        """Refuses a body above the limit as soon as it is known to be, and one that takes too long (408)."""
        if content_length.isdigit() and int(content_length) > self._bytes_max:
            raise too_large(self._bytes_max)
        task = asyncio.current_task()
        assert task is not None
        self._watch(task)
        try:
            return await self._read(receive)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            raise problem(
                "request_timeout", f"the body did not arrive within {self._timeout_ms} ms; send it faster"
            ) from None
        finally:
            del self._ends[task]

    async def _read(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise problem("malformed_body", "the connection ended before the body was complete")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._bytes_max:
                raise too_large(self._bytes_max)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _watch(self, task: "asyncio.Task[Any]") -> None:
        loop = asyncio.get_running_loop()
        self._ends[task] = loop.time() + self._timeout_ms / 1000
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_ms / 1000, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for task, end in self._ends.items():
            if end <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        if self._ends:
            self._timer = loop.call_later(max(min(self._ends.values()) - now, BODY_LOOK_SECONDS), self._look, loop)


async def body_of(request: Request, bytes_max: int, timeout_ms: int = BODY_TIMEOUT_MS) -> bytes:
    """The whole body of a request, as `BodyReader.read`."""
    return await BodyReader(bytes_max, timeout_ms).read(request.receive, request.headers.get("content-length", ""))


def too_large(bytes_max: int) -> SiltlogError:
    return problem(
        "request_too_large",
        f"the body is above the limit of {bytes_max} bytes; send smaller batches",
        limit=bytes_max,
    )


def decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """A JSON body as the decoder's type: 400 with the byte when it is no JSON, 422 when members are wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise problem("invalid_request", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None


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
