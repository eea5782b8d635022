import json
from pathlib import Path
from typing import Any

import pytest

from siltlog.cli.commands.contexts.context import masked
from siltlog.cli.main import run
from siltlog.infra.client.credentials.contexts import Context, Contexts, contexts_file, read_contexts, write_contexts


@pytest.fixture(autouse=True)
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = Contexts().with_one("a", Context("https://a.example", "silt_abc_canary"))
    write_contexts(contexts_file(), made.with_one("b", Context("http://127.0.0.1:1")))


def test_contexts_are_listed_shown_chosen_and_removed(capsys: Any) -> None:
    assert run(["context", "use", "a"]) == 0
    assert run(["context", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["contexts"] == [
        {"context": "a", "url": "https://a.example", "current": True},
        {"context": "b", "url": "http://127.0.0.1:1", "current": False},
    ]
    assert run(["context", "show", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["token"] == "silt_abc_***"
    assert run(["context", "remove", "a"]) == 0
    assert read_contexts(contexts_file()).current is None
    assert run(["context", "show"]) == 1 and run(["context", "use", "a"]) == 1
    assert "there are: b" in capsys.readouterr().err


@pytest.mark.rule("X11")
def test_a_file_that_others_may_read_is_refused(capsys: Any) -> None:
    contexts_file().chmod(0o644)
    for command in (["context", "list"], ["topic", "list"], ["login", "--url", "http://127.0.0.1:1"]):
        assert run(command) == 1
        assert "chmod 600" in (said := capsys.readouterr().err) and "canary" not in said


def test_of_a_token_no_more_is_shown_than_which_key_it_is() -> None:
    assert [masked(token) for token in ("silt_abc_def", "a.b.c", "other_a_b", "silt_a_b_c", None)] == [
        "silt_abc_***", "***", "***", "***", None,
    ]  # fmt: skip
