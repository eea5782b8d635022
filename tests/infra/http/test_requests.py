"""Parameters, bodies and replies, without a server."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from starlette.types import Message

from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import Refused, SiltlogError, Unavailable, problem
from siltlog.infra.http.memory import SMALL_BYTES, InFlight
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import BodyReader, decode, json_reply, problem_reply
from siltlog.infra.limits import INTEGER_MAX, whole_number


def query(text: str | bytes, *allowed: str) -> Query:
    raw = text if isinstance(text, bytes) else text.encode()
    return Query(HTTPConnection({"type": "http", "query_string": raw}), allowed or ("a", "b"))


def refusal(call: Callable[[], Any]) -> SiltlogError:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_through(text: str) -> None:
    found = query(f"a={quote(text, safe='')}")
    assert ("a" in found, found.text("a"), "b" in found, found.text("b", "default")) == (True, text, False, "default")
    if "&" not in text and "%" not in text and "+" not in text:
        assert query("a=" + text).text("a") == text


@pytest.mark.parametrize(
    ("text", "parameter"), [("c=1", "c"), ("a=1&a=2", "a"), ("A=1", "A"), (b"a=\xff", ""), ("a=%FF", ""), ("%FF=1", "")]
)
def test_a_parameter_that_is_not_offered_twice_or_no_text(text: str | bytes, parameter: str) -> None:
    error = refusal(lambda: query(text))
    assert (error.error_code, error.status, error.members["parameter"]) == ("invalid_parameter", 400, parameter)


@given(st.integers(0, INTEGER_MAX))
def test_whole_numbers(number: int) -> None:
    assert query(f"a={number}").integer("a", 5) == number
    assert whole_number(str(number)) == number


def test_numbers_and_their_bounds() -> None:
    assert query("").integer("a", 5) == 5
    assert query("a=10").integer("a", 5, maximum=7, cut=True) == 7
    assert query("a=" + "9" * 5_000).integer("a", 5, maximum=7, cut=True) == 7
    assert "from 1 to" in refusal(lambda: query("a=0").integer("a", 5, minimum=1)).detail


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", " 1", "٣", "²", "0x1", "8", "9" * 5_000])
def test_what_is_no_whole_number_in_its_bounds(text: str) -> None:
    error = refusal(lambda: query(f"a={quote(text)}").integer("a", 5, maximum=7))
    assert (error.error_code, error.members["parameter"]) == ("invalid_parameter", "a")
    assert "from 0 to 7" in error.detail


def test_choices_and_times() -> None:
    assert query("a=x").choice("a", ("x", "y"), "y") == "x"
    assert query("").choice("a", ("x", "y"), "y") == "y"
    assert "one of x, y" in refusal(lambda: query("a=").choice("a", ("x", "y"), "y")).detail
    assert query("").time_us("a") is None
    assert query("a=1970-01-01T02:00:00%2B02:00").time_us("a") == 0
    error = refusal(lambda: query("a=1970-01-01T02:00:00+02:00").time_us("a"))
    assert (error.error_code, error.status, "%2B" in error.detail) == ("invalid_request", 422, True)


def test_problems_as_replies() -> None:
    reply = problem_reply(problem("wal_full", "x", retry_after_ms=1_001), "id")
    assert (reply.status_code, reply.headers["retry-after"], reply.media_type) == (503, "2", "application/problem+json")
    assert msgspec.json.decode(reply.body)["request_id"] == "id"
    assert problem_reply(problem("wal_full", "x", retry_after_ms=1), None).headers["retry-after"] == "1"
    assert "retry-after" not in problem_reply(problem("unknown_topic", "x"), None).headers
    assert problem_reply(problem("request_timeout", "x"), None).headers["connection"] == "close"
    reply = json_reply({"a": 1}, 201, {"Location": "/x"})
    assert (reply.body, reply.headers["cache-control"], reply.headers["location"]) == (b'{"a":1}', "no-store", "/x")


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    a: int


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b'{"a": "x"}', "invalid_request", "$.a"),
        (b'{"a": 1, "b": 2}', "invalid_request", "unknown field `b`"),
        (b"{}", "invalid_request", "`a`"),
        (b'{"a": 1', "malformed_body", "at byte 7: it ends too early"),
        (b'{"a": 01}', "malformed_body", "at byte 7"),
        (b'{"\xff": 1}', "malformed_body", "byte 2"),
    ],
)
def test_json_that_is_not_what_was_wanted(body: bytes, code: str, words: str) -> None:
    error = refusal(lambda: decode(body, msgspec.json.Decoder(_Wanted)))
    assert error.error_code == code
    assert words in error.detail
    assert decode(b'{"a": 1}', msgspec.json.Decoder(_Wanted)) == _Wanted(1)


# --- bodies -----------------------------------------------------------------------------------------------
def received(*parts: bytes, ends: str = "complete") -> Callable[[], Awaitable[Message]]:
    """What a server's `receive` gives: the parts, then the end, a disconnect, or nothing ever."""

    async def messages() -> AsyncIterator[Message]:
        for i, part in enumerate(parts):
            more = ends != "complete" or i + 1 < len(parts)
            yield {"type": "http.request", "body": part, "more_body": more}
        if ends == "never":
            await asyncio.Event().wait()
        yield {"type": "http.disconnect"}

    iterator = messages()
    return lambda: anext(iterator)


