import pytest

from siltlog.infra.store.s3_denied import missing_permission, says_denied, says_skewed

FORBIDDEN = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Error performing PUT http://h/s/1.json in 2ms - {FORBIDDEN}", "s3:PutObject on http://h/s/1.json "),
        (f"Error performing GET http://h/s?list-type=2&prefix=t in 2ms - {FORBIDDEN}", "s3:ListBucket on http://h/s "),
        ("stat on s3a://s/a.parquet: Status Code: 403", "s3:GetObject on s3a://s/a.parquet "),
        ("PUT 0-byte object on s3a://s/t/: AccessDenied", "s3:PutObject on s3a://s/t/ "),
        ("something else: AccessDenied", "s3:GetObject on the log "),
    ],
)  # fmt: skip
def test_what_libraries_say_names_the_permission(text: str, said: str) -> None:
    assert says_denied(text)
    error = missing_permission(text, "the log", topic="t")
    assert f"S3 does not allow {said}" in error.detail
    assert (error.error_code, error.retryable, error.members["topic"]) == ("store_denied", "no", "t")


@pytest.mark.parametrize("text", ["503 Slow Down", "connection refused", "404 Not Found", "offset 403"])
def test_what_passes_is_no_denial(text: str) -> None:
    assert not says_denied(text)


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "SlowDown", "InvalidObjectState"])
def test_a_403_for_another_reason_is_no_denial(code: str) -> None:
    text = FORBIDDEN.replace("AccessDenied", code)
    assert (says_denied(text), says_skewed(text)) == (False, code == "RequestTimeTooSkewed")


def test_a_clock_that_is_wrong_is_no_denial_where_there_is_no_body() -> None:
    text = "open s3a://s/a.parquet: (Service: S3, Status Code: 403, Request ID: 1):RequestTimeTooSkewed"
    assert says_skewed(text) and not says_denied(text)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(FORBIDDEN.replace("AccessDenied", "InvalidAccessKeyId"), "InvalidAccessKeyId"), ("403 Forbidden", "403")],
)
def test_the_reason_is_what_s3_said(answer: str, reason: str) -> None:
    assert f"1.json ({reason}" in missing_permission(f"Error performing HEAD h/1.json in 2ms - {answer}", "log").detail
