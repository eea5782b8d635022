"""The door that every HTTP request passes: it gives an id, checks the caller, and makes errors problem documents."""

import itertools
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.connection.hang_up import HANG_UP
from siltlog.infra.http.connection.peer import KNOWN, PEER, Peer
from siltlog.infra.http.draining import Draining
from siltlog.infra.http.header_fields import told_apart
from siltlog.infra.http.log.access_log import AccessLog
from siltlog.infra.http.log.asking import ERROR_CODE, Asking, own_seconds, told
from siltlog.infra.http.memory import HELD, InFlight
from siltlog.infra.http.requests import BODIES, NO_OPERATION, OPERATION, BodyReader, problem_reply, retry_later
from siltlog.infra.http.streams import STREAM
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.callers.sessions import OWN_PATHS, Sessions
from siltlog.infra.security.grant import EVERYTHING, GRANT, Access, Caller, Grant, Identity, Visit
from siltlog.infra.security.guard import ADDRESS, METERED, Guard, Meter
from siltlog.infra.security.origins import Admission, Origins
from siltlog.infra.security.proxies import Proxies
from siltlog.infra.telemetry import Logger

_REQUEST_ID = names.HEADER_REQUEST_ID.lower().encode()
_GIVEN_ID = names.HEADER_GIVEN_REQUEST_ID.lower().encode()
_WELL_FORMED_ID = re.compile(rb"[\w.:/+=@~-]{1,128}", re.ASCII)
_PREFLIGHT_SECONDS = "600"
_CLOSE = (b"connection", b"close")
_HOP = names.HEADER_HOP.lower().encode()
HOP = "hop"
"""Where a request's state says that another node made it."""
HOP_SESSION = "silt.hop"
"""The key of the state of a request's scope that has what the node at the other end of its connection has said."""
CALLER = "caller"
"""Where a request's state has who sends it, as far as that is not decided."""
_CSRF = names.HEADER_CSRF.lower().encode()
_API = "/v1/"
"""Begins what is never kept on its way, so that a cookie may be issued with it."""
_TAIL = "/tail"
_ALWAYS = ("/healthz", "/readyz", "/metrics")
"""Also for connections that are too many: an orchestrator must not take a crowded server for a dead one."""
_IN_CLEAR = ("/healthz", "/readyz")
"""Also without TLS, where proxies have it: an orchestrator asks past them."""


class Identification(Protocol):
    """Tells who a caller is."""

    @property
    def access(self) -> Access: ...

    @property
    def sessions(self) -> Sessions | None:
        """None where no cookie counts."""

    def identify(self, caller: Caller) -> Identity | Awaitable[Identity]:
        """Raises SiltlogError, also once awaited: `unauthenticated` for who is nobody."""

    def known(self, caller: Caller) -> Identity | None:
        """The identity, where it can be told at once; without a trace of it where it cannot."""


class Hops(Protocol):
    """Tells the requests of other nodes from all others."""

    def session(self) -> Any:
        """Makes what is kept with each connection."""

    def welcome(self, said: str, session: Any) -> str | None:
        """The answer to a hello; None where it is none. Raises Refused."""

    async def accept(self, said: str, session: Any, scope: Scope, receive: Receive) -> tuple[Grant, Receive]:
        """Gives what the caller may do, and the body that was signed. Raises Refused."""


