import asyncio
from collections.abc import Generator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.client import core
from siltlog.infra.client.async_transport import AsyncCaller
from siltlog.infra.client.endpoints import Endpoints, Send
from siltlog.infra.client.retries import Followed, Pause, Reply, Retries, exchange, failure_of
from siltlog.infra.client.transport import Caller
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import (
    ConfigError,
    Forbidden,
    OutcomeUnknown,
    Refused,
    SiltlogError,
    Unauthenticated,
    Unavailable,
    UnknownTopic,
)


def reply(status: int, document: object = None, **headers: str) -> core.Response:
    body = b"" if document is None else msgspec.json.encode(document)
    return core.Response(status, {"content-type": "application/problem+json", **headers}, body)


def test_a_problem_becomes_the_error_of_its_code() -> None:
    document = {
        "error_code": "unknown_topic",
        "detail": "no topic x",
        "retryable": "no",
        "request_id": "r1",
        "topic": "x",
    }
    error = core.error_of(reply(404, document))
    assert isinstance(error, UnknownTopic)
    assert (str(error), error.status, error.request_id, error.members) == ("no topic x", 404, "r1", {"topic": "x"})
    assert core.error_of(reply(204)) is None


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(502, OutcomeUnknown, "unknown"), (503, Unavailable, "yes"), (429, Unavailable, "yes"), (404, Refused, "no")],
)
def test_a_page_of_something_else_is_judged_by_its_status(
    status: int, kind: type[SiltlogError], retryable: str
) -> None:
    error = core.error_of(core.Response(status, {"content-type": "text/html"}, b"<html>"))
    assert type(error) is kind and error.retryable == retryable


def test_retry_after_of_the_header_is_taken_where_the_document_has_none() -> None:
    error = core.error_of(core.Response(503, {"content-type": "text/html", "retry-after": "7"}, b""))
    assert error is not None and error.retry_after_ms == 7_000


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 100_000))
def test_backoff_grows_is_bounded_and_never_less_than_asked(attempt: int, jitter: float, asked: int | None) -> None:
    pause = core.backoff_ms(attempt, jitter, asked)
    assert pause >= (asked or 0)
    assert pause <= max(core.BACKOFF_MS_MAX, (asked or 0) + core.BACKOFF_MS_BASE) + 1
    assert core.backoff_ms(attempt + 1, jitter, asked) >= pause


def test_endpoints_move_on_once_for_each_failure() -> None:
    endpoints = Endpoints("http://a:1/, http://b:2")
    assert endpoints.current == "http://a:1"
    endpoints.failed("http://a:1")
    endpoints.failed("http://a:1")
    assert endpoints.current == "http://b:2"
    endpoints.failed("http://b:2")
    assert endpoints.current == "http://a:1"


@pytest.mark.parametrize("url", ["", "localhost:7070", "ftp://x", "http://", "http://x:99999", "http://x?y=1", []])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Endpoints(url)


@pytest.mark.parametrize("url", ["unix:", "unix:silt.sock", "unix:/run/", "unix://host", "unix:/a\0b"])
def test_what_is_no_path_of_a_socket_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="path of a socket"):
        Endpoints(url)


@pytest.mark.parametrize("url", ["https://ops:canary@silt.example", "https://canary@h:x", "ftp://ops:canary@silt"])
@pytest.mark.rule("X8")
def test_a_url_carries_no_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Endpoints(url)
    assert "canary" not in str(refused.value)


@pytest.mark.rule("X8")
def test_nothing_prints_the_fields_of_a_request() -> None:
    assert "canary" not in repr(core.Request("GET", "/", {"Authorization": "Bearer canary"}))


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthenticated), (403, Forbidden)])
def test_who_is_not_let_in_is_told_apart(status: int, kind: type[SiltlogError]) -> None:
    code = "unauthenticated" if status == 401 else "forbidden"
    for answer in (reply(status, {"error_code": code}), core.Response(status, {"content-type": "text/html"}, b"")):
        error = core.error_of(answer)
        assert type(error) is kind and not core.may_repeat(error, True)


def run(request: core.Request, results: list[core.Response | core.ConnectionFailed]) -> tuple[object, list[float]]:
    """The result or error of an exchange whose attempts end in `results`, one second each, and its pauses."""
    steps = exchange(request, Endpoints("http://a:1"), now=0.0, retry_timeout_ms=10_000, jitter=lambda: 0.5)
    now, pauses = 0.0, []
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                now += step.seconds
                step = next(steps)
            else:
                now += 1
                step = steps.send(Reply(results.pop(0), now))
    except StopIteration as done:
        return done.value, pauses
    except SiltlogError as error:
        return error, pauses


