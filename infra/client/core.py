"""The HTTP client without IO: requests and replies as values, which error a reply is, when to try again and where.

A transport sends one `Request` to one address and gives a `Response` or raises `ConnectionFailed`; what follows from
either is decided here, by functions of their arguments, so that the synchronous and the asynchronous side share it.
"""

import ipaddress
import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, OutcomeUnknown, SiltlogError, Unavailable, from_problem

T = TypeVar("T")

BACKOFF_MS_BASE = 50
BACKOFF_MS_MAX = 2_000
CONNECT_TIMEOUT_MS = 5_000
READ_TIMEOUT_MS = 30_000
NODE_TIMEOUT_MS = 5_000
"""Beyond its wait a node that does not answer for so long may be stopped, or cut off: another is asked."""
FAILURES_TOLD = 2
"""In a row; one alone is a restart, or a connection that had grown old, and nobody needs to hear of it."""
UNIX = "unix:"
"""Begins the URL of a server that is reached by a socket in the file system: `unix:/path/to/silt.sock`."""
UNAUTHENTICATED = 401
NO_TOKEN = "no_token"  # noqa: S105 (an error's code)
TLS_FAILED = "tls_failed"
URLS_MAX = 64
"""Servers that are kept, those that were learned among them."""
FOLLOWED_MAX = 3
"""So many nodes are asked one after the other without a pause."""
_TOPICS = "/v1/topics/"
_VIEW = names.HEADER_VIEW.lower()
IDEMPOTENT_METHODS = frozenset(("GET", "HEAD", "PUT", "DELETE"))

