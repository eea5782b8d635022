"""The header fields of a request: which of them come once, and what becomes of those that come more often."""

from collections.abc import Iterable

from siltlog.infra import names
from siltlog.infra.errors import SiltlogError, problem

Fields = list[tuple[bytes, bytes]]
"""Names are in lower case."""

_NAMED = (
    "Authorization",
    "Content-Length",
    "Content-Type",
    "Host",
    "Last-Event-ID",
    "Origin",
    "Access-Control-Request-Method",
    names.HEADER_REQUEST_ID,
    names.HEADER_GIVEN_REQUEST_ID,
    names.HEADER_PRODUCER_ID,
    names.HEADER_PRODUCER_EPOCH,
    names.HEADER_SEQUENCE,
    names.HEADER_SEQUENCE_MODE,
    names.HEADER_IDEMPOTENCY_KEY,
    names.HEADER_PARTITION_COUNT,
    names.HEADER_PARTITIONER,
    names.HEADER_TIMESTAMPS,
)
SINGLE = {name.lower().encode(): name for name in _NAMED}
"""A request may have each of these only once."""
LISTS = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"access-control-request-headers",
        b"content-encoding",
        b"x-forwarded-for",
        b"x-forwarded-proto",
    )
)
"""Several of one name mean what one with all their values does (RFC 9110, section 5.3)."""
_COOKIE = b"cookie"
"""A proxy that spoke HTTP/2 with a browser may hand on several: they are one with semicolons (RFC 9113, 8.2.3)."""
_ONCE = (b"authorization", b"host")
"""Even the same value twice is refused of these: a second Host is (RFC 9112, section 3.2), and so is a credential."""


def check_head(version: str, target: bytes, fields: Fields) -> None:
    """Raises ValueError for a request of which another reader might think that it is for somebody else, or ends
    elsewhere (RFC 9112, sections 3.2 and 6.1)."""
    if version not in ("1.0", "1.1"):
        raise ValueError("this is no version that is spoken here")
    host: bytes | None = None
    for name, value in fields:
        if name == b"host":
            host = value
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise ValueError("Transfer-Encoding may be chunked, and nothing else")
    if host is None and version == "1.1":
        raise ValueError("the field Host is missing")
    if target[:1] not in (b"/", b"*"):
        authority = target.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].partition(b"#")[0]
        if b"@" in authority:
            # Not repeated: it may be a token.
            raise ValueError("there is a user or password before the host; send a credential in Authorization")
        if host is None or authority.lower() != host.lower():
            raise ValueError("the target names another host than the field Host")


def told_apart(fields: Iterable[tuple[bytes, bytes]]) -> tuple[Fields, SiltlogError | None]:
    """The fields with one of each that is single or a list; the refusal of a single one that comes with two values.

    Nobody knows which of the two some proxy went by, so such a field is left out.
    """
    kept: dict[bytes, bytes] = {}
    others: Fields = []
    twice: list[bytes] = []
    for name, value in fields:
        if name == _COOKIE:
            kept[name] = kept[name] + b"; " + value if name in kept else value
        elif name not in SINGLE and name not in LISTS:
            others.append((name, value))
        elif name not in kept:
            kept[name] = value
        elif name in LISTS:
            kept[name] += b", " + value
        elif kept[name] != value or name in _ONCE:
            twice.append(name)
    refusal = _refusal(SINGLE[twice[0]]) if twice else None
    return [*((name, value) for name, value in kept.items() if name not in twice), *others], refusal


def _refusal(name: str) -> SiltlogError:
    return problem("invalid_parameter", f"the header field {name} is given twice; give it once", parameter=name)
