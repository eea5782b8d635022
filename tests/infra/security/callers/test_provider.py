"""Keys of an identity provider: how they come, how long they count, and what a token costs."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from siltlog.infra.errors import SiltlogError
from siltlog.infra.security.callers import provider as module
from siltlog.infra.security.callers.https import FetchFailed, Https
from siltlog.infra.security.callers.identification import NotJudged
from siltlog.infra.security.callers.provider import AGAIN_SECONDS, KEYS_COUNT_SECONDS, KNOWN_MAX, LOOK_SECONDS, Provider
from siltlog.infra.security.callers.tokens import SKEW_SECONDS, Expected
from siltlog.infra.security.grant import Identity
from tests.rigs.identity_provider import AUDIENCE, IdentityProvider
from tests.rigs.signed_tokens import CLAIMS, EXPECTED, ISSUER, NOW_US, RSA, STRANGE, public, signed, token

DISCOVERY = ISSUER + "/.well-known/openid-configuration"
JWKS = "https://id.example/keys"


class Clock:
    seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now_us(self) -> int:
        return NOW_US + int((self.seconds - 1_000.0) * 1_000_000)

    def sleep(self, seconds: float) -> None:
        raise AssertionError

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds


class Logger:
    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, event: str, **values: Any) -> None:
        self.said.append(event)

    info = warning


class Documents:
    """What the provider publishes, in memory; None: it is away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.found: dict[str, bytes | None] = {}
        self.publish(public(RSA))

    def publish(self, *keys: dict[str, Any], issuer: str = ISSUER, uri: str = JWKS) -> None:
        self.found = {
            DISCOVERY: json.dumps({"issuer": issuer, "jwks_uri": uri}).encode(),
            uri: json.dumps({"keys": keys}).encode(),
        }

    def away(self) -> None:
        self.found = {}

    async def get(self, url: str) -> bytes:
        self.asked.append(url)
        await asyncio.sleep(0)
        content = self.found.get(url)
        if content is None:
            raise FetchFailed(f"{url} is away")
        return content


async def asked(provider: Provider, text: str, *, aside: bool = False) -> Identity:
    found = provider.verify(text, aside=aside)
    return found if isinstance(found, Identity) else await found


def taken_back(provider: Provider, identity: Identity) -> bool:
    with pytest.raises(SiltlogError) as caught:
        provider.check(identity)
    return caught.value.members == {"reason": "unknown"}


class Rig:
    def __init__(self) -> None:
        self.clock, self.logger, self.documents = Clock(), Logger(), Documents()
        self.lost = 0
        self.provider = Provider(EXPECTED, self.documents.get, self._count, self.clock, self.logger)

    def _count(self) -> None:
        self.lost += 1

    async def verify(self, text: str | None = None) -> Identity:
        return await asked(self.provider, token() if text is None else text)

    async def refused(self, text: str | None = None) -> SiltlogError:
        with pytest.raises(SiltlogError) as caught:
            await self.verify(text)
        return caught.value


