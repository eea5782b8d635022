"""The parts that all HTTP handlers share: bodies read within limits of size and time, JSON decoded, replies made.

JSON that does not fit is refused with the values or fields that would be allowed there.
"""

import asyncio
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.http.coding import CODINGS, Inflater, request_coding
from siltlog.infra.http.connection.hang_up import waits
from siltlog.infra.http.memory import STALL_SECONDS, Held, InFlight, held_of
from siltlog.infra.limits import malformed_json, too_large

T = TypeVar("T")

BODY_TIMEOUT_MS = 30_000
BODY_LOOK_SECONDS = 0.05
PROGRESS_BYTES = 64 * 1024
"""A body that brings less in STALL_SECONDS is given up once others are refused for want of room."""
OPERATION = "operation"
"""Where a request's state says which operation answers it; nothing where none does."""
NO_OPERATION = "none"
"""How replies are counted that no operation gave."""
WAIT_MS = "wait_ms"
"""Where it says how long the request itself asks to wait."""
BODIES = "bodies"
"""Where a request's state has the reader of its body."""
ASKED = "asked"
"""Where it has what asks for the access of its operation once more."""
APPENDED = "silt.appended"
"""The extension of a request's scope that has what is called once its records have their place in the log."""
_JSON = msgspec.json.Encoder()
_NO_STORE = {"Cache-Control": "no-store"}
EVENTS_HEADERS = {**_NO_STORE, "X-Accel-Buffering": "no"}
"""Headers of what is sent as it comes: a proxy that kept events until it has many would make them late."""
JSON_HEADERS = [(b"content-type", names.MEDIA_JSON.encode()), (b"cache-control", b"no-store")]
_PATH = re.compile(r" - at `\$([^`]*)`$")
_BOUND = re.compile(r"Expected `int` [<>]= (-?\d+) - at ")
_STEP = re.compile(r"\.([^.\[]+)|\[")


def explained(error: msgspec.ValidationError, kind: Any) -> str:
    """The error with the values that are allowed there, the fields that there are, or the bounds of a number."""
    text = str(error)
    found = _PATH.search(text)
    path = found[1] if found else ""
    if (bound := _BOUND.match(text)) is not None:
        return _out_of_bounds(path, _at(kind, path), int(bound[1])) or text
    if text.startswith("Invalid enum value "):
        told = list(_values(_at(kind, path)))
    elif text.startswith("Invalid value "):
        parent, _, field = path.rpartition(".")
        told = [str(one.tag) for one in _structs(_at(kind, parent)) if one.tag_field == field]
    elif text.startswith("Object contains unknown field "):
        told = [field.encode_name for one in _structs(_at(kind, path)) for field in one.fields]
    else:
        told = []
    return f"{text}; there are: {', '.join(told)}" if told else text


def _out_of_bounds(path: str, kind: inspect.Type | None, bound: int) -> str:
    """A sentence about the whole number at the path; empty where the number found there has not this bound."""
    number = next((one for one in _one_of(kind) if isinstance(one, inspect.IntType)), None)
    if not path or number is None or bound not in (number.ge, number.le):
        return ""
    least = "" if number.ge is None else f"at least {number.ge}"
    most = "" if number.le is None else f"at most {number.le}"
    return f"{path.removeprefix('.')} must be {' and '.join(filter(None, (least, most)))}"


def _at(kind: Any, path: str) -> inspect.Type | None:
    """The type at a path such as `.partitions[0].topic`; None where it is not one alone."""
    found: inspect.Type | None = inspect.type_info(kind)
    for step in _STEP.finditer(path):
        if step[1] is None:
            found = next((one.item_type for one in _one_of(found) if isinstance(one, inspect.ListType)), None)
        else:
            fields = (field for one in _structs(found) for field in one.fields)
            found = next((field.type for field in fields if field.encode_name == step[1]), None)
    return found


