"""The identity provider whose tokens count: its keys, read ahead of need and kept while it is away."""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.callers.https import FETCH_SECONDS, FetchFailed, checked_url
from siltlog.infra.security.callers.identification import NotJudged
from siltlog.infra.security.callers.tokens import (
    USER_PREFIX,
    Expected,
    SigningKeys,
    TokenRefused,
    UnknownSigningKey,
    mark_of,
    read_keys,
    verify,
    verify_id_token,
)
from siltlog.infra.security.grant import Identity, unauthenticated
from siltlog.infra.telemetry import Logger

DISCOVERY_PATH = "/.well-known/openid-configuration"
LOOK_SECONDS = 600.0
"""How often the keys are read: one that its provider took back counts at most so long, and a few seconds."""
AGAIN_SECONDS = 30.0
"""The least time between two looks: a token that names an unknown key asks for one, and anybody can write such a
token."""
KEYS_COUNT_SECONDS = 24 * 3600.0
"""How long keys count whose provider does not answer."""
KNOWN_MAX = 10_000
"""Tokens that are not verified again until they end."""
WAITING_MAX = 64
"""Tokens that wait for the thread."""
_DIGEST_BYTES = 32
_DOTS = 2
assert AGAIN_SECONDS > 2 * FETCH_SECONDS

Fetch = Callable[[str], Awaitable[bytes]]
"""Raises FetchFailed."""