def test_an_exchange_goes_on_until_it_succeeds() -> None:
    busy = reply(503, {"error_code": "overloaded", "retry_after_ms": 3_000})
    refused = core.ConnectionFailed("refused", sent=False)
    result, pauses = run(core.json_request("POST", "/x", {}), [busy, refused, reply(200, {})])
    assert isinstance(result, core.Response) and result.status == 200
    assert len(pauses) == 2 and pauses[0] >= 3


def test_an_exchange_is_not_repeated_when_it_may_have_happened_and_must_not_happen_twice() -> None:
    lost = core.ConnectionFailed("reset", sent=True)
    result, _ = run(core.json_request("POST", "/x", {}), [lost, reply(200, {})])
    assert isinstance(result, OutcomeUnknown)
    result, _ = run(core.json_request("GET", "/x"), [lost, reply(200, {})])
    assert isinstance(result, core.Response)


def test_an_exchange_ends_with_the_last_error_when_its_time_is_over() -> None:
    result, pauses = run(core.json_request("GET", "/x"), [core.ConnectionFailed("refused", sent=False)] * 50)
    assert isinstance(result, Unavailable) and result.error_code == "unreachable"
    assert sum(pauses) < 10


def test_a_refusal_is_not_repeated() -> None:
    result, pauses = run(core.json_request("GET", "/x"), [reply(404, {"error_code": "unknown_topic"})])
    assert isinstance(result, UnknownTopic) and not pauses


class Refusing:
    def __init__(self) -> None:
        self.attempts = 0

    def send(self, url: str, request: core.Request) -> core.Response:
        self.attempts += 1
        raise core.ConnectionFailed("refused", sent=False)

    def close(self) -> None: ...


class AsyncRefusing(Refusing):
    async def send(self, url: str, request: core.Request) -> core.Response:  # type: ignore[override]
        return super().send(url, request)

    async def close(self) -> None: ...  # type: ignore[override]


def two_requests() -> Generator[core.Request, core.Response, tuple[str, int]]:
    told = ""
    try:
        yield core.json_request("GET", "/a")
    except Unavailable as error:
        told = error.error_code
    second = yield core.json_request("GET", "/b")
    return told, second.status


def test_a_call_is_told_its_error_and_goes_on() -> None:
    clock = SystemClock()
    steps = Retries(Endpoints("http://a:1"), clock, retry_timeout_ms=60_000).steps(two_requests())
    first = next(steps)
    assert isinstance(first, Send) and first.request.path == "/a"
    pause = steps.send(Reply(core.ConnectionFailed("refused", sent=False), clock.monotonic()))
    assert isinstance(pause, Pause)
    second = steps.throw(pause.error)
    assert isinstance(second, Send) and second.request.path == "/b"
    with pytest.raises(StopIteration) as done:
        steps.send(Reply(reply(200, {}), clock.monotonic()))
    assert done.value.value == ("unreachable", 200)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_caller_that_is_interrupted_waits_for_no_retry(interrupted: bool) -> None:
    request = core.json_request("GET", "/x")
    blocking, waiting = Refusing(), AsyncRefusing()
    caller = Caller(Endpoints("http://a:1"), blocking, SystemClock(), retry_timeout_ms=300)
    if interrupted:
        caller.interrupted.set()
    with pytest.raises(Unavailable):
        caller.call(request)

    async def ask() -> None:
        caller = AsyncCaller(Endpoints("http://a:1"), waiting, SystemClock(), retry_timeout_ms=300)
        if interrupted:
            caller.interrupted.set()
        await caller.call(request)

    with pytest.raises(Unavailable):
        asyncio.run(ask())
    assert (blocking.attempts == 1, waiting.attempts == 1) == (interrupted, interrupted)


A, B, C = "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"
PUBLISH = core.Request("POST", "/v1/topics/t/records?acks=wal", {"Accept": "x"}, repeatable=True)


def of_view(view: int, status: int = 200, document: object = None) -> core.Response:
    return reply(status, document, **{"silt-view": str(view)})


def not_owner(view: int, url: object) -> core.Response:
    said = {"error_code": "not_owner", "detail": "d", "retryable": "yes", "node": "n", "url": url, "view": view}
    return of_view(view, 421, said)


