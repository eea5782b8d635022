"""`silt ping` against servers that answer, that say no, and that are not there."""

import json

import pytest

from siltlog.cli.main import run
from siltlog.testing import running_server


def pinged(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> list[dict[str, object]]:
    assert run(["ping", *arguments, "--output", "json"]) == code
    servers: list[dict[str, object]] = json.loads(capsys.readouterr().out)["servers"]
    return servers


def test_each_server_is_asked_as_often_as_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    gone = "http://127.0.0.1:1"
    with running_server() as server:
        [alone] = pinged(capsys, "--url", server.url, "--count", "3", code=0)
        assert (alone["url"], alone["asked"], alone["answered"], alone["error"]) == (server.url, 3, 3, "")
        low, middle, high = (float(str(alone[f"{name}_ms"])) for name in ("min", "median", "max"))
        assert 0 < low <= middle <= high and float(str(alone["first_ms"])) > 0
        [there, away] = pinged(capsys, "--url", f"{server.url},{gone}", "--count", "1", code=1)
        assert (there["answered"], there["min_ms"]) == (1, None), "one answer alone has no spread"
        assert (away["asked"], away["answered"], away["first_ms"]) == (1, 0, None)
        assert "is the server running?" in str(away["error"])
        assert run(["ping", "--url", f"{server.url},{gone}", "--count", "1", "--output", "value"]) == 1
        assert capsys.readouterr().out == f"{server.url}\n"
        # Another path of that server, where no Siltlog answers.
        [other] = pinged(capsys, "--url", f"{server.url}/elsewhere", "--count", "2", code=1)
        assert other["answered"] == 0 and other["error"]
