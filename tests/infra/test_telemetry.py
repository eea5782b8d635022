"""What a log line says, and what it must not."""

import asyncio
import json
import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from siltlog.infra.redaction import Redaction
from siltlog.infra.telemetry import REQUEST, LogOutput, logger

PASSWORD = 'pass"w\\örd-of-redis'
OTHERS = """
import logging, sys, threading
from siltlog.infra.redaction import Redaction
from siltlog.infra.telemetry import LogOutput, hear_others

form = sys.argv[1]
hide = Redaction(["local-hunter22"])
hear_others(LogOutput("info", form, hide))
logging.getLogger("some.library").warning("it knows %s", "local-hunter22")
logging.getLogger("some.library").info("nobody hears that")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("redis://me:hunter22@h is away")
"""


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.rule("A42")
@pytest.mark.parametrize("form", ["console", "json"])
def test_log_lines_and_tracebacks_hide_secrets(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = logger("info", form, Redaction(["local-hunter22", PASSWORD]))  # type: ignore[arg-type]

    def fail(password: str) -> None:
        raise ValueError("redis://me:hunter22@h cannot be reached, as Bearer hunter22-hunter22 said")

    log.warning("told", url="redis://me:hunter22@h", known="local-hunter22", quoted=f"<{PASSWORD}>")
    try:
        fail("local-" + "hunter" + "22")
    except ValueError as error:
        log.error("failed", exc_info=error)
    written = capsys.readouterr().err
    assert "redis://me:***@h" in written and "ValueError" in written
    # The line of the program itself is quoted in a traceback.
    shown = "\n".join(line for line in written.splitlines() if "raise ValueError" not in line)
    assert "hunter22" not in shown.replace('fail("local-" + "hunter" + "22")', "")
    assert "<***>" in written and "rd-of-redis" not in written
    if form == "json":
        assert all(json.loads(line) for line in written.splitlines())


@pytest.mark.rule("LG1")
def test_a_json_line_has_its_name_and_what_to_do_about_it_first(capsys: pytest.CaptureFixture[str]) -> None:
    log = LogOutput("info", "json", node="node-1", trace_id=iter((None, "a1", None)).__next__).logger()
    log.warning("groups are not available", reason="no answer")
    log.info("topic created", topic="orders", partitions=2, at={1: b"\xff"})
    log.debug("flushed")
    log.warning("something else", path="\udcff")
    failing, created, other = lines(capsys)
    assert failing.pop("time")
    assert [*failing] == ["level", "event", "action", "message", "node", "reason"]
    assert (failing["event"], failing["level"], failing["node"]) == ("groups_away", "warning", "node-1")
    assert "SILT_REDIS_URL" in failing["action"]
    assert [*created] == ["time", "level", "event", "message", "topic", "node", "trace_id", "partitions", "at"]
    assert (other["event"], other["message"]) == ("unnamed", "something else")


@pytest.mark.rule("LG2")
def test_a_line_says_on_whose_account_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    log = logger("info", "json")
    told = {"request_id": "r-1", "operation": "publish", "topic": "of the request"}

    def work() -> None:
        log.info("topic created")
        log.info("flushed again", topic="its own")

    async def request() -> None:
        REQUEST.set(lambda: told)
        await asyncio.to_thread(work)

    async def both() -> None:
        await asyncio.create_task(request())
        log.info("drained")

    asyncio.run(both())
    first, second, after = lines(capsys)
    assert (first["request_id"], first["operation"], first["topic"]) == ("r-1", "publish", "of the request")
    assert second["topic"] == "its own"
    assert "request_id" not in after


@pytest.mark.rule("A42", "LG1")
@pytest.mark.parametrize("form", ["console", "json"])
def test_what_libraries_say_and_nobody_catches_comes_out_alike(form: str) -> None:
    ran = subprocess.run([sys.executable, "-c", OTHERS, form], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    shown = [line for line in ran.stderr.splitlines() if "raise ValueError" not in line]
    assert "hunter22" not in "".join(shown) and "nobody hears" not in ran.stderr
    assert "it knows ***" in ran.stderr and "ZeroDivisionError" in ran.stderr and "redis://me:***@h" in ran.stderr
    if form == "json":
        documents = [json.loads(line) for line in ran.stderr.splitlines()]
        assert [line["event"] for line in documents] == ["library", "uncaught", "uncaught"]
        assert (documents[0]["logger"], documents[0]["level"]) == ("some.library", "warning")
    logging.getLogger("some.library")


def test_a_line_that_cannot_be_written_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    went_on = False
    with suppress(OSError), Path("/dev/full").open("w", buffering=1) as full:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stderr", full)
            log = logger("info", "json")
        log.info("listening")
        went_on = True
    assert went_on