Buffer = Any
"""bytes, or anything with the buffer protocol (`pyarrow.Buffer`): it goes to the socket without a copy."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """One may be a token: no log has to see it."""
    body: Sequence[Buffer] = ()
    read_timeout_ms: int = READ_TIMEOUT_MS
    repeatable: bool = False
    """Whether it may be sent again when it is not known whether it happened."""
    retry_timeout_ms: int | None = None
    """How long it is tried; None: as long as its client tries others."""
    owner_timeout_ms: int | None = None
    """After so long without an answer of the node that owns its topic it goes through another; None: no sooner."""
    node_timeout_ms: int | None = None
    """After so long without an answer of one node the next is asked, once, where there are others; None: no sooner."""


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
    read_timeout_ms: int = READ_TIMEOUT_MS,
    repeatable: bool | None = None,
    retry_timeout_ms: int | None = None,
    node_timeout_ms: int | None = None,
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


class Endpoints:
    """The addresses of the servers, one of which is in use; the next one is after it failed.

    Servers that say in which view they answer are nodes of a cluster. Of them it is learned which one owns a topic, and
    what is asked of the topic goes there, until that one fails or says otherwise.
    """

    def __init__(self, url: str | Sequence[str]) -> None:
        """Raises ConfigError for anything that is not an http or https URL, or `unix:` and the path of a socket."""
        # A path may have a comma in it.
        alone = isinstance(url, str) and url.startswith(UNIX)
        given = url.split(",") if isinstance(url, str) and not alone else [url] if alone else list(url)
        self.urls = tuple(_checked_url(one) for one in given if str(one).strip())
        if not self.urls:
            raise ConfigError(f"a server's URL is needed, such as {names.DEFAULT_URL}")
        self.view = 0
        """The newest view that a node has answered in; 0 where the servers are no cluster."""
        self._all = self.urls
        self._index = 0
        self._owners: dict[str, str] = {}
        self._around: set[str] = set()
        """Topics whose owner could not be reached: they are asked of the others, who find the next one."""
        self._silent: set[str] = set()
        """Servers that gave no answer when they were asked last: the others come before them."""

    @property
    def current(self) -> str:
        return self._all[self._index]

    def send(self, request: Request, *, hasty: bool = False) -> "Send":
        """Says where a request goes, and how it is sent there; `hasty`: it can be sent to another node after this."""
        if hasty and self.view and len(self._all) > 1 and request.node_timeout_ms is not None:
            request = replace(request, read_timeout_ms=min(request.read_timeout_ms, request.node_timeout_ms))
        topic = _topic_of(request.path) if self.view else ""
        if not topic or topic in self._around or self.current.startswith(UNIX):
            return Send(self.current, request)
        headers = {**request.headers, names.HEADER_ROUTE: names.ROUTE_DIRECT}
        timeout_ms = min(request.read_timeout_ms, request.owner_timeout_ms or request.read_timeout_ms)
        direct = replace(request, headers=headers, read_timeout_ms=timeout_ms)
        return Send(self._owners.get(topic, self.current), direct)

    def answered(self, url: str, response: Response) -> None:
        """Takes note that a server answers, and of a node's view."""
        self._silent.discard(url)
        view = response.headers.get(_VIEW, "")
        if view.isascii() and view.isdigit():
            self.view = max(self.view, int(view))

    def succeeded(self, request: Request) -> None:
        if self._around:
            self._around.discard(_topic_of(request.path))

    def told(self, url: str, request: Request, error: SiltlogError) -> bool:
        """A node does not own the topic; whether it is known now who does. Raises nothing, whatever was told."""
        topic, owner = _topic_of(request.path), error.members.get("url")
        view = error.members.get("view")
        self._owners.pop(topic, None)
        try:
            owner = _checked_url(owner) if owner else ""
        except ConfigError:
            owner = ""
        if not owner or owner == url or not self.follows(url, owner) or not isinstance(view, int) or view < self.view:
            self._around.add(topic)
            return False
        if owner not in self._all and len(self._all) < URLS_MAX:
            self._all = (*self._all, owner)
        self._owners[topic] = owner
        return True

    def knows(self, url: str) -> bool:
        """Whether it was named, or is a node that a server named."""
        return url in self._all

    def follows(self, teller: str, url: str) -> bool:
        """Whether what is sent to the one may go to the other: it must be no less protected on its way."""
        if url in self._all or url.startswith(UNIX):
            return url in self._all
        if url.startswith("https:"):
            return teller.startswith("https:")
        return teller.startswith("http:") and (is_loopback(url) or not is_loopback(teller))

    def failed(self, url: str, path: str = "") -> None:
        """Moves on, unless another caller already did. What was asked for with `path` had no answer: the others know
        who has its topic by now, and pass it on."""
        if self.view and (topic := _topic_of(path)):
            self._around.add(topic)
        if path:
            self._silent.add(url)
        if url == self.current:
            others = [*range(self._index + 1, len(self._all)), *range(self._index)]
            answering = [index for index in others if self._all[index] not in self._silent]
            self._index = next(iter(answering or others), self._index)
        for topic in [topic for topic, owner in self._owners.items() if owner == url]:
            self._owners.pop(topic, None)
            self._around.add(topic)


def _topic_of(path: str) -> str:
    """The topic that a path of the API is of, as it is written there; empty where there is none."""
    if not path.startswith(_TOPICS):
        return ""
    return path[len(_TOPICS) :].partition("?")[0].partition("/")[0]


