"""Logs in to the page by an OpenID provider: authorization code with PKCE (RFC 6749, 7636, OpenID Connect Core 1.0).

Each login has a state, a nonce and a verifier of its own, which a cookie keeps in the browser that began it: a code
that comes by another browser, or for another login, is nothing.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from siltlog.infra.clock import MICROS_PER_SECOND, Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.access import Subject
from siltlog.infra.security.callers.https import FetchFailed, Reply, checked_url
from siltlog.infra.security.callers.provider import Discovered, Provider
from siltlog.infra.security.callers.tokens import Expected, TokenRefused, subject_of
from siltlog.infra.security.grant import Identity, unauthenticated
from siltlog.infra.security.sessions import ATTEMPT_SECONDS, Attempt, Session

GROUPS_US = 3_600 * MICROS_PER_SECOND
"""Groups count so long after the provider said them; then it is asked again, or the session ends."""
ATTEMPTS_MAX = 10_000
RENEWED_SECONDS = 60.0
"""Whoever asks again within that is given what the provider said: a refresh token may count once."""
_RANDOM_BYTES = 32
_OK = 200
_REFUSED = (400, 401)
FINISHING_MAX = 32
"""Logins for which the provider is asked at once: anybody can come back from it with a code that is none."""
FINISHING_OF_FAILING_MAX = 4
_FORM = "application/x-www-form-urlencoded"


class Client(NamedTuple):
    """What the page's login is to the provider. Nothing prints the secret."""

    client_id: str
    secret: str
    scopes: str

    def __repr__(self) -> str:
        return f"Client({self.client_id!r})"


class Asks(Protocol):
    """Sends one request; raises FetchFailed."""

    async def ask(self, method: str, url: str, fields: Mapping[str, str], body: bytes = b"") -> Reply: ...


class _Tokens(msgspec.Struct):
    id_token: str = ""
    access_token: str = ""
    refresh_token: str = ""


class _Wrong(msgspec.Struct):
    error: str = ""


_tokens = msgspec.json.Decoder(_Tokens)
_wrong = msgspec.json.Decoder(_Wrong)


class LoggedIn(NamedTuple):
    identity: Identity
    sub: str
    refresh_token: str


