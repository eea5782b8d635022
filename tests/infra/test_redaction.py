"""What is taken out of text that somebody reads, and what stays."""

import logging
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.infra.errors import problem, problem_document
from siltlog.infra.redaction import HidingFormatter, Redaction, redacted, without_password
from siltlog.infra.security.keys import make_key

KEY = make_key(lambda count: bytes(range(7, 7 + count)))
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl-_x"
PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB\nq83vEjRWeJ\n-----END EC PRIVATE KEY-----"


@pytest.mark.rule("A42")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"the key {KEY.text()} is revoked", f"the key silt_{KEY.key_id}_*** is revoked"),
        (f"Authorization: Bearer {JWT}", "Authorization: Bearer ***"),
        ("Cookie: silt_session=eyJhbGciOiJkaXIifQ..bTJxVWdnaw.j-TZ7TU.LzLieA; a=b", "Cookie: silt_session=***; a=b"),
        ("authorization: bearer dGhpc2lzYXRva2Vu==", "authorization: bearer ***"),
        ("protocols silt.v1, silt.bearer.dGhpc2lzYXRva2Vu", "protocols silt.v1, silt.bearer.***"),
        ("basic dXNlcjpwYXNz", "basic ***"),
        (f"claims of {JWT}.", "claims of ***"),
        ("redis://me:p%40ss@h:6379/0 is away", "redis://me:***@h:6379/0 is away"),
        ("redis://:p@ss@h:6379/0", "redis://:***@h:6379/0"),
        ("https://dGhpc2lzYXRva2Vu@host/x", "https://***@host/x"),
        ("'redis://a:b@h', 'redis://c:d@h'", "'redis://a:***@h', 'redis://c:***@h'"),
        ("redis://h/0?password=hunter22&db=1", "redis://h/0?password=***&db=1"),
        ("SILT_REDIS_PASSWORD=hunter22", "SILT_REDIS_PASSWORD=***"),
        (
            "https://b.s3/k?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=0a1b",
            "https://b.s3/k?X-Amz-Credential=***&X-Amz-Signature=***",
        ),
        (f"cannot load {PEM} here", "cannot load PRIVATE KEY *** here"),
        (f"cannot load {PEM[:40]}", "cannot load PRIVATE KEY ***"),
        (repr(PEM), "'PRIVATE KEY ***'"),
    ],
)
def test_credentials_go(text: str, left: str) -> None:
    assert redacted(text) == left
    assert redacted(left) == left, "once is enough"


@pytest.mark.parametrize(
    "text",
    [
        "listening on http://127.0.0.1:7070",
        'silt_group_lag_records{group="a"} 3',
        "the bearer of this is missing; a Basic mistake",
        "record 3: value=hello@example.org is no JSON",
        "see https://example.org/a@b and mailto:me@example.org",
        "s3://bucket/prefix/topics/a@b/part-0.parquet",
        "WWW-Authenticate: Bearer",
        "",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert redacted(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="@"), min_size=6))
def test_a_password_of_any_characters_goes_from_an_address(password: str) -> None:
    assert without_password(f"redis://me:{password}@h:6379") == "redis://me:***@h:6379"
    hide = Redaction([password])
    assert password not in hide(f"<{password}>").replace("***", "")
    assert password not in repr(hide)


def test_known_values_go_wherever_they_are_and_a_word_is_none() -> None:
    hide = Redaction(["hunter22", "hunter22-longer", "on", ""])
    assert hide("hunter22-longer on hunter22x") == "*** on ***x"


@pytest.mark.parametrize("part", ["://", "silt_", "Bearer ", "eyJ", "=", "-----BEGIN PRIVATE KEY-----", "://a:"])
def test_long_text_of_strangers_costs_little(part: str) -> None:
    begun = time.process_time()
    redacted(part * (200_000 // len(part)))
    assert time.process_time() - begun < 5, "it grows with the length, not with its square"


def test_errors_are_told_without_what_they_quote() -> None:
    error = problem("topic_unavailable", f"S3 said Bearer {JWT}", reason=f"of {KEY.text()} now", topic="a", n=[1])
    document = problem_document(error, "r1")
    assert KEY.secret not in str(document) and JWT not in str(document)
    assert (document["topic"], document["n"]) == ("a", [1])


def test_what_libraries_log_and_nobody_catches() -> None:
    record = logging.LogRecord("x", logging.ERROR, "", 0, "with %s", (KEY.text(),), None)
    try:
        raise ValueError(f"redis://me:hunter22@h and {JWT}")
    except ValueError:
        record.exc_info = sys.exc_info()
    text = HidingFormatter("silt: %(message)s", Redaction(["hunter22"])).format(record)
    assert text.startswith(f"silt: with silt_{KEY.key_id}_***\nTraceback")
    assert not any(secret in text.partition("ValueError: ")[2] for secret in ("hunter22", JWT))


STATEMENTS = {"main": "fail()", "thread": "threading.Thread(target=fail).start()", "log": "log()"}


@pytest.mark.parametrize("where", STATEMENTS)
def test_errors_that_nobody_caught_hide_what_is_known(where: str) -> None:
    program = f"""
import logging, threading
from siltlog.infra.redaction import Redaction, hide_in_others
hide_in_others(Redaction(["hunter" + "22"]))
def fail():
    raise ValueError("it was " + "hunter" + "22")
def log():
    try:
        fail()
    except ValueError as error:
        logging.getLogger("asyncio").error("never retrieved", exc_info=error)
{STATEMENTS[where]}
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ValueError: it was ***" in ran.stderr and "hunter22" not in ran.stderr