def is_loopback(url: str) -> bool:
    """Whether it names this machine whatever a resolver says."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: Any) -> str:
    text = str(url).strip()
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX).removeprefix("//")
        if not path.startswith("/") or path.endswith("/") or "\0" in path:
            raise ConfigError(f"{text!r} is no path of a socket; write it like {UNIX}/var/lib/siltlog/silt.sock")
        return UNIX + path
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not (parts.query or parts.fragment)
        if usable and "@" in parts.netloc:
            raise ConfigError(
                f"the URL of {parts.hostname} has a user name or password in it, which ends up in logs: leave it out, "
                "and give a token"
            )
    except ValueError:
        usable = False
    if not usable:
        shown = text.rpartition("@")[2]
        raise ConfigError(f"{shown!r} is not a server's URL; write it like {names.DEFAULT_URL}")
    return text.rstrip("/")


class Send(NamedTuple):
    url: str
    request: Request


class Pause(NamedTuple):
    """Wait, then go on; who cannot wait raises `error`."""

    seconds: float
    error: SiltlogError


class Reply(NamedTuple):
    """The outcome of a `Send`, and when it came (monotonic seconds)."""

    result: Response | ConnectionFailed
    now: float


class Followed(Unavailable):
    """Nothing happened: another node owns the topic, and it is known which. The same is sent there at once."""

    error_code = "not_owner"


def failure_of(
    result: Response | ConnectionFailed, url: str, request: Request, endpoints: Endpoints
) -> SiltlogError | None:
    """The error of one attempt, None when it went well; leaves an address that cannot serve now."""
    if isinstance(result, ConnectionFailed):
        endpoints.failed(url, request.path)
        return connection_error(result, url)
    endpoints.answered(url, result)
    error = error_of(result)
    if error is None:
        endpoints.succeeded(request)
    elif error.error_code == "not_owner":
        if endpoints.told(url, request, error):
            return Followed(error.detail, status=error.status, request_id=error.request_id, members=error.members)
    elif result.status == 503:
        endpoints.failed(url)
    return error


def exchange(
    request: Request,
    endpoints: Endpoints,
    *,
    now: float,
    retry_timeout_ms: int,
    jitter: Callable[[], float],
    told: Callable[[SiltlogError], None] | None = None,
) -> Generator[Send | Pause, Reply | None, Response]:
    """One request with its retries: yields what to do next, is sent what came of it, returns the reply.

    A `Send` expects a `Reply`, a `Pause` expects None. Raises the last error once it must not be repeated, or once the
    next attempt would start later than `retry_timeout_ms`, or the request's own, after `now`. `jitter()` gives numbers
    in [0, 1). `told` hears of a request that failed FAILURES_TOLD times and is tried on.
    """
    deadline = now + (retry_timeout_ms if request.retry_timeout_ms is None else request.retry_timeout_ms) / 1000
    attempt = followed = 0
    hasty = request.repeatable and request.node_timeout_ms is not None
    while True:
        # What takes long at any node is waited for at the second.
        in_time = hasty and now + ((request.node_timeout_ms or 0) + BACKOFF_MS_MAX) / 1000 < deadline
        send = endpoints.send(request, hasty=in_time)
        reply = yield send
        assert reply is not None
        now = reply.now
        hasty = hasty and not (isinstance(reply.result, ConnectionFailed) and reply.result.sent)
        error = failure_of(reply.result, send.url, request, endpoints)
        if error is None:
            assert isinstance(reply.result, Response)
            return reply.result
        if isinstance(error, Followed) and followed < FOLLOWED_MAX and reply.now <= deadline:
            followed += 1
            continue
        pause = backoff_ms(attempt, jitter(), error.retry_after_ms) / 1000
        if not may_repeat(error, request.repeatable) or reply.now + pause > deadline:
            raise error
        attempt += 1
        if attempt == FAILURES_TOLD and told is not None:
            told(error)
        yield Pause(pause, error)


class Retries:
    """How requests are made again: all that the callers of both transports share."""

    def __init__(
        self,
        endpoints: Endpoints,
        clock: Clock,
        *,
        retry_timeout_ms: int,
        jitter: Callable[[], float] | None = None,
        told: Callable[[SiltlogError], None] | None = None,
    ) -> None:
        """`told` hears of a request that failed twice and is tried on."""
        self._endpoints = endpoints
        self._clock = clock
        self._retry_timeout_ms = retry_timeout_ms
        self._jitter = jitter or random.Random().random  # noqa: S311
        self._told = told

    def steps(self, call: Generator[Request, Response, T]) -> Generator[Send | Pause, Reply | None, T]:
        """The requests of a call, each as an `exchange`; who cannot wait throws a pause's error in."""
        try:
            request = next(call)
            while True:
                try:
                    response = yield from exchange(
                        request,
                        self._endpoints,
                        now=self._clock.monotonic(),
                        retry_timeout_ms=self._retry_timeout_ms,
                        jitter=self._jitter,
                        told=self._told,
                    )
                except SiltlogError as error:
                    request = call.throw(error)
                else:
                    request = call.send(response)
        except StopIteration as done:
            result: T = done.value
            return result


def only(request: Request) -> Generator[Request, Response, Response]:
    """A call of one request, which gives its reply."""
    return (yield request)