class CodeFlow:
    """Used on one event loop."""

    def __init__(self, provider: Provider, expected: Expected, client: Client, https: Asks, clock: Clock) -> None:
        self._provider = provider
        self._expected = expected
        self._client = client
        self._https = https
        self._clock = clock
        self._done: dict[str, None] = {}
        """The states of logins that were answered, the oldest first: each is answered once."""
        self._renewing: dict[str, asyncio.Task[Session]] = {}
        self._finishing = 0

    @property
    def host(self) -> str:
        """The provider, as people know it."""
        return urlsplit(self._expected.issuer).netloc

    async def begin(self, back: str) -> tuple[str, Attempt]:
        """Gives the provider's page to go to, and what the browser keeps. Raises Unavailable `identity_unavailable`."""
        discovered = await self._provider.discovered()
        at = self._checked(discovered.authorization_endpoint, "authorization_endpoint")
        attempt = Attempt(_random(), _random(), _random(), self._clock.now_us())
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": back,
            "scope": self._client.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{at}{'&' if urlsplit(at).query else '?'}{urlencode(asked)}", attempt

    async def finish(
        self, attempt: Attempt, said: Mapping[str, str], back: str, *, from_failing: bool = False
    ) -> LoggedIn:
        """Tells who logged in, by what the provider sent the browser back with; `from_failing` is an address that much
        wrong came from.

        Raises Refused `unauthenticated`, Unavailable `identity_unavailable`.
        """
        self._take(attempt, said)
        if "error" in said:
            raise unauthenticated("unknown", f"the identity provider let nobody in: {said['error'][:80]}")
        form = {"grant_type": "authorization_code", "code": said.get("code", ""), "redirect_uri": back}
        if self._finishing >= (FINISHING_OF_FAILING_MAX if from_failing else FINISHING_MAX):
            raise _unavailable("so many log in at once that it is not asked for more; begin again in a moment")
        self._finishing += 1
        try:
            tokens = await self._tokens({**form, "code_verifier": attempt.verifier})
        finally:
            self._finishing -= 1
        identity, sub = await self._provider.logged_in(tokens.id_token, attempt.nonce)
        # The id token only tells who logged in, mostly for minutes; what it says of groups counts for an hour.
        until_us = self._clock.now_us() + GROUPS_US
        return LoggedIn(identity._replace(until_us=until_us), sub, tokens.refresh_token)

    async def renewed(self, session: Session, lost: Callable[[Session], Awaitable[object]]) -> Session:
        """The session with the groups that the provider says now.

        Calls `lost(session)` where the provider does not know the login any more. Raises Refused `unauthenticated`,
        Unavailable `identity_unavailable`.
        """
        renewing = self._renewing.get(session.session_id)
        if renewing is None:
            loop = asyncio.get_running_loop()
            renewing = self._renewing[session.session_id] = loop.create_task(self._renew(session, lost))
            renewing.add_done_callback(
                lambda _: loop.call_later(RENEWED_SECONDS, self._renewing.pop, session.session_id, None)
            )
        return await asyncio.shield(renewing)

    async def _renew(self, session: Session, lost: Callable[[Session], Awaitable[object]]) -> Session:
        try:
            tokens = await self._tokens({"grant_type": "refresh_token", "refresh_token": session.refresh_token})
            if tokens.id_token:
                identity, sub = await self._provider.logged_in(tokens.id_token, None)
                subject, credential_id = identity.subject, identity.credential_id
            else:
                (subject, sub), credential_id = await self._told(tokens.access_token), session.credential_id
            if sub != session.sub or subject.principal != session.principal:
                raise unauthenticated("unknown", "the identity provider says that somebody else has logged in")
        except SiltlogError as error:
            if error.error_code == "unauthenticated":
                await lost(session)
            raise
        now_us = self._clock.now_us()
        return msgspec.structs.replace(
            session,
            groups=subject.groups,
            credential_id=credential_id,
            seen_us=now_us,
            login_until_us=now_us + GROUPS_US,
            refresh_token=tokens.refresh_token or session.refresh_token,
        )

    def _take(self, attempt: Attempt, said: Mapping[str, str]) -> None:
        """Raises Refused `unauthenticated` for what is no answer to this login, or comes too late or again."""
        if not hmac.compare_digest(said.get("state", "").encode(), attempt.state.encode()):
            raise unauthenticated("unknown", "this is the answer to another login; begin again")
        if self._clock.now_us() >= attempt.begun_us + ATTEMPT_SECONDS * MICROS_PER_SECOND:
            raise unauthenticated("expired", "the login took more than ten minutes; begin again")
        if attempt.state in self._done:
            raise unauthenticated("unknown", "this login was answered before; begin again")
        if len(self._done) >= ATTEMPTS_MAX:
            del self._done[next(iter(self._done))]
        self._done[attempt.state] = None
        if said.get("iss", self._expected.issuer) != self._expected.issuer:
            raise unauthenticated("unknown", "another identity provider answers (`iss`)")

    async def _tokens(self, form: Mapping[str, str]) -> _Tokens:
        discovered = await self._provider.discovered()
        url = self._checked(discovered.token_endpoint, "token_endpoint")
        fields, own = self._authentication(discovered)
        reply = await self._asked("POST", url, {"Content-Type": _FORM, **fields}, urlencode({**form, **own}).encode())
        if reply.status in _REFUSED:
            error = _decoded(reply, _wrong).error
            if error in ("invalid_client", "unauthorized_client"):
                raise _unavailable(f"it does not take this server's SILT_OIDC_CLIENT_ID and secret ({error})")
            raise unauthenticated("unknown", f"the identity provider refuses the login: {error[:80] or reply.status}")
        if reply.status != _OK:
            raise _unavailable(f"{url} answers {reply.status}")
        tokens: _Tokens = _decoded(reply, _tokens)
        return tokens

    def _authentication(self, discovered: Discovered) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Header fields and fields of the form by which this client says who it is (RFC 6749, section 2.3.1)."""
        client_id, secret = self._client.client_id, self._client.secret
        ways = discovered.token_endpoint_auth_methods_supported
        if not secret:
            return {}, {"client_id": client_id}
        if "client_secret_post" in ways and "client_secret_basic" not in ways:
            return {}, {"client_id": client_id, "client_secret": secret}
        pair = base64.b64encode(f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}, {}

    async def _told(self, access_token: str) -> tuple[Subject, str]:
        """Whom the provider's userinfo names, for one that sends no id token with what was refreshed."""
        discovered = await self._provider.discovered()
        url = self._checked(discovered.userinfo_endpoint, "userinfo_endpoint")
        if not access_token.isascii() or not access_token.isprintable():
            raise unauthenticated("malformed", "the identity provider's token is no text")
        reply = await self._asked("GET", url, {"Authorization": f"Bearer {access_token}"})
        if reply.status in _REFUSED:
            raise unauthenticated("unknown", "the identity provider does not know the login any more")
        if reply.status != _OK:
            raise _unavailable(f"{url} answers {reply.status}")
        try:
            claims = msgspec.json.decode(reply.body, type=dict[str, Any])
            return subject_of(claims, self._expected), str(claims.get("sub", ""))
        except msgspec.DecodeError:
            raise _unavailable(f"{url} gives no claims") from None
        except TokenRefused as refused:
            raise unauthenticated(
                refused.reason, f"what the identity provider says does not count: {refused}"
            ) from None

    async def _asked(self, method: str, url: str, fields: Mapping[str, str], body: bytes = b"") -> Reply:
        try:
            return await self._https.ask(method, url, fields, body)
        except FetchFailed as error:
            raise _unavailable(str(error)) from None

    def _checked(self, url: str, what: str) -> str:
        """Raises Unavailable for an address of the provider's to which no secret goes."""
        try:
            if checked_url(url).scheme != checked_url(self._expected.issuer).scheme:
                raise ValueError("it is somewhere else than at https://")
        except ValueError as error:
            raise _unavailable(f"its {what} cannot be used: {error}") from None
        return url


def _decoded(reply: Reply, decoder: "msgspec.json.Decoder[Any]") -> Any:
    try:
        return decoder.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _unavailable("it answers with no JSON document") from None


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def _unavailable(reason: str) -> SiltlogError:
    return problem("identity_unavailable", f"the identity provider cannot be asked who logs in: {reason}")