def run(test: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig()
        try:
            await test(rig)
        finally:
            rig.provider.stop()

    asyncio.run(main())


def test_keys_are_read_once_and_a_token_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []
    real = module.verify
    monkeypatch.setattr(module, "verify", lambda text, *rest: verified.append(text) or real(text, *rest))

    async def test(rig: Rig) -> None:
        text = token()
        for _ in range(3):
            assert (await rig.verify(text)).subject.principal == "user:ada"
        assert rig.documents.asked == [DISCOVERY, JWKS]
        assert verified == [text]
        # Once it has ended it is looked at again, and refused.
        rig.clock.pass_by(300 + SKEW_SECONDS)
        error = await rig.refused(text)
        assert (error.status, error.error_code, error.members["reason"]) == (401, "unauthenticated", "expired")

    run(test)


def test_callers_at_once_share_a_look() -> None:
    async def test(rig: Rig) -> None:
        found = await asyncio.gather(*(rig.verify(token(sub=f"u{index}")) for index in range(20)))
        assert {one.subject.principal for one in found} == {f"user:u{index}" for index in range(20)}
        assert rig.documents.asked == [DISCOVERY, JWKS]

    run(test)


@pytest.mark.parametrize("reason", ["malformed", "unknown"])
def test_a_refusal_says_why_and_nothing_of_the_token(reason: str) -> None:
    text = {"malformed": "a.b.c", "unknown": token(aud="other")}[reason]

    async def test(rig: Rig) -> None:
        error = await rig.refused(text)
        assert (error.status, error.members) == (401, {"reason": reason})
        assert text not in str(error)
        assert error.__cause__ is None and error.__suppress_context__

    run(test)


@pytest.mark.rule("A13")
def test_an_unknown_key_has_them_read_anew_but_not_at_everybodys_word() -> None:
    async def test(rig: Rig) -> None:
        await rig.verify()
        fresh = signed({"alg": "RS256", "kid": "new", "typ": "JWT"}, CLAIMS, "RS256", STRANGE)
        rig.documents.publish(public(RSA), public(STRANGE, kid="new"))
        assert (await rig.refused(fresh)).members["reason"] == "unknown"
        assert len(rig.documents.asked) == 2
        rig.clock.pass_by(AGAIN_SECONDS)
        assert (await rig.verify(fresh)).subject.principal == "user:ada"
        assert len(rig.documents.asked) == 4
        forged = [signed({"alg": "RS256", "kid": f"k{index}"}, CLAIMS, "RS256", STRANGE) for index in range(50)]
        await asyncio.gather(*(rig.refused(one) for one in forged))
        rig.clock.pass_by(AGAIN_SECONDS)
        await asyncio.gather(*(rig.refused(one) for one in forged))
        assert len(rig.documents.asked) == 6
        assert rig.lost == 0

    run(test)


def test_a_token_that_names_no_key_has_them_read_anew_too() -> None:
    async def test(rig: Rig) -> None:
        await rig.verify()
        fresh = signed({"alg": "RS256", "typ": "JWT"}, CLAIMS, "RS256", STRANGE)
        rig.documents.publish(public(STRANGE, kid="new"))
        assert isinstance(await rig.refused(fresh), NotJudged)
        rig.clock.pass_by(AGAIN_SECONDS)
        assert (await rig.verify(fresh)).subject.principal == "user:ada"

    run(test)


@pytest.mark.rule("A28")
def test_a_token_is_judged_by_keys_that_were_read_for_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.verify()
        fresh = signed({"alg": "RS256", "kid": "new"}, CLAIMS, "RS256", STRANGE)
        error = await rig.refused(fresh)
        assert isinstance(error, NotJudged), "they were read a moment ago"
        assert (error.status, error.error_code, error.members) == (401, "unauthenticated", {"reason": "unknown"})
        assert (error.retryable, error.retry_after_ms) == ("yes", AGAIN_SECONDS * 1000)
        assert not isinstance(await rig.refused(token(aud="other")), NotJudged)
        rig.clock.pass_by(AGAIN_SECONDS)
        assert not isinstance(await rig.refused(fresh), NotJudged), "they were read for it, and have no such key"
        assert isinstance(await rig.refused(fresh), NotJudged)
        rig.clock.pass_by(AGAIN_SECONDS)
        rig.documents.away()
        assert isinstance(await rig.refused(fresh), NotJudged), "they could not be read"

    run(test)


@pytest.mark.rule("A13")
def test_a_key_that_is_gone_takes_its_tokens_along() -> None:
    async def test(rig: Rig) -> None:
        text = token()
        found = await rig.verify(text)
        rig.provider.check(found)
        rig.documents.publish(public(STRANGE, kid="new"))
        rig.clock.pass_by(AGAIN_SECONDS)
        # Anybody's token with an unknown key has the set read, and with it the loss is seen.
        await rig.verify(signed({"alg": "RS256", "kid": "new"}, CLAIMS, "RS256", STRANGE))
        assert rig.lost == 1
        assert taken_back(rig.provider, found)
        assert (await rig.refused(text)).members["reason"] == "unknown"

    run(test)


def test_a_key_of_the_same_name_that_is_another_counts_as_gone() -> None:
    async def test(rig: Rig) -> None:
        text = token()
        found = await rig.verify(text)
        rig.documents.publish(public(STRANGE))
        rig.clock.pass_by(AGAIN_SECONDS)
        await rig.refused(signed({"alg": "RS256", "kid": "new"}, CLAIMS, "RS256", STRANGE))
        assert (rig.lost, taken_back(rig.provider, found)) == (1, True)
        assert (await rig.refused(text)).members["reason"] == "unknown"

    run(test)


@pytest.mark.rule("A14")
def test_while_it_is_away_its_keys_count_for_a_day() -> None:
    async def test(rig: Rig) -> None:
        await rig.verify()
        rig.documents.away()
        unknown = signed({"alg": "RS256", "kid": "new"}, CLAIMS, "RS256", STRANGE)
        rig.clock.pass_by(KEYS_COUNT_SECONDS - 1)
        assert (await rig.refused(unknown)).status == 401
        assert len(rig.provider.warnings()) == 1
        assert (await rig.verify(token(exp=NOW_US // 1_000_000 + 200_000))).subject.principal == "user:ada"
        rig.clock.pass_by(AGAIN_SECONDS)
        assert (await rig.refused(unknown)).error_code == "identity_unavailable"
        assert rig.lost == 1
        error = await rig.refused(token(exp=NOW_US // 1_000_000 + 200_000))
        assert (error.status, error.error_code, error.retryable) == (503, "identity_unavailable", "yes")
        assert "id.example" not in str(error)
        rig.documents.publish(public(RSA))
        rig.clock.pass_by(AGAIN_SECONDS)
        assert (await rig.verify(token(exp=NOW_US // 1_000_000 + 200_000))).subject.principal == "user:ada"
        assert rig.provider.warnings() == []
        assert rig.logger.said == [
            "the identity provider does not answer",
            "keys of the identity provider are too old to count",
            "the identity provider answers again",
        ]

    run(test)


def test_one_that_was_never_there() -> None:
    async def test(rig: Rig) -> None:
        rig.documents.away()
        assert (await rig.refused()).error_code == "identity_unavailable"
        assert (await rig.refused()).error_code == "identity_unavailable"
        assert rig.documents.asked == [DISCOVERY]
        (warning,) = rig.provider.warnings()
        assert warning.startswith(f"the identity provider {ISSUER} has not answered since 2026-")
        rig.documents.publish(public(RSA))
        rig.clock.pass_by(AGAIN_SECONDS)
        assert (await rig.verify()).subject.principal == "user:ada"

    run(test)


def test_what_it_publishes_must_be_its_own() -> None:
    async def test(rig: Rig) -> None:
        for issuer in (ISSUER + "/", "https://evil.example"):
            rig.documents.publish(public(RSA), issuer=issuer)
            assert (await rig.refused()).error_code == "identity_unavailable"
            assert "very same" in rig.provider.warnings()[0]
            rig.clock.pass_by(AGAIN_SECONDS)
        for uri in (
            "http://id.example/keys",
            "http://127.0.0.1/keys",
            "file:///etc/passwd",
            "https://u:p@id.example/k",
        ):
            rig.documents.publish(public(RSA), uri=uri)
            assert (await rig.refused()).error_code == "identity_unavailable"
            assert "cannot be used" in rig.provider.warnings()[0] and "u:p" not in rig.provider.warnings()[0]
            rig.clock.pass_by(AGAIN_SECONDS)
        for content in (b"", b"[]", b'{"issuer": 1}', b"[" * 100_000):
            rig.documents.found[DISCOVERY] = content
            assert (await rig.refused()).error_code == "identity_unavailable"
            rig.clock.pass_by(AGAIN_SECONDS)
        rig.documents.publish()
        assert (await rig.refused()).error_code == "identity_unavailable"

    run(test)


def test_a_set_without_keys_leaves_the_last() -> None:
    async def test(rig: Rig) -> None:
        await rig.verify()
        rig.documents.publish()
        rig.clock.pass_by(AGAIN_SECONDS)
        await rig.refused(signed({"alg": "RS256", "kid": "new"}, CLAIMS, "RS256", STRANGE))
        assert (await rig.verify(token(sub="eve"))).subject.principal == "user:eve"
        assert rig.lost == 0 and rig.provider.warnings()

    run(test)


def test_they_are_read_ahead_of_need_and_sooner_while_it_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            await asyncio.Event().wait()
        rig_of_test.clock.pass_by(seconds)
        if len(slept) == 1:
            rig_of_test.documents.away()

    async def test(rig: Rig) -> None:
        nonlocal rig_of_test
        rig_of_test = rig
        rig.documents.get = _at_once(rig.documents)  # type: ignore[method-assign]
        rig.provider = Provider(EXPECTED, rig.documents.get, lambda: None, rig.clock, rig.logger)
        monkeypatch.setattr(asyncio, "sleep", sleep)
        rig.provider.start()
        while len(slept) < 3:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        assert slept == [LOOK_SECONDS, AGAIN_SECONDS, AGAIN_SECONDS]
        monkeypatch.undo()

    rig_of_test: Rig
    run(test)


def _at_once(documents: Documents) -> Callable[[str], Awaitable[bytes]]:
    async def get(url: str) -> bytes:
        content = documents.found.get(url)
        if content is None:
            raise FetchFailed("away")
        return content

    return get


@pytest.mark.rule("A15")
def test_tokens_of_those_who_failed_wait_on_a_thread_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, threads = threading.Event(), set()
    real = module.verify

    def slow(*arguments: Any) -> Identity:
        threads.add(threading.current_thread())
        go_on.wait(60)
        return real(*arguments)

    async def test(rig: Rig) -> None:
        await rig.verify()
        monkeypatch.setattr(module, "verify", slow)
        waiting = [
            asyncio.create_task(asked(rig.provider, token(sub=f"u{index}"), aside=True))
            for index in range(module.WAITING_MAX)
        ]
        await asyncio.sleep(0.05)
        with pytest.raises(SiltlogError) as caught:
            await asked(rig.provider, token(sub="more"), aside=True)
        assert (caught.value.status, caught.value.error_code) == (429, "rate_limited")
        # One that was verified before passes all the same.
        assert (await asked(rig.provider, token(), aside=True)).subject.principal == "user:ada"
        go_on.set()
        found = await asyncio.gather(*waiting)
        assert found[7].subject.principal == "user:u7"
        assert rig.provider.takes(token()) and not rig.provider.takes("silt_0123456789ab_" + "0" * 49)
        assert len(threads) == 1 and threading.main_thread() not in threads

    run(test)


def test_only_so_many_tokens_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 10)
    assert KNOWN_MAX == 10_000

    async def test(rig: Rig) -> None:
        for index in range(25):
            await rig.verify(token(sub=f"u{index}"))
            assert len(rig.provider._known) <= 10
        monkeypatch.setattr(module, "verify", None)
        await rig.verify(token(sub="u24"))

    run(test)


# A provider that is one


class Wall:
    """The clock of this machine, but for what a test lets pass by."""

    def __init__(self) -> None:
        import time

        self._time = time
        self.ahead = 0.0

    def monotonic(self) -> float:
        return self._time.monotonic() + self.ahead

    def now_us(self) -> int:
        return self._time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError


@asynccontextmanager
async def of(idp: IdentityProvider, clock: Wall, https: Https | None = None) -> AsyncIterator[Provider]:
    expected = Expected(idp.issuer, AUDIENCE, client_id="page")
    provider = Provider(expected, (https or Https()).get, lambda: None, clock, Logger())
    try:
        yield provider
    finally:
        provider.stop()


async def reason_of(provider: Provider, text: str) -> str:
    with pytest.raises(SiltlogError) as caught:
        await asked(provider, text)
    return str(caught.value.members.get("reason", caught.value.error_code))


async def _life(idp: IdentityProvider) -> None:
    clock = Wall()
    async with of(idp, clock) as provider:
        first = idp.token(groups=["ops"])
        assert (await asked(provider, first)).subject == ("user:ada", ("ops",))
        for client_id in ("page", AUDIENCE):
            assert await reason_of(provider, idp.id_token(client_id)) == "unknown"
        assert await reason_of(provider, idp.token(seconds=-SKEW_SECONDS - 1)) == "expired"
        await asyncio.to_thread(idp.rotate)
        second = idp.token("eve")
        assert await reason_of(provider, second) == "unknown"
        assert (await asked(provider, first)).subject.principal == "user:ada"
        clock.ahead += AGAIN_SECONDS
        assert (await asked(provider, second)).subject.principal == "user:eve"
        assert await reason_of(provider, first) == "unknown"
        await asyncio.to_thread(idp.stop)
        clock.ahead += AGAIN_SECONDS
        idp.rotate()
        third = idp.token("zoe")
        assert await reason_of(provider, third) == "unknown"
        assert (await asked(provider, second)).subject.principal == "user:eve"
        assert "has not answered since" in provider.warnings()[0]
        await asyncio.to_thread(idp.resume)
        clock.ahead += AGAIN_SECONDS
        assert (await asked(provider, third)).subject.principal == "user:zoe"
        assert provider.warnings() == []


@pytest.mark.rule("A13")
def test_the_life_of_a_provider() -> None:
    with IdentityProvider() as idp:
        asyncio.run(_life(idp))
