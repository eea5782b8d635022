"""The login by a provider, against a real one."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest
import urllib3
from identity_provider import IdentityProvider

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError
from siltlog.infra.security.callers.code_flow import (
    FINISHING_MAX,
    FINISHING_OF_FAILING_MAX,
    GROUPS_US,
    Client,
    CodeFlow,
    LoggedIn,
)
from siltlog.infra.security.callers.https import FetchFailed, Https, Reply
from siltlog.infra.security.callers.provider import Provider
from siltlog.infra.security.callers.tokens import Expected
from siltlog.infra.security.sessions import ATTEMPT_SECONDS, Attempt, Session
from siltlog.infra.telemetry import logger

BACK = "https://silt.example/ui/login/oidc/callback"
CLIENT = "silt-page"


class SteppedClock(SystemClock):
    late_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.late_us


@pytest.fixture(scope="module")
def idp() -> Iterator[IdentityProvider]:
    with IdentityProvider() as idp:
        yield idp


class World:
    def __init__(self, idp: IdentityProvider, client: str = CLIENT, secret: str = "hush hush") -> None:
        self.idp = idp
        self.clock = SteppedClock()
        expected = Expected(idp.issuer, "siltlog", client_id=client)
        https = Https()
        self.provider = Provider(expected, https.get, lambda: None, self.clock, logger("error", "json"))
        self.flow = CodeFlow(self.provider, expected, Client(client, secret, "openid email"), https, self.clock)
        self.ended: list[Session] = []

    async def lost(self, session: Session) -> None:
        self.ended.append(session)

    async def logged_in(self, sub: str = "ada") -> LoggedIn:
        url, attempt = await self.flow.begin(BACK)
        return await self.flow.finish(attempt, await self.let_in(url, sub), BACK)

    async def let_in(self, url: str, sub: str = "ada") -> dict[str, str]:
        """What the provider sends back to the page for who lets himself be logged in."""
        return await asyncio.to_thread(consented, url, sub)

    def session(self, login: LoggedIn) -> Session:
        now_us = self.clock.now_us()
        subject = login.identity.subject
        return Session(
            "id", subject.principal, subject.groups, login.identity.credential_id, now_us, now_us,
            login.identity.until_us, login.refresh_token, login.sub,
        )  # fmt: skip


def consented(url: str, sub: str) -> dict[str, str]:
    sent = urllib3.PoolManager().request(
        "POST",
        url,
        body=urlencode({"sub": sub}),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
        redirect=False,
    )
    back = urlsplit(sent.headers["location"])
    assert back._replace(query="").geturl() == BACK
    return {name: values[0] for name, values in parse_qs(back.query).items()}


def claims(idp: IdentityProvider, sub: str, **said: Any) -> None:
    reply = urllib3.PoolManager().request(
        "PUT", f"{idp.issuer}/users/{sub}", body=json.dumps(said), headers={"Content-Type": "application/json"}
    )
    assert reply.status == 204


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await body()

    asyncio.run(whole())


async def refused(doing: Awaitable[object], match: str) -> SiltlogError:
    with pytest.raises(SiltlogError, match=match) as error:
        await doing
    return error.value


@pytest.mark.rule("A62")
def test_who_comes_back_with_a_code_is_whom_the_provider_says(idp: IdentityProvider) -> None:
    claims(idp, "ada", groups=["writers", "readers"])

    async def body() -> None:
        world = World(idp)
        login = await world.logged_in()
        assert login.identity.subject == ("user:ada", ("writers", "readers"))
        assert login.sub == "ada"
        assert login.identity.until_us is not None
        assert 0 < login.identity.until_us - world.clock.now_us() <= GROUPS_US
        world.provider.check(login.identity)
        idp.rotate()

    run(body)


@pytest.mark.rule("A62")
def test_the_provider_is_shown_what_only_the_verifier_fits_to(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        url, attempt = await world.flow.begin(BACK)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        assert asked == {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": BACK,
            "scope": "openid email",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        assert attempt.verifier not in url
        before = len(idp.forms)
        await world.flow.finish(attempt, await world.let_in(url), BACK)
        sent = [form for form in idp.forms[before:] if form.get("grant_type") == "authorization_code"]
        assert [form["code_verifier"] for form in sent] == [attempt.verifier]
        other = (await world.flow.begin(BACK))[1]
        assert len({attempt.state, attempt.nonce, attempt.verifier, other.state, other.nonce, other.verifier}) == 6
        assert min(len(each) for each in (attempt.state, attempt.nonce, attempt.verifier)) >= 43

    run(body)


@pytest.mark.rule("A62")
def test_an_answer_to_another_login_is_none(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        url, attempt = await world.flow.begin(BACK)
        said = await world.let_in(url)
        for wrong in ({**said, "state": "x"}, {"code": said["code"]}, {**said, "state": attempt.state[:-1]}):
            await refused(world.flow.finish(attempt, wrong, BACK), "another login")
        (_, another) = await world.flow.begin(BACK)
        await refused(world.flow.finish(another, said, BACK), "another login")
        stolen = msgspec.structs.replace(another, state=attempt.state)
        # Who brings his own code to somebody else's login has not the nonce that its token must have.
        await refused(world.flow.finish(stolen, said, BACK), "nonce")

    run(body)


@pytest.mark.rule("A62")
def test_a_login_is_answered_once_and_within_ten_minutes(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        url, attempt = await world.flow.begin(BACK)
        said = await world.let_in(url)
        assert (await world.flow.finish(attempt, said, BACK)).sub == "ada"
        await refused(world.flow.finish(attempt, said, BACK), "answered before")
        url, attempt = await world.flow.begin(BACK)
        said = await world.let_in(url)
        world.clock.late_us = ATTEMPT_SECONDS * 1_000_000
        error = await refused(world.flow.finish(attempt, said, BACK), "more than ten minutes")
        assert error.members["reason"] == "expired"

    run(body)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"error": "access_denied"}, "let nobody in: access_denied"),
        ({"code": "made up"}, "refuses the login"),
        ({}, "refuses the login"),
        ({"code": "x", "iss": "https://evil.example"}, "another identity provider answers"),
    ],
)
def test_what_the_provider_does_not_confirm_is_no_login(idp: IdentityProvider, said: dict[str, str], why: str) -> None:
    async def body() -> None:
        world = World(idp)
        _, attempt = await world.flow.begin(BACK)
        error = await refused(world.flow.finish(attempt, {"state": attempt.state, **said}, BACK), why)
        assert error.error_code == "unauthenticated"

    run(body)


@pytest.mark.rule("A63")
def test_groups_are_what_the_provider_says_when_it_is_asked_again(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        claims(idp, "eve", groups=["writers"])
        session = world.session(await world.logged_in("eve"))
        assert session.groups == ("writers",)
        claims(idp, "eve", groups=["readers"])
        world.clock.late_us = GROUPS_US // 2
        before = len([path for path in idp.asked if path.endswith("/token")])
        renewed, again = await asyncio.gather(
            world.flow.renewed(session, world.lost), world.flow.renewed(session, world.lost)
        )
        assert renewed == again
        assert len([path for path in idp.asked if path.endswith("/token")]) == before + 1, "a token may count once"
        assert (renewed.groups, renewed.session_id, renewed.begun_us) == (("readers",), "id", session.begun_us)
        assert renewed.login_until_us is not None
        assert session.login_until_us is not None
        assert renewed.login_until_us - session.login_until_us >= GROUPS_US // 2
        assert world.ended == []

    run(body)


@pytest.mark.rule("A63")
def test_a_login_that_the_provider_took_back_ends_the_session(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        session = world.session(await world.logged_in("mallory"))
        urllib3.PoolManager().request("POST", f"{idp.issuer}/users/mallory/revoke-tokens")
        error = await refused(world.flow.renewed(session, world.lost), "refuses the login")
        assert error.error_code == "unauthenticated"
        assert world.ended == [session]

    run(body)


@pytest.mark.rule("A63")
def test_a_provider_that_is_away_ends_nothing(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        session = world.session(await world.logged_in())
        idp.stop()
        try:
            error = await refused(world.flow.renewed(session, world.lost), "cannot be asked")
        finally:
            idp.resume()
        assert (error.error_code, world.ended) == ("identity_unavailable", [])

    run(body)


@pytest.mark.rule("A62")
def test_a_login_by_a_key_that_is_newer_than_the_last_look_counts() -> None:
    """The code of a login counts once, so nobody can come again with it."""

    async def body() -> None:
        world = World(idp)
        before = await world.logged_in("ada")
        idp.rotate()
        after = await world.logged_in("ada")
        assert (after.identity.subject, after.sub) == (before.identity.subject, before.sub)
        assert after.identity.credential_id != before.identity.credential_id

    with IdentityProvider() as idp:
        run(body)


@pytest.mark.rule("A63")
def test_another_ones_refresh_token_renews_nobody(idp: IdentityProvider) -> None:
    async def body() -> None:
        world = World(idp)
        session = world.session(await world.logged_in("ada"))
        other = world.session(await world.logged_in("eve"))
        mixed = msgspec.structs.replace(session, refresh_token=other.refresh_token)
        await refused(world.flow.renewed(mixed, world.lost), "somebody else")
        assert world.ended == [mixed]

    run(body)


def test_the_secret_of_the_client_is_nowhere_to_be_read() -> None:
    assert "hush" not in repr(Client("c", "hush", "openid"))
    assert "v" not in repr(Attempt("s", "n", "v", 1)).removeprefix("Attempt")


class Hanging(Https):
    """A provider that answers no login before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def ask(self, method: str, url: str, fields: Mapping[str, str], body: bytes = b"") -> Reply:
        await self.let.wait()
        raise FetchFailed("it is away")


@pytest.mark.parametrize("from_failing", [False, True])
def test_only_so_many_strangers_have_the_provider_asked_at_once(idp: IdentityProvider, from_failing: bool) -> None:
    async def test() -> None:
        world, https = World(idp), Hanging()
        expected = Expected(idp.issuer, "siltlog", client_id=CLIENT)
        flow = CodeFlow(world.provider, expected, Client(CLIENT, "", "openid"), https, world.clock)
        most = FINISHING_OF_FAILING_MAX if from_failing else FINISHING_MAX

        async def come_back() -> str:
            _, attempt = await flow.begin(BACK)
            try:
                await flow.finish(attempt, {"state": attempt.state, "code": "x"}, BACK, from_failing=from_failing)
            except SiltlogError as error:
                return error.detail
            return ""

        coming = [asyncio.create_task(come_back()) for _ in range(most + 1)]
        done, waiting = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, most)
        assert "begin again in a moment" in done.pop().result()
        https.let.set()
        assert {"it is away" in detail for detail in await asyncio.gather(*waiting)} == {True}
        assert "it is away" in await come_back()

    asyncio.run(test())
