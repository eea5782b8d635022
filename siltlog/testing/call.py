"""A call to the log in memory: a request taken apart, and replies to it."""

from collections.abc import Coroutine, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from siltlog.infra import names
from siltlog.infra.client.core import Response
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.listing.ranking import ranking_of

T = TypeVar("T")
Steps = Generator[float, None, Response]
"""A call that can wait: yields for how many seconds where it has nothing to say yet, and is resumed when something has
changed or the time is over."""
MIB = 1024 * 1024
RECORD_BYTES_MAX = 8 * MIB
LIMITS = {
    "request_bytes": 32 * MIB,
    "record_bytes": RECORD_BYTES_MAX,
    "records": 1_000_000,
    "wait_ms": 30_000,
    "fetch_bytes": 64 * MIB,
}
LIST_LIMIT = 100


class Call(NamedTuple):
    """A request, taken apart."""

    names: tuple[str, ...]
    """The names in its path."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names are in lower case."""
    body: bytes

    def document(self, as_type: type[T]) -> T:
        """The JSON body. Raises Refused `invalid_request`."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=as_type)
        except msgspec.DecodeError as error:
            raise problem("invalid_request", f"the body: {error}") from None


NOTHING = Response(204, {}, b"")


def reply(document: Any, status: int = 200) -> Response:
    return Response(status, {"content-type": names.MEDIA_JSON}, msgspec.json.encode(document))


def refusal(error: SiltlogError) -> Response:
    document = problem_document(error, None)
    return Response(document["status"], {"content-type": names.MEDIA_PROBLEM}, msgspec.json.encode(document))


def page(call: Call, found: list[str]) -> tuple[list[str], str | None]:
    """A page of the sorted names, and where to go on."""
    prefix, after = call.query.get("prefix", ""), call.query.get("after", "")
    limit = int(call.query.get("limit", LIST_LIMIT))
    rest = [name for name in found if name.startswith(prefix) and name > after]
    return rest[:limit], rest[limit - 1] if len(rest) > limit else None


def ranked_page(call: Call, values: Mapping[str, float], sorts: tuple[str, ...]) -> tuple[list[str], str | None]:
    """A page of names by their values, and where to go on."""
    ranking = ranking_of(lambda name, allowed, default: _choice(call, name, allowed, default), sorts)
    found = ranking.names(values, call.query.get("prefix", ""), call.query.get("after", ""))
    limit = int(call.query.get("limit", LIST_LIMIT))
    return found[:limit], ranking.cursor(values[found[limit - 1]], found[limit - 1]) if len(found) > limit else None


def _choice(call: Call, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = call.query.get(name, default)
    if value not in allowed:
        raise problem("invalid_parameter", f"{name} must be one of {', '.join(allowed)}, not {value[:80]!r}")
    return value


def settled(steps: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that has nothing to wait for: over a log in memory none has."""
    try:
        steps.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("what is in memory is there at once")
