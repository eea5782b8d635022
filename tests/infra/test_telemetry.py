"""What a log line says, and what it must not."""

import json

import pytest

from siltlog.infra.redaction import Redaction
from siltlog.infra.telemetry import logger


@pytest.mark.rule("A42")
@pytest.mark.parametrize("form", ["console", "json"])
def test_log_lines_and_tracebacks_hide_secrets(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = logger("info", form, Redaction(["local-hunter22"]))  # type: ignore[arg-type]

    def fail(password: str) -> None:
        raise ValueError("redis://me:hunter22@h cannot be reached, as Bearer hunter22-hunter22 said")

    log.warning("told", url="redis://me:hunter22@h", known="local-hunter22")
    try:
        fail("local-" + "hunter" + "22")
    except ValueError as error:
        log.error("failed", exc_info=error)
    written = capsys.readouterr().err
    assert "redis://me:***@h" in written and "ValueError" in written
    # The line of the program itself is quoted in a traceback.
    shown = "\n".join(line for line in written.splitlines() if "raise ValueError" not in line)
    assert "hunter22" not in shown.replace('fail("local-" + "hunter" + "22")', "")
    if form == "json":
        assert all(json.loads(line) for line in written.splitlines())