def read(
    reader: Callable[[], Awaitable[Message]], bytes_max: int = 10, length: str = "", timeout_ms: int = 60_000
) -> bytes:
    return asyncio.run(BodyReader(bytes_max, timeout_ms).read(reader, length))


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=6))
def test_a_body_in_parts(parts: list[bytes]) -> None:
    whole = b"".join(parts)
    assert read(received(*parts), max(len(whole), 1), str(len(whole))) == whole
    if whole:
        error = refusal(lambda: read(received(*parts), len(whole) - 1))
        assert (error.error_code, error.status, error.members["limit"]) == ("request_too_large", 413, len(whole) - 1)


@pytest.mark.rule("P4")
def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    error = refusal(lambda: read(received(ends="never"), 10, "11"))
    assert error.error_code == "request_too_large"


def test_a_body_that_breaks_off() -> None:
    assert refusal(lambda: read(received(b"abc", ends="broken"))).error_code == "malformed_body"


@pytest.mark.rule("P4")
def test_bodies_that_come_too_slowly_are_given_up_each_by_itself() -> None:
    async def run() -> None:
        bodies = BodyReader(10, 20)
        slow = [asyncio.create_task(bodies.read(received(b"abc", ends="never"), "")) for _ in range(3)]
        assert await bodies.read(received(b"abc"), "3") == b"abc"
        for outcome in await asyncio.gather(*slow, return_exceptions=True):
            assert isinstance(outcome, Unavailable)
            assert (outcome.error_code, outcome.status) == ("request_timeout", 408)
        # The next one gets its own time.
        assert await bodies.read(received(b"abc"), "3") == b"abc"

    asyncio.run(run())


def test_a_cancelled_request_stays_cancelled() -> None:
    async def run() -> None:
        task = asyncio.create_task(BodyReader(10, 60_000).read(received(ends="never"), ""))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_what_a_body_inflates_to_is_counted() -> None:
    async def run() -> None:
        in_flight = InFlight(SMALL_BYTES, SystemClock())
        bodies, held = BodyReader(1 << 20, in_flight=in_flight), in_flight.hold()
        packed = gzip.compress(bytes(10_000))
        assert await bodies.inflated(await bodies.read(received(packed), "", held), "gzip", held) == bytes(10_000)
        assert in_flight.used_bytes == len(packed) + 10_000
        held.release()
        with pytest.raises(Unavailable):
            await bodies.inflated(gzip.compress(bytes(SMALL_BYTES + 1)), "gzip", held)

    asyncio.run(run())