class Discovered(msgspec.Struct):
    """What a provider says of itself."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    userinfo_endpoint: str = ""
    token_endpoint_auth_methods_supported: list[str] = []


class Provider:
    """Verifies the tokens of one issuer. Used on one event loop."""

    principals = USER_PREFIX

    def __init__(
        self, expected: Expected, fetch: Fetch, when_lost: Callable[[], None], clock: Clock, logger: Logger
    ) -> None:
        """`when_lost()` is called when keys do not count any more: who was known by them has to be verified anew."""
        self._expected = expected
        self._fetch = fetch
        self._when_lost = when_lost
        self._clock = clock
        self._logger = logger
        self._keys: SigningKeys | None = None
        self._discovered: Discovered | None = None
        self._looked_s = 0.0
        """When the keys were last read with success, by the monotonic clock."""
        self._asked_s = -AGAIN_SECONDS
        self._look: asyncio.Task[None] | None = None
        self._failure = ""
        self._failing_since_us = 0
        self._known: dict[bytes, Identity] = {}
        self._thread = ThreadPoolExecutor(1, "silt-tokens")
        self._waiting = 0
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to read the keys, now and every few minutes."""
        self._following = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        for task in (self._following, self._look):
            if task is not None:
                task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def warnings(self) -> list[str]:
        """One sentence while the provider does not answer as it should."""
        if not self._failure:
            return []
        since = format_us(self._failing_since_us)
        return [f"the identity provider {self._expected.issuer} has not answered since {since}: {self._failure}"]

    def takes(self, token: str) -> bool:
        return token.count(".") == _DOTS

    def known(self, token: str) -> Identity | None:
        identity = self._known.get(_digest(token))
        return None if identity is None or self._has_ended(identity) else identity

    def verify(self, token: str, *, aside: bool) -> Identity | Awaitable[Identity]:
        """Says who has a token, at once where it was verified before.

        `aside` is on a thread, few at a time. Raises, once awaited, Refused `unauthenticated`, and Unavailable
        `identity_unavailable` or `rate_limited`.
        """
        return self.known(token) or self._identity(token, aside)

    def check(self, identity: Identity) -> None:
        if self._keys is None:
            raise _unknown()
        if not self._counts(identity):
            raise unauthenticated("unknown", "the key that signed the token was taken back; use another token")

    async def discovered(self) -> Discovered:
        """What the provider says of itself. Raises Unavailable `identity_unavailable`."""
        await self._present_keys()
        assert self._discovered is not None
        return self._discovered

    async def logged_in(self, id_token: str, nonce: str | None) -> tuple[Identity, str]:
        """Tells who logged in by the page, and his `sub`. Raises Refused `unauthenticated`, Unavailable."""
        keys = await self._present_keys()
        try:
            try:
                return verify_id_token(id_token, keys, self._expected, nonce, self._clock.now_us())
            except UnknownSigningKey:
                # The provider itself has given it, for a code or a token that counts once: no stranger has it look.
                await self._look_anew(at_once=True)
                keys = await self._present_keys()
                return verify_id_token(id_token, keys, self._expected, nonce, self._clock.now_us())
        except TokenRefused as refused:
            raise unauthenticated(refused.reason, f"the id token does not count: {refused}") from None

    def _counts(self, identity: Identity) -> bool:
        return self._keys is not None and mark_of(identity.credential_id) in self._keys.marks

    async def _identity(self, token: str, aside: bool) -> Identity:
        try:
            identity = await self._verify(token, aside)
        except TokenRefused as refused:
            raise unauthenticated(refused.reason, f"the token does not count: {refused}") from None
        if len(self._known) >= KNOWN_MAX:
            self._forget()
        self._known[_digest(token)] = identity
        return identity

    async def _verify(self, token: str, aside: bool) -> Identity:
        read_for_it = False
        while True:
            keys = await self._present_keys()
            try:
                identity = await (self._verify_aside(token, keys) if aside else self._verify_here(token, keys))
            except UnknownSigningKey:
                if read_for_it:
                    raise
                await self._look_anew()
                if self._keys is keys:
                    seconds = self._asked_s + AGAIN_SECONDS - self._clock.monotonic()
                    raise NotJudged(
                        "the token does not count yet: its issuer's keys were read without the one that signed it, and "
                        f"are read again within {AGAIN_SECONDS:.0f} seconds",
                        retry_after_ms=max(math.ceil(seconds * 1000), 1),
                    ) from None
                read_for_it = True
            else:
                if self._counts(identity):
                    return identity

    async def _verify_here(self, token: str, keys: SigningKeys) -> Identity:
        return verify(token, keys, self._expected, self._clock.now_us())

    async def _verify_aside(self, token: str, keys: SigningKeys) -> Identity:
        if self._waiting >= WAITING_MAX:
            raise problem("rate_limited", "too many tokens of callers whose tokens failed wait to be verified")
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, verify, token, keys, self._expected, self._clock.now_us())
        finally:
            self._waiting -= 1

    async def _present_keys(self) -> SigningKeys:
        """Raises Unavailable `identity_unavailable`."""
        if self._keys is None:
            await self._look_anew()
        if self._keys is None:
            raise _unknown()
        return self._keys

    async def _look_anew(self, *, at_once: bool = False) -> None:
        """Waits for a look that is under way, or for one more, unless the last was a moment ago, and not `at_once`."""
        if self._look is None and (at_once or self._clock.monotonic() - self._asked_s >= AGAIN_SECONDS):
            self._asked_s = self._clock.monotonic()
            self._look = asyncio.get_running_loop().create_task(self._read_keys())
            self._look.add_done_callback(self._looked)
        if self._look is not None:
            await asyncio.wait([self._look])

    def _looked(self, look: "asyncio.Task[None]") -> None:
        self._look = None

    async def _follow(self) -> None:
        while True:
            await self._look_anew()
            await asyncio.sleep(AGAIN_SECONDS if self._failure else LOOK_SECONDS)

    async def _read_keys(self) -> None:
        try:
            discovered = await discover(self._expected.issuer, self._fetch)
            keys = await _keys_of(discovered, self._fetch)
        except FetchFailed as error:
            self._failed(str(error))
            return
        if self._failure:
            self._logger.info("the identity provider answers again", issuer=self._expected.issuer)
            self._failure = ""
        self._looked_s = self._clock.monotonic()
        self._discovered = discovered
        self._take(keys)

    def _failed(self, reason: str) -> None:
        if not self._failure:
            self._failing_since_us = self._clock.now_us()
            self._logger.warning("the identity provider does not answer", issuer=self._expected.issuer, reason=reason)
        self._failure = reason
        if self._keys is not None and self._clock.monotonic() - self._looked_s >= KEYS_COUNT_SECONDS:
            self._logger.warning("keys of the identity provider are too old to count", issuer=self._expected.issuer)
            self._take(None)

    def _take(self, keys: SigningKeys | None) -> None:
        before, self._keys = self._keys, keys
        if before is not None and (keys is None or before.marks - keys.marks):
            self._known.clear()
            self._when_lost()

    def _forget(self) -> None:
        """Makes room: the tokens that ended go, and, where those are few, the half that was known first."""
        alive = [(digest, identity) for digest, identity in self._known.items() if not self._has_ended(identity)]
        self._known = dict(alive[-(KNOWN_MAX // 2) :])

    def _has_ended(self, identity: Identity) -> bool:
        return identity.until_us is not None and self._clock.now_us() >= identity.until_us


def _unknown() -> SiltlogError:
    return problem("identity_unavailable", "tokens cannot be verified now, as the identity provider does not answer")


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()


async def fetch_keys(issuer: str, fetch: Fetch) -> SigningKeys:
    """Reads the keys that an OpenID provider signs with. Raises FetchFailed."""
    return await _keys_of(await discover(issuer, fetch), fetch)


async def discover(issuer: str, fetch: Fetch) -> Discovered:
    """Reads what an OpenID provider says of itself (OpenID Connect Discovery 1.0). Raises FetchFailed."""
    url = issuer.rstrip("/") + DISCOVERY_PATH
    try:
        discovered = msgspec.json.decode(await fetch(url), type=Discovered)
    except (msgspec.DecodeError, RecursionError):
        raise FetchFailed(f"{url} gives no document of an OpenID provider") from None
    if discovered.issuer != issuer:
        raise FetchFailed(f"{url} is of the issuer {discovered.issuer[:200]!r}; it must be the very same")
    return discovered


async def _keys_of(discovered: Discovered, fetch: Fetch) -> SigningKeys:
    issuer = discovered.issuer
    try:
        # A provider that is asked by TLS does not send for its keys without.
        if checked_url(discovered.jwks_uri).scheme != checked_url(issuer).scheme:
            raise ValueError("they are somewhere else than at https://")
        return await asyncio.to_thread(read_keys, await fetch(discovered.jwks_uri))
    except ValueError as error:
        raise FetchFailed(f"the keys of {issuer} cannot be used: {error}") from None
