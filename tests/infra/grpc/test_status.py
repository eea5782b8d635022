"""Errors as statuses: which code each has, and what its details say."""

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RequestInfo, RetryInfo

from siltlog.infra.errors import KINDS, from_problem, problem
from siltlog.infra.grpc.status import MEMBERS_BYTES_MAX, code_of, status_of

CODES = {
    400: {"INVALID_ARGUMENT"},
    401: {"UNAUTHENTICATED"},
    403: {"PERMISSION_DENIED"},
    404: {"NOT_FOUND"},
    405: {"UNIMPLEMENTED"},
    406: {"INVALID_ARGUMENT"},
    408: {"UNAVAILABLE"},
    409: {"ABORTED", "FAILED_PRECONDITION"},
    413: {"OUT_OF_RANGE"},
    415: {"INVALID_ARGUMENT"},
    416: {"OUT_OF_RANGE"},
    421: {"FAILED_PRECONDITION"},
    422: {"INVALID_ARGUMENT"},
    429: {"RESOURCE_EXHAUSTED"},
    500: {"INTERNAL"},
    501: {"UNIMPLEMENTED"},
    503: {"UNAVAILABLE"},
    504: {"DEADLINE_EXCEEDED"},
    507: {"RESOURCE_EXHAUSTED"},
}


@pytest.mark.parametrize("code", KINDS)
def test_every_error_has_a_code_and_says_which_it_is(code: str) -> None:
    error = problem(code, "what is wrong", topic="t", partitions=[{"topic": "t", "partition": 0}])
    assert code_of(error).name in CODES[KINDS[code].status]
    status = status_of(error, "r-1")
    assert (status.code, status.message) == (code_of(error).value[0], "what is wrong")
    info, request, retry = ErrorInfo(), RequestInfo(), RetryInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (code, "siltlog")
    assert info.metadata["topic"] == "t"
    assert info.metadata["partitions"] == '[{"topic":"t","partition":0}]'
    assert info.metadata["retryable"] == error.retryable
    assert status.details[1].Unpack(request)
    assert request.request_id == "r-1"
    assert len(status.details) == (2 if error.retry_after_ms is None else 3)
    if error.retry_after_ms is not None:
        assert status.details[2].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == error.retry_after_ms


def test_a_conflict_of_who_was_fenced_is_begun_again_and_others_are_not() -> None:
    aborted = {
        code for code, kind in KINDS.items() if kind.status == 409 and code_of(problem(code, "")).name == "ABORTED"
    }
    assert {"fenced_member", "fenced_producer", "out_of_order_sequence", "config_changed"} <= aborted
    assert not aborted & {"topic_exists", "group_not_empty", "job_running"}


def test_an_error_of_a_later_server_has_the_code_of_its_status() -> None:
    later = from_problem({"error_code": "brand_new", "detail": "x"}, 404)
    assert code_of(later) is grpc.StatusCode.NOT_FOUND


def test_what_a_client_would_not_take_is_left_out() -> None:
    error = problem(
        "fenced_member", "x" * 10_000, partitions=[{"topic": "t" * 100, "partition": at} for at in range(99)]
    )
    status = status_of(error, "r")
    assert len(status.SerializeToString()) < 2 * MEMBERS_BYTES_MAX + 1_000
    assert status.message == "x" * 2_000