def _one_of(kind: inspect.Type | None) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.UnionType):
        return kind.types
    return () if kind is None else (kind,)


def _structs(kind: inspect.Type | None) -> Iterator[inspect.StructType]:
    return (one for one in _one_of(kind) if isinstance(one, inspect.StructType))


def _values(kind: inspect.Type | None) -> Iterator[str]:
    for one in _one_of(kind):
        if isinstance(one, inspect.LiteralType):
            yield from map(str, one.values)


class JsonReply:
    """`json_reply` as a bare ASGI application, without what the hot path can spare."""

    def __init__(self, document: Any, status: int = 200) -> None:
        self.body = _JSON.encode(document)
        self.status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(self.body))]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def json_reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_JSON.encode(document), status, {**_NO_STORE, **(headers or {})}, names.MEDIA_JSON)


def problem_reply(error: SiltlogError, request_id: str | None) -> Response:
    document = problem_document(error, request_id)
    return Response(_JSON.encode(document), document["status"], problem_headers(error), names.MEDIA_PROBLEM)


def retry_later(error: SiltlogError) -> Response:
    """Tells an `EventSource` to come back later, with status 200: on any other it gives up for good."""
    body = retry_field(error.retry_after_ms or 0) + b"\n"
    return Response(body, 200, EVENTS_HEADERS, names.MEDIA_EVENTS)


def retry_field(milliseconds: int) -> bytes:
    """The line of an event stream that says how long to wait before connecting again."""
    return b"retry: %d\n" % milliseconds


def problem_headers(error: SiltlogError) -> dict[str, str]:
    headers = dict(_NO_STORE)
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    if error.error_code == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    if error.error_code == "unsupported_encoding":
        headers["Accept-Encoding"] = ", ".join(CODINGS)
    if error.error_code == "request_timeout":
        # The rest of the body is still to come, and nothing behind it could be read.
        headers["Connection"] = "close"
    return headers


def encode_json(document: Any) -> bytes:
    return _JSON.encode(document)


