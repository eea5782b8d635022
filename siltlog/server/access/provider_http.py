"""`/ui/login/oidc`: the login of the page by an identity provider, and what a login may be."""

from html import escape

from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.door import CALLER
from siltlog.infra.http.operations import ANY_CALLER, ANYBODY, TEXT, Content, Reply, in_query, json_answer, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.security.callers.code_flow import CodeFlow
from siltlog.infra.security.callers.sessions import CALLBACK_PATH, LOGIN_PATH, PROVIDER_PATH, RENEW_PATH, Sessions
from siltlog.infra.security.grant import Caller, Identity, grant_of, unauthenticated
from siltlog.infra.security.guard import Guard
from siltlog.server.access import answers
from siltlog.server.access.security import Security

_BEGIN, _FINISH, _RENEW = "beginProviderLogin", "finishProviderLogin", "renewLogin"
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_ERRORS = (
    "unauthenticated",
    "rate_limited",
    "csrf",
    "auth_off",
    "access_unavailable",
    "identity_unavailable",
    "not_found",
)


class ProviderHttp:
    def __init__(self, security: Security | None, guard: Guard | None) -> None:
        """Without them authentication is off."""
        self._security = security
        self._guard = guard

    @operation(
        "GET",
        LOGIN_PATH,
        "describeLogin",
        "Access",
        "How to log in to the page",
        "Which ways there are: with a key, and by an identity provider where `SILT_OIDC_CLIENT_ID` is set.",
        access=ANYBODY,
        replies={200: json_answer("The ways.", answers.LoginWays)},
    )
    async def ways(self, request: Request) -> Response:
        Query(request, ())
        security = self._security
        if security is None or security.identification.sessions is None:
            return json_reply(answers.LoginWays(False, None))
        return json_reply(answers.LoginWays(True, None if security.flow is None else security.flow.host))

    @operation(
        "GET",
        PROVIDER_PATH,
        _BEGIN,
        "Access",
        "Log in by the identity provider",
        "Sends a browser to the identity provider (authorization code with PKCE). What the answer must fit to is in a "
        "cookie for ten minutes.",
        access=ANYBODY,
        replies={303: Reply("To the provider.", headers=("Location", "Set-Cookie"))},
        errors=("csrf", "auth_off", "identity_unavailable", "not_found"),
    )
    async def begin(self, request: Request) -> Response:
        Query(request, ())
        _, sessions, flow, caller = self._on(request)
        sessions.check_sender(caller)
        url, attempt = await flow.begin(_back(caller))
        reply = Response(status_code=303, headers={"Location": url, "Cache-Control": "no-store"})
        reply.raw_headers.append((b"set-cookie", sessions.attempted(attempt, caller)))
        return reply

    @operation(
        "GET",
        CALLBACK_PATH,
        _FINISH,
        "Access",
        "Come back from the identity provider",
        "Begins a session for whom the provider says, and leads to the page. Where it does not, the answer says why.",
        access=ANYBODY,
        replies={200: Reply("It leads to the page.", {"text/html": Content(TEXT)}, ("Set-Cookie",))},
        parameters=(
            in_query("code", "The provider's code."),
            in_query("state", "What the login began with."),
            in_query("iss", "The provider."),
            in_query("error", "Why there is no code."),
        ),
        errors=_ERRORS,
    )
    async def finish(self, request: Request) -> Response:
        security, sessions, flow, caller = self._on(request)
        try:
            identity, field = await self._finished(request, security, sessions, flow, caller)
        except SiltlogError as error:
            refused = security.identification.failed(caller, error)
            if self._guard is not None:
                self._guard.denied(_FINISH, request.scope, grant_of(request), refused)
            reply = _document(refused.status or 500, "Not logged in", refused.detail)
        else:
            if self._guard is not None:
                self._guard.came(_FINISH, request.scope, identity, 200)
            # By a redirect from another site the browser would not send the cookie, which is for this one alone.
            reply = _document(200, "Logged in", "You are logged in.", refresh=True)
            reply.raw_headers.append((b"set-cookie", field))
        reply.raw_headers.append((b"set-cookie", sessions.attempt_taken_back(caller)))
        return reply

    async def _finished(
        self, request: Request, security: Security, sessions: Sessions, flow: CodeFlow, caller: Caller
    ) -> tuple[Identity, bytes]:
        attempt = sessions.attempt(caller)
        if attempt is None:
            raise unauthenticated(
                "expired", "this browser has begun no login, or more than ten minutes ago; begin again at the page"
            )
        stale = security.book.stale()
        if stale is not None:
            raise stale
        failing = security.identification.fails_often(caller)
        login = await flow.finish(attempt, dict(request.query_params), _back(caller), from_failing=failing)
        session = sessions.begin(login.identity, refresh_token=login.refresh_token, sub=login.sub)
        field = sessions.issued(session, caller)
        return login.identity, field

    @operation(
        "POST",
        RENEW_PATH,
        _RENEW,
        "Access",
        "Ask the identity provider again",
        "Has the session of the cookie go on with the groups that the provider says now, by its refresh token. Without "
        "one a session ends an hour after the login. One that the provider does not know any more ends.",
        access=ANY_CALLER,
        replies={200: json_answer("It goes on.", answers.LoggedIn, "Set-Cookie")},
        errors=("invalid_request", "auth_off", "not_found"),
    )
    async def renew(self, request: Request) -> Response:
        Query(request, ())
        security, sessions, flow, caller = self._on(request)
        identity = grant_of(request).identity
        session = None if identity is None else identity.session
        if session is None or not session.refresh_token:
            raise problem("invalid_request", "the request has no session that the identity provider could renew")
        renewed = await flow.renewed(session, security.ends.end)
        reply = json_reply(answers.LoggedIn(renewed.principal, answers.ends_at(renewed)))
        reply.raw_headers.append((b"set-cookie", sessions.issued(renewed, caller)))
        return reply

    def _on(self, request: Request) -> tuple[Security, Sessions, CodeFlow, Caller]:
        security = self._security
        if security is None:
            raise problem("auth_off", "this server asks nobody who he is: there is no login; set SILT_AUTH=on for one")
        sessions, flow = security.identification.sessions, security.flow
        if sessions is None or flow is None:
            raise problem("not_found", "this server has no login by an identity provider; see SILT_OIDC_CLIENT_ID")
        return security, sessions, flow, request.scope["state"][CALLER]


def _back(caller: Caller) -> str:
    prefix = "" if caller.visit is None else caller.visit.prefix
    return f"{caller.scheme}://{caller.host.decode('latin-1')}{prefix}{CALLBACK_PATH}"


def _document(status: int, title: str, text: str, *, refresh: bool = False) -> Response:
    page = "../../"
    leads = f'<meta http-equiv="refresh" content="0;url={page}">' if refresh else ""
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{leads}<title>{title} · Siltlog</title></head>'
        f'<body><h1>{title}</h1><p>{escape(text)}</p><p><a href="{page}">To the page</a></p></body></html>'
    )
    return Response(body, status, _HEADERS, "text/html")
