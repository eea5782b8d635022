"""`/ui/login` and `/ui/logout`: the session of the page, begun with a key and ended."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.door import CALLER
from siltlog.infra.http.operations import ANYBODY, NO_CONTENT, json_answer, json_body, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.security.callers.sessions import LOGIN_PATH, LOGOUT_PATH, Sessions, refusal_of_two
from siltlog.infra.security.grant import Caller, Identity, grant_of
from siltlog.infra.security.guard import Guard
from siltlog.server.access import answers
from siltlog.server.access.security import Security

BODY_BYTES_MAX = 32 * 1024
_LOG_IN, _LOG_OUT = "logIn", "logOut"
_log_in = msgspec.json.Decoder(answers.LogIn)


class LoginHttp:
    def __init__(self, security: Security | None, guard: Guard | None) -> None:
        """Without them authentication is off."""
        self._security = security
        self._guard = guard

    @operation(
        "POST",
        LOGIN_PATH,
        _LOG_IN,
        "Access",
        "Log in to the page",
        "Begins a session of the page with a key: the answer sets a cookie that stands for it, for 12 hours, or until "
        "nobody has used it for one, the key ends or somebody logs out. It counts for what the page itself sends; "
        "whatever changes something needs the header `Silt-Csrf` beside it, with any value. A session that the request "
        "has already is ended. Programs send the key in `Authorization` instead.",
        access=ANYBODY,
        replies={200: json_answer("The session has begun.", answers.LoggedIn, "Set-Cookie")},
        body=json_body(answers.LogIn, {"key": "silt_3kTMd0Jq8xWf_…"}),
        errors=(
            "malformed_body", "request_timeout", "request_too_large", "invalid_request", "unauthenticated", "csrf",
            "rate_limited", "auth_off", "access_unavailable", "identity_unavailable", "not_found",
        ),
    )  # fmt: skip
    async def log_in(self, request: Request) -> Response:
        Query(request, ())
        security, sessions, caller = self._on(request)
        sessions.check_sender(caller)
        if caller.authorization is not None:
            raise refusal_of_two()
        token = decode(await body_of(request, BODY_BYTES_MAX), _log_in).key.strip()
        identity = await security.logged_in(caller, token)
        session = sessions.begin(identity)
        field = sessions.issued(session, caller)
        before = sessions.ending(caller)
        if before is not None and before.session is not None:
            await security.ends.end(before.session)
        self._count(_LOG_IN, request, identity, 200)
        reply = json_reply(answers.LoggedIn(session.principal, answers.ends_at(session)))
        reply.raw_headers.append((b"set-cookie", field))
        return reply

    @operation(
        "POST",
        LOGOUT_PATH,
        _LOG_OUT,
        "Access",
        "Log out of the page",
        "Ends the session of the cookie, on this node at once and on others within seconds, with the streams that it "
        "opened. It is never refused to the page: where the data directory has no room, the session has ended until "
        "the server stops, or the document is written: 202.",
        access=ANYBODY,
        replies={**NO_CONTENT, 202: json_answer("It has ended here; elsewhere later.", answers.HeldSession)},
        errors=("csrf", "auth_off", "not_found"),
    )
    async def log_out(self, request: Request) -> Response:
        Query(request, ())
        security, sessions, caller = self._on(request)
        sessions.check_sender(caller)
        refusal = grant_of(request).refusal
        if refusal is not None and refusal.error_code == "csrf":
            raise refusal
        reply = Response(status_code=204)
        identity = sessions.ending(caller)
        if identity is not None and identity.session is not None:
            if not await security.ends.end(identity.session):
                reply = json_reply(answers.HeldSession(identity.subject.principal), 202)
            self._count(_LOG_OUT, request, identity, reply.status_code)
        reply.raw_headers.append((b"set-cookie", sessions.taken_back(caller)))
        return reply

    def _on(self, request: Request) -> tuple[Security, Sessions, Caller]:
        if self._security is None:
            raise problem("auth_off", "this server asks nobody who he is: there is no login; set SILT_AUTH=on for one")
        sessions = self._security.identification.sessions
        if sessions is None:
            raise problem("not_found", "this server shows no page to log in to: SILT_UI=off")
        return self._security, sessions, request.scope["state"][CALLER]

    def _count(self, operation_id: str, request: Request, identity: Identity, status: int) -> None:
        if self._guard is not None:
            self._guard.came(operation_id, request.scope, identity, status)
