"""Error codes, their documents, and the classes that a client gets back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import (
    KINDS,
    Fenced,
    OutcomeUnknown,
    Refused,
    SiltlogError,
    Unavailable,
    from_problem,
    problem,
    problem_document,
)

CONTRACT = {
    400: "malformed_body invalid_parameter credential_in_url",
    401: "unauthenticated",
    403: "forbidden origin_not_allowed tls_required cap_reached csrf page_only_shows",
    404: "unknown_topic unknown_partition unknown_group unknown_member unknown_key unknown_run not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    409: "access_changed auth_off cluster_off key_exists last_admin topic_exists fenced_member fenced_producer "
    "unknown_producer out_of_order_sequence partition_count_changed group_not_empty records_open "
    "overridden needs_restart config_changed job_running job_unavailable run_ended",
    413: "request_too_large record_too_large",
    415: "unsupported_media_type unsupported_encoding",
    416: "offset_out_of_range",
    421: "not_owner unknown_host",
    422: "invalid_record invalid_request invalid_config unsupported_acks idempotency_key_reused query_limit",
    429: "rate_limited",
    500: "corrupt_data internal store_denied",
    501: "not_supported",
    503: "wal_full overloaded coordinator_unavailable shutting_down topic_unavailable identity_unavailable "
    "access_unavailable audit_unavailable owner_away schedule_unavailable",
    504: "ack_timeout",
    507: "disk_full",
}
RETRYABLE = {"yes": {408, 429, 503, 507}, "unknown": {504}}


def test_the_codes_are_the_contract() -> None:
    assert {code: kind.status for code, kind in KINDS.items()} == {
        code: status for status, codes in CONTRACT.items() for code in codes.split()
    }
    for code, kind in KINDS.items():
        expected = next((word for word, statuses in RETRYABLE.items() if kind.status in statuses), "no")
        # Another node does what this one does not, so 421 says nothing by itself.
        special = {"internal": "unknown", "not_owner": "yes"}
        assert kind.retryable == special.get(code, expected), code
        assert kind.retryable != "yes" or issubclass(kind.cls, Unavailable)
        assert kind.retryable != "unknown" or issubclass(kind.cls, OutcomeUnknown)


@pytest.mark.parametrize("code", KINDS)
def test_a_document_and_back(code: str) -> None:
    error = problem(code, "what to do", request_id="r", partition=3, partitions=[{"partition": 3}])
    document = json.loads(json.dumps(problem_document(error, None)))
    assert document["type"] == f"/errors/{code}"
    assert (document["error_code"], document["status"]) == (code, KINDS[code].status)
    assert (document["title"], document["detail"], document["request_id"]) == (KINDS[code].title, "what to do", "r")
    assert (document["partition"], document["partitions"]) == (3, [{"partition": 3}])
    assert ("retry_after_ms" in document) == (document["status"] in (429, 503, 507))
    back = from_problem(document, document["status"])
    assert type(back) is type(error)
    assert vars(back) == vars(error)
    assert str(back) == "what to do"


@given(st.integers(1, 10**6))
def test_a_retry_time_is_kept(millis: int) -> None:
    document = problem_document(problem("wal_full", "x", retry_after_ms=millis), "r")
    assert from_problem(document, 503).retry_after_ms == document["retry_after_ms"] == millis


@pytest.mark.parametrize(
    ("retryable", "cls"), [("yes", Unavailable), ("no", Refused), ("unknown", OutcomeUnknown), (None, Refused)]
)
def test_a_code_newer_than_this_client(retryable: str | None, cls: type[SiltlogError]) -> None:
    document = {"error_code": "from_the_future", "detail": "d", "retryable": retryable, "depth": 7}
    error = from_problem(document, 418)
    assert type(error) is cls
    assert (error.error_code, error.status, error.members) == ("from_the_future", 418, {"depth": 7})


def test_a_reply_that_is_no_problem_document() -> None:
    error = from_problem({}, 502)
    assert (error.status, error.detail) == (502, "the server answered 502")


def test_a_class_of_its_own() -> None:
    error = Fenced("another took over")
    assert (str(error), error.error_code, error.retryable, error.members) == (
        "another took over",
        "fenced_member",
        "no",
        {},
    )
    assert problem_document(error, "r")["status"] == 409
