"""Errors as gRPC tells them: a status with google.rpc details, made of the one table of errors."""

from collections.abc import Mapping
from typing import TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.error_details_pb2 import ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status

from siltlog.infra.clock import MICROS_PER_SECOND
from siltlog.infra.errors import KINDS, Fenced, SiltlogError, problem_document
from siltlog.infra.grpc.made.silt_pb2 import Problem
from siltlog.infra.http.requests import encode_json

DOMAIN = "siltlog"
DETAILS_KEY = "grpc-status-details-bin"
"""The metadata of the details: "gRPC over HTTP2", Responses, and google.rpc.Status."""
DETAIL_CHARS_MAX = 2_000
MEMBERS_BYTES_MAX = 2_048
"""A client takes 8 KiB of metadata unless it was told otherwise, and throws the answer away where there is more."""
Context: TypeAlias = grpc.aio.ServicerContext
_Code = grpc.StatusCode
_BY_STATUS = {
    400: _Code.INVALID_ARGUMENT,
    401: _Code.UNAUTHENTICATED,
    403: _Code.PERMISSION_DENIED,
    404: _Code.NOT_FOUND,
    405: _Code.UNIMPLEMENTED,
    406: _Code.INVALID_ARGUMENT,
    408: _Code.UNAVAILABLE,
    409: _Code.FAILED_PRECONDITION,
    413: _Code.OUT_OF_RANGE,
    415: _Code.INVALID_ARGUMENT,
    416: _Code.OUT_OF_RANGE,
    421: _Code.FAILED_PRECONDITION,
    422: _Code.INVALID_ARGUMENT,
    429: _Code.RESOURCE_EXHAUSTED,
    500: _Code.INTERNAL,
    501: _Code.UNIMPLEMENTED,
    503: _Code.UNAVAILABLE,
    504: _Code.DEADLINE_EXCEEDED,
    507: _Code.RESOURCE_EXHAUSTED,
}
_BEGIN_AGAIN = frozenset(("access_changed", "config_changed", "partition_count_changed"))
"""Conflicts that end where the caller reads again what is there, as those of who was fenced do."""
_CODES = {
    code: _Code.ABORTED
    if kind.status == 409 and (issubclass(kind.cls, Fenced) or code in _BEGIN_AGAIN)
    else _BY_STATUS[kind.status]
    for code, kind in KINDS.items()
}


def code_of(error: SiltlogError) -> grpc.StatusCode:
    return _CODES.get(error.error_code) or _BY_STATUS.get(error.status or 500, _Code.UNKNOWN)


def status_of(error: SiltlogError, request_id: str) -> Status:
    """The google.rpc.Status of an error: ErrorInfo with its code and members, RequestInfo, and RetryInfo where it says
    when to come again."""
    document = problem_document(error, request_id)
    told = Status(code=code_of(error).value[0], message=document["detail"][:DETAIL_CHARS_MAX])
    info = ErrorInfo(reason=error.error_code, domain=DOMAIN, metadata={"retryable": error.retryable})
    info.metadata.update(_members(error.members))
    _add(told, info)
    if request_id:
        _add(told, RequestInfo(request_id=request_id))
    if error.retry_after_ms is not None:
        retry = RetryInfo()
        retry.retry_delay.FromMicroseconds(error.retry_after_ms * (MICROS_PER_SECOND // 1_000))
        _add(told, retry)
    return told


def problem_of(document: Mapping[str, object]) -> Problem:
    """A problem document as a message, where it is of a part and the call goes on."""
    told = Problem(
        error_code=str(document["error_code"]), detail=str(document["detail"]), retryable=str(document["retryable"])
    )
    retry_after_ms = document.get("retry_after_ms")
    if isinstance(retry_after_ms, int):
        told.retry_after_ms = retry_after_ms
    return told


async def end(context: Context, error: SiltlogError, request_id: str) -> None:
    """Ends a call with an error. Raises what gRPC ends it by."""
    told = status_of(error, request_id)
    await context.abort(code_of(error), told.message, ((DETAILS_KEY, told.SerializeToString()),))


def _add(told: Status, detail: ErrorInfo | RequestInfo | RetryInfo) -> None:
    packed = Packed()
    packed.Pack(detail)
    told.details.append(packed)


def _members(members: Mapping[str, object]) -> dict[str, str]:
    """What fits; the detail says in words what matters."""
    found: dict[str, str] = {}
    left = MEMBERS_BYTES_MAX
    for name, value in members.items():
        text = value if isinstance(value, str) else encode_json(value).decode()
        left -= len(name.encode()) + len(text.encode())
        if left < 0:
            break
        found[name] = text
    return found