def going(endpoints: Endpoints, *results: core.Response | core.ConnectionFailed) -> list[str]:
    """Where a publish went, and `+` where it asked for the owner, until it got the last of these results."""
    steps = exchange(PUBLISH, endpoints, now=0, retry_timeout_ms=60_000, jitter=lambda: 0)
    went, left = [], list(results)
    step = next(steps)
    while True:
        if isinstance(step, Pause):
            went.append("pause")
            step = next(steps)
            continue
        direct = step.request.headers.get("Silt-Route") == "direct"
        went.append(step.url[-1] + "+" * direct)
        try:
            step = steps.send(Reply(left.pop(0), 0))
        except StopIteration:
            assert not left
            return went


@pytest.mark.rule("CR12")
def test_a_client_goes_to_the_owner_of_a_topic_and_follows_it() -> None:
    endpoints = Endpoints([A, B])
    assert going(endpoints, reply(200)) == ["1"]
    assert going(endpoints, of_view(3)) == ["1"]
    # From here on it knows that they are a cluster.
    assert going(endpoints, not_owner(3, C), of_view(3)) == ["1+", "3+"]
    assert going(endpoints, of_view(3)) == ["3+"]
    assert going(endpoints, not_owner(4, B), of_view(4)) == ["3+", "2+"]
    assert endpoints.send(core.Request("GET", "/v1/topics/u")).url == A
    assert endpoints.send(core.Request("GET", "/v1/topics/t")).url == B
    assert endpoints.send(core.Request("POST", "/v1/fetch")) == Send(A, core.Request("POST", "/v1/fetch"))


@pytest.mark.rule("CR12")
def test_where_the_owner_is_gone_any_other_node_is_asked() -> None:
    endpoints = Endpoints(A)
    gone = core.ConnectionFailed("refused", sent=False)
    going(endpoints, of_view(3))
    going(endpoints, not_owner(3, B), of_view(3))
    # The others pass it on, and find the next owner; then it goes there by itself.
    assert going(endpoints, gone, of_view(4)) == ["2+", "pause", "1"]
    assert going(endpoints, not_owner(4, C), of_view(4)) == ["1+", "3+"]
    # The one that was named first may be gone as well: those that were learned are asked.
    assert going(endpoints, gone, gone, of_view(5)) == ["3+", "pause", "1", "pause", "2"]


@pytest.mark.rule("CR15")
def test_an_owner_that_says_nothing_is_left_sooner_than_others() -> None:
    request = core.Request("POST", "/v1/topics/t/records", read_timeout_ms=20_000, owner_timeout_ms=5_000)
    endpoints = Endpoints([A, B])
    assert endpoints.send(request).request.read_timeout_ms == 20_000
    going(endpoints, of_view(3))
    assert endpoints.send(request).request.read_timeout_ms == 5_000
    for other in (
        core.Request("POST", "/v1/topics/t/records", read_timeout_ms=20_000),
        core.Request("POST", "/v1/topics/t/records", read_timeout_ms=2_000, owner_timeout_ms=5_000),
    ):
        assert endpoints.send(other).request.read_timeout_ms == other.read_timeout_ms
    # The others wait for whom the topic goes to.
    silent = core.ConnectionFailed("no answer", sent=True)
    assert going(endpoints, silent, of_view(3)) == ["1+", "pause", "2"]
    endpoints.failed(B)
    going(endpoints, not_owner(3, B), of_view(3))
    endpoints.failed(B)
    assert endpoints.send(request).request.read_timeout_ms == 20_000


@pytest.mark.rule("CR15")
def test_who_gave_no_answer_is_asked_again_after_those_who_say_later() -> None:
    silent = core.ConnectionFailed("no answer", sent=True)
    later = reply(503, {"error_code": "topic_unavailable", "retryable": "yes"})
    endpoints = Endpoints([A, B, C])
    going(endpoints, of_view(3))
    asked = going(endpoints, silent, later, later, later, silent, silent, silent, later, of_view(3))
    assert [step for step in asked if step != "pause"] == ["1+", "2", "3", "2", "3", "2", "3", "1", "2"]
    assert going(endpoints, of_view(3)) == ["2+"]


