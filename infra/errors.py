"""The error tree, and the one table that maps error codes to HTTP.

    SiltlogError                 error_code, status, retryable, request_id
    ├── ConfigError              a setting, a topic's configuration or a start-up condition is wrong
    ├── Refused                  nothing happened, and sending the same again will not help
    │   ├── UnknownTopic
    │   ├── TopicExists
    │   ├── RecordTooLarge
    │   ├── OffsetOutOfRange
    │   ├── Unauthenticated      the server does not know who asks: no valid token or certificate
    │   └── Forbidden            it knows, and who asks may not do this
    ├── Fenced                   another producer, member or owner has taken over
    ├── Unavailable              nothing happened; the same may succeed later (retry_after_ms), or once it is allowed
    ├── OutcomeUnknown           it may have happened
    ├── CorruptData              stored bytes failed their checksum; names where
    ├── BufferFull               the producer's buffer stayed full for max_block_ms
    └── DeliveryFailed           records that were accepted by send() did not arrive (`.failures`)

The server raises what the client raises: `problem()` builds the class that belongs to an error code, on either side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from siltlog.infra.redaction import redacted

Retryable = Literal["yes", "unknown", "no"]


class SiltlogError(Exception):
    """Root of every error this package raises on purpose.

    `str(error)` is a sentence that says what was wrong and what to do. `members` are the extension members of the
    problem (RFC 9457 section 3.2), such as `next_sequence`.
    """

    error_code = "internal"
    status: int | None = None
    retryable: Retryable = "no"

    def __init__(
        self,
        detail: str,
        *,
        error_code: str | None = None,
        status: int | None = None,
        retryable: Retryable | None = None,
        request_id: str | None = None,
        retry_after_ms: int | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.error_code = error_code or self.error_code
        self.status = status if status is not None else self.status
        self.retryable = retryable or self.retryable
        self.request_id = request_id
        self.retry_after_ms = retry_after_ms
        self.members: dict[str, Any] = dict(members or {})

    def __str__(self) -> str:
        return self.detail


class ConfigError(SiltlogError):
    error_code = "invalid_config"


class Refused(SiltlogError):
    error_code = "invalid_request"


class UnknownTopic(Refused):
    error_code = "unknown_topic"


class TopicExists(Refused):
    error_code = "topic_exists"


class RecordTooLarge(Refused):
    error_code = "record_too_large"


class OffsetOutOfRange(Refused):
    error_code = "offset_out_of_range"


class Unauthenticated(Refused):
    error_code = "unauthenticated"


class Forbidden(Refused):
    error_code = "forbidden"


class Fenced(SiltlogError):
    error_code = "fenced_member"


class Unavailable(SiltlogError):
    error_code = "overloaded"
    retryable = "yes"


class OutcomeUnknown(SiltlogError):
    error_code = "ack_timeout"
    retryable = "unknown"


class CorruptData(SiltlogError):
    error_code = "corrupt_data"


class BufferFull(SiltlogError):
    error_code = "buffer_full"
    retryable = "yes"


class DeliveryFailed(SiltlogError):
    """`failures` has one error per record that did not arrive, in the order of their sends.

    `records` holds those records, by topic, as tables that `Producer.send_batch` takes again.
    """

    error_code = "delivery_failed"

    def __init__(
        self,
        detail: str,
        *,
        failures: Sequence[BaseException] = (),
        records: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(detail, **kwargs)
        self.failures = tuple(failures)
        self.records: dict[str, Any] = dict(records or {})


class ErrorKind(NamedTuple):
    status: int
    title: str
    retryable: Retryable
    cls: type[SiltlogError]


KINDS: dict[str, ErrorKind] = {
    "malformed_body": ErrorKind(400, "The body is malformed", "no", Refused),
    "invalid_parameter": ErrorKind(400, "A parameter is not valid", "no", Refused),
    "credential_in_url": ErrorKind(400, "A token is in the URL", "no", Refused),
    "unauthenticated": ErrorKind(401, "No valid credential", "no", Unauthenticated),
    "forbidden": ErrorKind(403, "Not allowed", "no", Forbidden),
    "cap_reached": ErrorKind(403, "As many as there may be", "no", Forbidden),
    "tls_required": ErrorKind(403, "Only over TLS", "no", Refused),
    "origin_not_allowed": ErrorKind(403, "This origin may not call this server", "no", Refused),
    "csrf": ErrorKind(403, "Not from the page itself", "no", Refused),
    "page_only_shows": ErrorKind(403, "The page only shows", "no", Refused),
    "unknown_topic": ErrorKind(404, "No such topic", "no", UnknownTopic),
    "unknown_partition": ErrorKind(404, "No such partition", "no", Refused),
    "unknown_group": ErrorKind(404, "No such group", "no", Refused),
    "unknown_run": ErrorKind(404, "No such run of a job", "no", Refused),
    "unknown_key": ErrorKind(404, "No such API key", "no", Refused),
    "unknown_member": ErrorKind(404, "No such member", "no", Fenced),
    "not_found": ErrorKind(404, "Nothing is here", "no", Refused),
    "method_not_allowed": ErrorKind(405, "Method not allowed", "no", Refused),
    "not_acceptable": ErrorKind(406, "No acceptable format", "no", Refused),
    "request_timeout": ErrorKind(408, "The body came too slowly", "yes", Unavailable),
    "auth_off": ErrorKind(409, "Authentication is off", "no", Refused),
    "cluster_off": ErrorKind(409, "There is no cluster", "no", Refused),
    "key_exists": ErrorKind(409, "The key exists", "no", Refused),
    "last_admin": ErrorKind(409, "The last administrator stays", "no", Refused),
    "access_changed": ErrorKind(409, "The access document changed meanwhile", "no", Refused),
    "overridden": ErrorKind(409, "Something stronger sets this setting", "no", Refused),
    "needs_restart": ErrorKind(409, "The setting takes a restart", "no", Refused),
    "config_changed": ErrorKind(409, "The settings changed meanwhile", "no", Refused),
    "topic_exists": ErrorKind(409, "The topic exists", "no", TopicExists),
    "fenced_member": ErrorKind(409, "Another member holds this", "no", Fenced),
    "fenced_producer": ErrorKind(409, "A newer epoch of this producer exists", "no", Fenced),
    "unknown_producer": ErrorKind(409, "This producer is not known", "no", Fenced),
    "out_of_order_sequence": ErrorKind(409, "The sequence is not next in line", "no", Fenced),
    "partition_count_changed": ErrorKind(409, "The topic's partition count is another", "no", Refused),
    "job_running": ErrorKind(409, "The job runs already", "no", Refused),
    "job_unavailable": ErrorKind(409, "The job cannot be run", "no", Refused),
    "run_ended": ErrorKind(409, "The run has ended", "no", Refused),
    "records_open": ErrorKind(409, "Lower records are not done", "no", Refused),
    "group_not_empty": ErrorKind(409, "The group has members", "no", Refused),
    "request_too_large": ErrorKind(413, "The request is too large", "no", Refused),
    "record_too_large": ErrorKind(413, "A record is too large", "no", RecordTooLarge),
    "unsupported_media_type": ErrorKind(415, "Unsupported media type", "no", Refused),
    "unsupported_encoding": ErrorKind(415, "Unsupported content encoding", "no", Refused),
    "offset_out_of_range": ErrorKind(416, "The offset is out of range", "no", OffsetOutOfRange),
    "not_owner": ErrorKind(421, "Another node owns the topic", "yes", Unavailable),
    "unknown_host": ErrorKind(421, "This server does not answer for that host", "no", Refused),
    "invalid_record": ErrorKind(422, "A record is not valid", "no", Refused),
    "invalid_request": ErrorKind(422, "The request is not valid", "no", Refused),
    "invalid_config": ErrorKind(422, "The configuration is not valid", "no", ConfigError),
    "unsupported_acks": ErrorKind(422, "This acks level is not offered", "no", Refused),
    "idempotency_key_reused": ErrorKind(422, "The idempotency key was used for another body", "no", Refused),
    "query_limit": ErrorKind(422, "The query takes too much", "no", Refused),
    "rate_limited": ErrorKind(429, "Too many requests", "yes", Unavailable),
    "internal": ErrorKind(500, "Internal error", "unknown", OutcomeUnknown),
    "corrupt_data": ErrorKind(500, "Stored data is damaged", "no", CorruptData),
    "store_denied": ErrorKind(500, "The object store does not allow it", "no", Unavailable),
    "not_supported": ErrorKind(501, "Not supported here", "no", Refused),
    "wal_full": ErrorKind(503, "The write-ahead log's budget is used", "yes", Unavailable),
    "overloaded": ErrorKind(503, "The server is overloaded", "yes", Unavailable),
    "coordinator_unavailable": ErrorKind(503, "Groups are not available", "yes", Unavailable),
    "identity_unavailable": ErrorKind(503, "Tokens cannot be verified now", "yes", Unavailable),
    "shutting_down": ErrorKind(503, "The server is shutting down", "yes", Unavailable),
    "access_unavailable": ErrorKind(503, "Who may do what is not known", "yes", Unavailable),
    "topic_unavailable": ErrorKind(503, "The topic is not available", "yes", Unavailable),
    "owner_away": ErrorKind(503, "The node that owns the topic is away", "yes", Unavailable),
    "schedule_unavailable": ErrorKind(503, "Nobody runs the schedule", "yes", Unavailable),
    "audit_unavailable": ErrorKind(503, "What is done cannot be recorded", "yes", Unavailable),
    "disk_full": ErrorKind(507, "The disk is full", "yes", Unavailable),
    "ack_timeout": ErrorKind(504, "Not acknowledged in time", "unknown", OutcomeUnknown),
}
"""The one table of HTTP errors: code -> status, title, retryable, class."""

DEFAULT_RETRY_AFTER_MS = 1_000


def problem(
    error_code: str,
    detail: str,
    *,
    retry_after_ms: int | None = None,
    request_id: str | None = None,
    **members: Any,
) -> SiltlogError:
    """The error of `error_code`, of its class, to be raised; 429, 503 and 507 always carry a retry time."""
    kind = KINDS[error_code]
    if kind.status in (429, 503, 507) and retry_after_ms is None:
        retry_after_ms = DEFAULT_RETRY_AFTER_MS
    return kind.cls(
        detail,
        error_code=error_code,
        status=kind.status,
        retryable=kind.retryable,
        request_id=request_id,
        retry_after_ms=retry_after_ms,
        members=members,
    )


def of_the_record(error: SiltlogError) -> str:
    """Says what is wrong with a refused record, without its index. The index counts the records of a request, which is
    not what somebody counts who has sent them one by one, or in a file."""
    head = f"record {error.members.get('index')}"
    rest = error.detail.removeprefix(head)
    if rest == error.detail:
        return error.detail
    return rest.removeprefix(": ") if rest.startswith(": ") else f"it{rest}"


def on_one_line(error: BaseException) -> str:
    """Puts a foreign error's text on one line, as part of a sentence of ours: Arrow's come in several lines."""
    return redacted(" ".join(str(error).split()).rstrip("."))


def problem_document(error: SiltlogError, request_id: str | None) -> dict[str, Any]:
    """The RFC 9457 document of an error."""
    kind = KINDS.get(error.error_code, KINDS["internal"])
    document: dict[str, Any] = {
        "type": f"/errors/{error.error_code}",
        "title": kind.title,
        "status": error.status or kind.status,
        "detail": redacted(error.detail),
        "error_code": error.error_code,
        "retryable": error.retryable,
        "request_id": request_id or error.request_id,
    }
    if error.retry_after_ms is not None:
        document["retry_after_ms"] = error.retry_after_ms
    told = {name: redacted(value) if isinstance(value, str) else value for name, value in error.members.items()}
    return document | told


_STANDARD_MEMBERS = frozenset(
    ("type", "title", "status", "detail", "error_code", "retryable", "request_id", "retry_after_ms")
)


def from_problem(document: Mapping[str, Any], status: int) -> SiltlogError:
    """The error that a problem document stands for; codes newer than this table become their status's family."""
    code = str(document.get("error_code") or "internal")
    kind = KINDS.get(code)
    retryable: Retryable = document.get("retryable") or (kind.retryable if kind else "no")
    if kind is not None:
        cls = kind.cls
    elif retryable == "yes":
        cls = Unavailable
    else:
        cls = OutcomeUnknown if retryable == "unknown" else Refused
    return cls(
        str(document.get("detail") or document.get("title") or f"the server answered {status}"),
        error_code=code,
        status=status,
        retryable=retryable,
        request_id=document.get("request_id"),
        retry_after_ms=document.get("retry_after_ms"),
        members={name: value for name, value in document.items() if name not in _STANDARD_MEMBERS},
    )