class BodyReader:
    """Reads whole bodies of at most `bytes_max`, each within `timeout_ms`.

    What they take is counted in what the request holds, where that is given. When there is no room in `in_flight`,
    those that stand still are given up. One timer looks after all that are being read: a timer each would cost a small
    publish a tenth of its time.
    """

    def __init__(self, bytes_max: int, timeout_ms: int = BODY_TIMEOUT_MS, in_flight: InFlight | None = None) -> None:
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._progress: dict[asyncio.Task[Any], float] = {}
        """When the last PROGRESS_BYTES of each body in several parts had come."""
        self._given_up: dict[asyncio.Task[Any], SiltlogError] = {}
        self._refusal: SiltlogError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.reconfigure(bytes_max, timeout_ms)
        self._second_look: asyncio.TimerHandle | None = None
        self._inflater = Inflater()
        if in_flight is not None:
            in_flight.when_full(self._give_up_stalled)

    @property
    def bytes_max(self) -> int:
        """The largest body that is taken now, where a request has no limit of its own."""
        return self._bytes_max

    def reconfigure(self, bytes_max: int, timeout_ms: int) -> None:
        """Bodies that begin to arrive from now on may be so large, and take so long."""
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        if self._timer is not None:
            # It looks only when those that began under another time are due.
            self._timer.cancel()
            self._look(asyncio.get_running_loop())

    def close(self, refusal: SiltlogError) -> None:
        """Refuses every body from now on with `refusal`, also those that are being received."""
        self._refusal = refusal
        for task in self._ends:
            self._give_up(task, refusal)

    async def read(
        self, receive: Receive, content_length: str, held: Held | None = None, bytes_max: int | None = None
    ) -> bytes:
        """Refuses a body above the limit as soon as it is known to be, and one that takes too long (408).

        `bytes_max` is a limit of this request alone.
        """
        if self._refusal is not None:
            raise self._refusal
        limit = bytes_max or self._bytes_max
        if content_length.isdigit() and int(content_length) > limit:
            raise too_large(limit)
        task = asyncio.current_task()
        assert task is not None
        self._watch(task)
        try:
            return await self._read(receive, task, held, limit)
        except asyncio.CancelledError:
            given_up = self._given_up.pop(task, None)
            if given_up is None:
                raise
            task.uncancel()
            raise given_up from None
        finally:
            del self._ends[task]
            self._progress.pop(task, None)

    async def _read(self, receive: Receive, task: "asyncio.Task[Any]", held: Held | None, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = noted = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise problem("malformed_body", "the connection ended before the body was complete")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            if held is not None:
                held.take(len(chunk))
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if size - noted >= PROGRESS_BYTES or not noted:
                noted = size
                self._progress[task] = asyncio.get_running_loop().time()

    async def inflated(self, body: bytes, coding: str, held: Held | None = None, bytes_max: int | None = None) -> bytes:
        """A body that was read, without its content coding: what it becomes counts as if it had been sent so."""
        content = await self._inflater.inflated(body, coding, bytes_max or self._bytes_max)
        if held is not None:
            held.take(len(content))
        return content

    def _watch(self, task: "asyncio.Task[Any]") -> None:
        loop = asyncio.get_running_loop()
        self._ends[task] = loop.time() + self._timeout_ms / 1000
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_ms / 1000, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for task, end in self._ends.items():
            if end <= now:
                self._give_up(task, too_slow(f"the body did not arrive within {self._timeout_ms} ms; send it faster"))
        if self._ends:
            wait = min(min(self._ends.values()) - now, self._timeout_ms / 1000)
            self._timer = loop.call_later(max(wait, BODY_LOOK_SECONDS), self._look, loop)

    def _give_up_stalled(self) -> None:
        """While others are refused for want of room, nobody keeps room without going on."""
        loop = asyncio.get_running_loop()
        if self._second_look is None and self._progress:
            # Who moved a moment ago may have stopped there.
            self._second_look = loop.call_later(STALL_SECONDS, self._look_again)
        before = loop.time() - STALL_SECONDS
        for task, seconds in self._progress.items():
            if seconds < before:
                self._give_up(task, too_slow(f"less than {PROGRESS_BYTES} bytes of the body came in {STALL_SECONDS} s"))

    def _look_again(self) -> None:
        self._second_look = None
        self._give_up_stalled()

    def _give_up(self, task: "asyncio.Task[Any]", error: SiltlogError) -> None:
        if task not in self._given_up:
            self._given_up[task] = error
            task.cancel()


async def body_of(request: Request, bytes_max: int) -> bytes:
    """The whole body of a request, of at most `bytes_max` without its content coding, as `BodyReader.read`.

    It is read by the reader the door gave it. Raises also Refused `unauthenticated` or `forbidden`, where its caller
    lost the access to the operation while it came.
    """
    state = request.scope.get("state", {})
    reader: BodyReader = state.get(BODIES) or BodyReader(bytes_max)
    coding = request_coding(request.headers.get("content-encoding", ""))
    held = held_of(request.scope)
    body = await reader.read(request.receive, request.headers.get("content-length", ""), held, bytes_max)
    if ASKED in state:
        state[ASKED]()
    return await reader.inflated(body, coding, held, bytes_max) if coding else body


def waits_for(request: Request, wait_ms: int) -> int:
    """Notes that a request is about to wait for so long, unless its client hangs up."""
    request.scope["state"][WAIT_MS] = wait_ms
    waits(request.scope["state"])
    return wait_ms


def too_slow(detail: str) -> SiltlogError:
    return problem("request_timeout", detail)


def decode(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """A JSON body as the decoder's type: 400 with the byte when it is no JSON, 422 when members are wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise problem("invalid_request", explained(error, decoder.type)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed_json(body, error) from None