@pytest.mark.rule("CR15")
def test_a_node_that_says_nothing_is_left_for_another_which_is_waited_for() -> None:
    request = core.json_request("POST", "/v1/fetch", read_timeout_ms=10_500, repeatable=True, node_timeout_ms=5_500)
    silent = core.ConnectionFailed("no answer", sent=True)

    def asked(endpoints: Endpoints, retry_timeout_ms: int = 60_000) -> list[tuple[str, int]]:
        steps = exchange(request, endpoints, now=0, retry_timeout_ms=retry_timeout_ms, jitter=lambda: 0)
        went = []
        step = next(steps)
        while True:
            assert isinstance(step, Send)
            went.append((step.url, step.request.read_timeout_ms))
            try:
                step = steps.send(Reply(silent if len(went) == 1 else of_view(3), len(went) * 5.5))
                step = next(steps) if isinstance(step, Pause) else step
            except StopIteration:
                return went

    nodes = Endpoints([A, B])
    nodes.answered(A, of_view(3))
    assert asked(nodes) == [(A, 5_500), (B, 10_500)]
    assert asked(nodes, 0) == [(B, 5_500), (A, 10_500)], "also what is tried once"
    assert asked(Endpoints([A, B])) == [(A, 5_500), (B, 10_500)], "also before any has said that it is a node"
    # Where there is nobody else.
    alone = Endpoints(A)
    alone.answered(A, of_view(3))
    assert asked(alone) == [(A, 10_500), (A, 10_500)]
    with pytest.raises(OutcomeUnknown):
        asked(alone, 0)


def test_nodes_that_send_a_client_in_a_circle_are_asked_in_turn() -> None:
    endpoints = Endpoints(A)
    going(endpoints, of_view(3))
    told = [not_owner(3, B), not_owner(3, A), not_owner(3, B), not_owner(3, A), of_view(3)]
    assert going(endpoints, *told) == ["1+", "2+", "1+", "2+", "pause", "1+"]


@pytest.mark.rule("CR12")
@pytest.mark.parametrize(
    ("teller", "told", "followed"),
    [
        (A, B, True),
        ("https://a", "https://b", True),
        ("https://a", "http://b", False),
        ("https://a", "http://127.0.0.1:1", False),
        (A, "http://10.0.0.1:1", False),
        ("http://10.0.0.1:1", "http://10.0.0.2:1", True),
        (A, "https://b", False),
        (A, "unix:/run/silt.sock", False),
        (A, "ftp://b", False),
        (A, "http://user:pass@127.0.0.1", False),
        (A, 7, False),
        (A, None, False),
        (A, A, False),
    ],
)
def test_a_node_is_followed_where_its_connection_is_as_safe(teller: str, told: object, followed: bool) -> None:
    endpoints = Endpoints(teller)
    endpoints.answered(teller, of_view(3))
    error = failure_of(not_owner(3, told), teller, PUBLISH, endpoints)
    assert isinstance(error, Followed) == followed
    assert endpoints.send(PUBLISH).url == (told if followed else teller)
    assert endpoints.knows("https://b") == (followed and told == "https://b")


def test_what_an_older_view_says_is_not_followed() -> None:
    endpoints = Endpoints(A)
    endpoints.answered(A, of_view(9))
    assert not isinstance(failure_of(not_owner(8, B), A, PUBLISH, endpoints), Followed)


@pytest.mark.rule("CR15")
def test_what_waits_at_a_node_leaves_it_with_a_request_that_has_no_answer() -> None:
    endpoints = Endpoints([A, B])
    heartbeat = core.json_request("PUT", "/v1/groups/g/members/m", {}, leaves=True)
    assert endpoints.send(heartbeat).request.cut is None, "no cluster is known yet"
    going(endpoints, of_view(3))
    waiting, over = endpoints.send(heartbeat), endpoints.send(heartbeat)
    assert endpoints.send(core.json_request("PUT", "/v1/x", {})).request.cut is None
    assert waiting.request.cut is not None and over.request.cut is not None
    endpoints.over(over)
    ended: list[str] = []
    with waiting.request.cut.ending(lambda: ended.append("waiting")):
        endpoints.failed(A)  # it said that it cannot serve now
        endpoints.failed(B, "/v1/fetch")
        assert ended == []
        endpoints.failed(A, "/v1/fetch")
        assert ended == ["waiting"] and waiting.request.cut.is_made
    assert not over.request.cut.is_made
    with waiting.request.cut.ending(lambda: ended.append("at once")):
        assert ended == ["waiting", "at once"]
    waiting.request.cut.make()
    assert ended == ["waiting", "at once"], "nothing is ended that is over"


def test_an_exchange_that_ends_waits_no_more() -> None:
    endpoints = Endpoints([A, B])
    going(endpoints, of_view(3))
    steps = exchange(core.Request("PUT", "/v1/x", leaves=True), endpoints, now=0, retry_timeout_ms=0, jitter=lambda: 0)
    sent = next(steps)
    assert isinstance(sent, Send) and sent.request.cut is not None
    with pytest.raises(OutcomeUnknown):
        steps.send(Reply(core.ConnectionFailed("no answer", sent=True), 0))
    assert not sent.request.cut.is_made
