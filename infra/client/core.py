"""The HTTP client without IO: requests and replies as values, which error a reply is, whether the same again may help.

A transport sends one `Request` to one address and gives a `Response` or raises `ConnectionFailed`; what follows from
either is decided by functions of their arguments, here, in `endpoints.py` (where) and in `retries.py` (when), so that
the synchronous and the asynchronous side share it.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable, from_problem

BACKOFF_MS_BASE = 50
BACKOFF_MS_MAX = 2_000
CONNECT_TIMEOUT_MS = 5_000
READ_TIMEOUT_MS = 30_000
NODE_TIMEOUT_MS = 5_000
"""Beyond its wait a node that does not answer for so long may be stopped, or cut off: another is asked."""
UNAUTHENTICATED = 401
NO_TOKEN = "no_token"  # noqa: S105 (an error's code)
TLS_FAILED = "tls_failed"
LEFT = "it was left, as it gave another request no answer"
IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "PUT", "DELETE"))

Buffer = Any
"""bytes, or anything with the buffer protocol (`pyarrow.Buffer`): it goes to the socket without a copy."""


class Cut:
    """Ends an exchange that waits for a server, from beside it and from any thread: no answer will come."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self.is_made = False

    def make(self) -> None:
        """Ends the exchange that is under way, and each that begins later."""
        with self._lock:
            self.is_made = True
            if self._end is not None:
                self._end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """An exchange that `end()` ends; it is called within this block alone, and must be quick."""
        with self._lock:
            self._end = end
            if self.is_made:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """One may be a token: no log has to see it."""
    body: Sequence[Buffer] = ()
    read_timeout_ms: int | None = None
    """How long its answer may take; None: as long as its client gives."""
    repeatable: bool = False
    """Whether it may be sent again when it is not known whether it happened."""
    retry_timeout_ms: int | None = None
    """How long it is tried; None: as long as its client tries others."""
    owner_timeout_ms: int | None = None
    """After so long without an answer of the node that owns its topic it goes through another; None: no sooner."""
    node_timeout_ms: int | None = None
    """After so long without an answer of one node the next is asked, once, where there are others; None: no sooner."""
    leaves: bool = False
    """Whether it leaves a node that gave another request no answer: it may wait there for long, and be sent again."""
    cut: Cut | None = field(default=None, repr=False, compare=False)
    """Has the transport end the exchange, where it may have to leave its node."""

    @property
    def answer_timeout_ms(self) -> int:
        return READ_TIMEOUT_MS if self.read_timeout_ms is None else self.read_timeout_ms


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: bytes | bytearray

    def json(self) -> Any:
        """Raises OutcomeUnknown when the body is no JSON: something that is not a Siltlog server answered."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise OutcomeUnknown(
                f"the reply (status {self.status}) is not JSON; is the URL that of a Siltlog server?",
                error_code="internal",
                status=self.status,
            ) from None


class ConnectionFailed(Exception):
    """No reply. `sent` is False only when nothing of the request can have reached the server.

    `error_code` is of a reason that has nothing to do with whether the server runs.
    """

    def __init__(self, reason: str, *, sent: bool, error_code: str | None = None) -> None:
        super().__init__(reason)
        self.sent = sent
        self.error_code = error_code


def json_request(
    method: str,
    path: str,
    document: Any = None,
    *,
    query: Mapping[str, Any] | None = None,
    accept: str = names.MEDIA_JSON,
    read_timeout_ms: int | None = None,
    repeatable: bool | None = None,
    retry_timeout_ms: int | None = None,
    node_timeout_ms: int | None = None,
    leaves: bool = False,
) -> Request:
    """A request with a JSON body, or none. Query parameters that are None are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    headers = {"Accept": accept}
    body: tuple[bytes, ...] = ()
    if document is not None:
        headers["Content-Type"] = names.MEDIA_JSON
        body = (msgspec.json.encode(document),)
    return Request(
        method,
        f"{path}?{urlencode(given)}" if given else path,
        headers,
        body,
        read_timeout_ms,
        method in IDEMPOTENT_METHODS if repeatable is None else repeatable,
        retry_timeout_ms,
        node_timeout_ms=NODE_TIMEOUT_MS if node_timeout_ms is None and method == "GET" else node_timeout_ms,
        leaves=leaves,
    )


def error_of(response: Response) -> SiltlogError | None:
    """The error that a reply stands for; None for 2xx."""
    if 200 <= response.status < 300:
        return None
    document: dict[str, Any] = {}
    if "json" in response.headers.get("content-type", ""):
        try:
            decoded = msgspec.json.decode(response.body)
            document = decoded if isinstance(decoded, dict) else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = {}
    if "error_code" not in document:
        document = _foreign_problem(response)
    error = from_problem(document, response.status)
    error.request_id = error.request_id or response.headers.get(names.HEADER_REQUEST_ID.lower())
    if error.retry_after_ms is None and response.headers.get("retry-after", "").isdigit():
        error.retry_after_ms = int(response.headers["retry-after"]) * 1000
    return error


def _foreign_problem(response: Response) -> dict[str, Any]:
    """The error for a reply that no Siltlog server wrote, such as a proxy's page."""
    detail = f"the server answered {response.status} without saying why; is the URL that of a Siltlog server?"
    if response.status in (401, 403):
        code = "unauthenticated" if response.status == UNAUTHENTICATED else "forbidden"
        return {"error_code": code, "detail": detail}
    if response.status in (429, 503):
        return {"error_code": "overloaded", "detail": detail}
    if response.status >= 500:
        return {"error_code": "internal", "detail": detail}
    return {"error_code": f"http_{response.status}", "retryable": "no", "detail": detail}


def connection_error(failed: ConnectionFailed, url: str) -> SiltlogError:
    if failed.sent:
        return OutcomeUnknown(
            f"the connection to {url} was lost before its reply came: {failed}",
            error_code=failed.error_code or "connection_lost",
        )
    if failed.error_code is not None:
        return Unavailable(f"no connection to {url}: {failed}", error_code=failed.error_code)
    return Unavailable(f"no connection to {url}: {failed}; is the server running?", error_code="unreachable")


def backoff_ms(attempt: int, jitter: float, retry_after_ms: int | None = None) -> int:
    """How long to wait after failure number `attempt` (from 0); `jitter` in [0, 1) spreads clients apart.

    Doubles from BACKOFF_MS_BASE to BACKOFF_MS_MAX, half of it jittered; never less than the server asked for.
    """
    ceiling = min(BACKOFF_MS_MAX, BACKOFF_MS_BASE << min(attempt, 16))
    own = ceiling * (1 + jitter) / 2
    if retry_after_ms is None:
        return math.ceil(own)
    return math.ceil(max(own, retry_after_ms + jitter * BACKOFF_MS_BASE))


def may_repeat(error: SiltlogError, repeatable: bool) -> bool:
    """Whether sending the same again is safe and may help."""
    return error.retryable == "yes" or (repeatable and error.retryable == "unknown")