class Door:
    """Wraps the application. Not a general middleware: it is the outermost layer and knows this server's errors."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        origins: Origins,
        overload: Callable[[], SiltlogError],
        bodies: BodyReader,
        proxies: Proxies,
        in_flight: InFlight,
        draining: Draining,
        logger: Logger,
        metrics: Metrics,
        access_log: AccessLog | None = None,
        identification: Identification | None = None,
        guard: Guard | None = None,
        hops: Hops | None = None,
    ) -> None:
        """`overload()` is what those hear that are too many. Without `identification` everybody may do everything.
        `hops` are there where nodes call each other."""
        self.origins = origins
        self.identification = identification
        self.hops = hops
        self.guard = guard
        self.requests = 0
        """How many are under way."""
        self._app = app
        self._overload = overload
        self._bodies = bodies
        self._proxies = proxies
        self._in_flight = in_flight
        self._draining = draining
        self._logger = logger
        self.replies = metrics.replies
        self.count_reply = metrics.count_reply
        self.refused = metrics.refused
        self.reconfigure(access_log)
        self._prefix = uuid.uuid4().hex[:12]
        self._counter = itertools.count(1)

    def reconfigure(self, access_log: AccessLog | None) -> None:
        """The next request is told to this log."""
        # One that is off costs nothing.
        self.access_log = access_log if access_log is not None and access_log.errors else None

    async def refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a connection that is one too many: told so, but for those who look whether the server is well."""
        await self._serve(scope, receive, send, self._app if scope["path"] in _ALWAYS else self._refusing)

    async def _refusing(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise self._overload()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send, self._app)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, app: ASGIApp) -> None:
        headers = dict(scope["headers"])
        repeated: SiltlogError | None = None
        if len(headers) != len(scope["headers"]):
            scope["headers"], repeated = told_apart(scope["headers"])
            headers = dict(scope["headers"])
        request_id = self._request_id(headers)
        peer: Peer = scope["state"][PEER]
        known: Callable[[], None] = scope["state"][KNOWN]
        session = None if self.hops is None else scope["state"].get(HOP_SESSION)
        hang_up = scope["state"].get(HANG_UP)
        caller = self._caller(peer, scope, headers)
        extra = [(_REQUEST_ID, request_id.encode())]
        admission: Admission | None = None
        status = bytes_out = 0
        state: dict[str, Any] = {}
        access_log = self.access_log
        began = 0.0 if access_log is None else access_log.seconds()
        count_reply = self.count_reply

        async def send_with_id(message: Message) -> None:
            nonlocal status, bytes_out
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *extra]
                if self._draining.begun:
                    # Its client is asked to come back by another connection.
                    message["headers"].append(_CLOSE)
                count_reply(state.get(OPERATION, NO_OPERATION), status)
            else:
                bytes_out += len(message.get("body", b""))
            await send(message)
            if self.guard is not None:
                _count(state, message)

        held = self._in_flight.hold()
        state |= {"request_id": request_id, BODIES: self._bodies, HELD: held, ADDRESS: caller.address, CALLER: caller}
        state[HANG_UP] = hang_up
        scope["state"] = state
        asking = Asking(scope)
        # Starlette then raises for an unknown method rather than reply in its own words.
        scope["app"] = self
        self.requests += 1
        try:
            if repeated is not None:
                raise repeated
            if peer.in_clear and caller.scheme != "https" and scope["path"] not in _IN_CLEAR:
                raise problem(
                    "tls_required",
                    "this server takes requests over TLS only, by way of the proxies that SILT_TRUSTED_PROXIES names",
                )
            admission = self.origins.admit(caller)
            extra += admission.fields
            if self.hops is not None and _HOP in headers:
                said = headers[_HOP].decode("latin-1")
                if (welcome := self.hops.welcome(said, session)) is not None:
                    await Response(status_code=204, headers={names.HEADER_HOP: welcome})(scope, receive, send_with_id)
                    return
                scope["state"][GRANT], receive = await self.hops.accept(said, session, scope, receive)
                scope["state"][HOP] = True
                known()
            else:
                grant = EVERYTHING if self.identification is None else await self._granted(caller, known)
                scope["state"][GRANT] = grant
                if caller.visit is not None:
                    extra += self._renewed(caller, grant)
            preflight = (
                admission.fields and scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
            )
            if preflight:
                app = _preflight(headers)
            await app(scope, receive, send_with_id)
        except Exception as error:
            if status:
                # The reply is cut off; its reader sees a broken connection rather than half an answer.
                raise
            if admission is None:
                # Also a refusal can be read by the page that is told it.
                extra += self.origins.fields(caller)
            refusal = self.refusal(error, scope["method"], scope["path"], request_id)
            reply = problem_reply(refusal, request_id)
            if refusal.retry_after_ms is not None and _is_event_source(scope, headers):
                reply = retry_later(refusal)
            if isinstance(error, HTTPException) and error.headers:
                reply.headers.update(error.headers)
            if app == self._refusing:
                reply.headers["Connection"] = "close"
            state[ERROR_CODE] = refusal.error_code
            await reply(scope, receive, send_with_id)
        finally:
            self.requests -= 1
            held.release()
            if access_log is not None:
                seconds = access_log.seconds() - began
                if access_log.wants(status, own_seconds(seconds, state)):
                    access_log.tell(
                        status, seconds=seconds, bytes_out=bytes_out, **told(scope, headers, caller.address)
                    )
            asking.end()

    def _caller(self, peer: Peer, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        address, scheme = peer.address, peer.scheme
        if peer.is_proxy:
            address, scheme = self._proxies.forwarded(address, scheme, headers)
        visit = None
        path = scope["path"]
        if self.identification is not None and (b"cookie" in headers or path in OWN_PATHS):
            visit = Visit(
                scope["method"],
                path,
                headers.get(b"cookie", b""),
                headers.get(b"sec-fetch-site"),
                bool(headers.get(_CSRF)),
                self._proxies.prefix(peer.address, headers),
            )
        return Caller(
            headers.get(b"host", b""),
            scheme,
            headers.get(b"origin"),
            address,
            peer.local,
            peer.certificate,
            headers.get(b"authorization"),
            scope["query_string"],
            headers.get(b"sec-websocket-protocol"),
            visit,
        )

    def _renewed(self, caller: Caller, grant: Grant) -> list[tuple[bytes, bytes]]:
        """The field that issues a session's cookie anew, where it is time."""
        session = None if grant.identity is None else grant.identity.session
        sessions = None if self.identification is None else self.identification.sessions
        visit = caller.visit
        if session is None or sessions is None or visit is None or not visit.path.startswith(_API):
            return []
        field = sessions.renewed(session, caller)
        return [] if field is None else [(b"set-cookie", field)]

    def _request_id(self, headers: dict[bytes, bytes]) -> str:
        for name in (_REQUEST_ID, _GIVEN_ID):
            if name in headers and (given := self.given_request_id(headers[name])):
                return given
        return self.next_request_id()

    def given_request_id(self, value: bytes) -> str:
        """The id that a caller has given; empty where it is not well formed."""
        return value.decode("ascii") if _WELL_FORMED_ID.fullmatch(value) else ""

    def next_request_id(self) -> str:
        return f"{self._prefix}-{next(self._counter):x}"

    async def _granted(self, caller: Caller, known: Callable[[], None]) -> Grant:
        """A caller without a good credential is refused once the grant is asked: what is anybody's stays so."""
        identification = self.identification
        assert identification is not None
        try:
            found = identification.identify(caller)
            identity = found if isinstance(found, Identity) else await found
        except SiltlogError as error:
            if error.status == 400:
                raise
            return Grant(identification.access, None, error)
        known()
        return Grant(identification.access, identity)

    def refusal(self, error: Exception, method: str, path: str, request_id: str) -> SiltlogError:
        """Counts a request that ended with `error`, and gives what it is told."""
        refusal = self._translated(error, method, path, request_id)
        # The frames that it came through would keep the body that they hold until the collector comes, which is rarely.
        refusal.__traceback__ = None
        self.refused[refusal.error_code] = self.refused.get(refusal.error_code, 0) + 1
        return refusal

    def _translated(self, error: Exception, method: str, path: str, request_id: str) -> SiltlogError:
        if isinstance(error, SiltlogError):
            return error
        if isinstance(error, HTTPException):
            if error.status_code == 405:
                allowed = (error.headers or {}).get("Allow", "")
                return problem("method_not_allowed", f"{method} is not for {path[:200]}; it takes {allowed}")
            return problem("not_found", f"there is nothing at {path[:200]}; /docs lists what there is")
        self._logger.error("request failed", path=path, request_id=request_id, exc_info=error)
        return problem("internal", "the server failed; its log has the request id", request_id=request_id)


def _count(state: dict[str, Any], message: Message) -> None:
    """Takes what was sent of the quotas that the answer is under; a stream rests until it may send more."""
    meter: Meter | None = state.get(METERED)
    if meter is not None and (sent := len(message.get("body", b""))):
        pause = meter.read(sent)
        if pause and STREAM in state:
            state[STREAM].rest(pause)


def _is_event_source(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """A stream of events was asked for by who takes nothing else."""
    takes = names.MEDIA_EVENTS.encode() in headers.get(b"accept", b"").lower()
    return takes and scope["method"] == "GET" and scope["path"].endswith(_TAIL)


def _preflight(headers: dict[bytes, bytes]) -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
            "Access-Control-Allow-Headers": headers.get(b"access-control-request-headers", b"*").decode("latin-1"),
            "Access-Control-Max-Age": _PREFLIGHT_SECONDS,
        },
    )
