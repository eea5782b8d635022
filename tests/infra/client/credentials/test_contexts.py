from pathlib import Path

import pytest

from siltlog.infra.client.credentials.contexts import (
    Context,
    Contexts,
    context_for,
    contexts_file,
    read_contexts,
    write_contexts,
)
from siltlog.infra.errors import ConfigError

OPS = Context("https://silt.example", "silt_canary", ca="/etc/ca.pem", cert="/a.pem,/a.key")
LOCAL = Context("http://127.0.0.1:7070")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return contexts_file()


def test_what_is_written_is_read_again(file: Path) -> None:
    assert file == file.parent.parent / "siltlog" / "contexts.toml"
    contexts = Contexts().with_one("ops", OPS).with_one('a."b\x7f\\ä', LOCAL)
    write_contexts(file, contexts)
    assert read_contexts(file) == contexts
    assert [path.name for path in file.parent.iterdir()] == ["contexts.toml"]


@pytest.mark.rule("X11")
def test_the_file_is_its_owner_s_alone(file: Path) -> None:
    write_contexts(file, Contexts().with_one("ops", OPS))
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600") as refused:
        read_contexts(file)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "token = silt_canary",
        "[contexts.a]\ntoken = 'silt_canary'",
        "[contexts.a]\nurl = 'http://a'\ntoken = 3\nsilt_canary = 1",
        "[contexts.a]\nurl = 'http://a'\ntoken = ['silt_canary']",
        "contexts = 'silt_canary'",
    ],
)
@pytest.mark.rule("X8")
def test_a_broken_file_is_not_shown(file: Path, text: str) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError) as refused:
        read_contexts(file)
    assert "canary" not in str(refused.value)


def test_contexts_are_chosen_by_name() -> None:
    contexts = Contexts().with_one("ops", OPS).with_one("local", LOCAL)
    assert contexts.chosen == LOCAL and contexts.using("ops").chosen == OPS
    assert contexts.without("local").chosen is None and contexts.using("ops").without("local").chosen == OPS
    for ask in (contexts.using, contexts.without, contexts.of):
        with pytest.raises(ConfigError, match="there are: ops, local"):
            ask("other")


@pytest.mark.rule("X7")
def test_a_context_is_for_its_own_server(file: Path) -> None:
    assert context_for(["https://silt.example"]) is None
    two = Context("https://a.example, https://b.example/", "both")
    write_contexts(file, Contexts().with_one("ops", OPS).with_one("two", two))
    assert context_for(["https://silt.example"]) == OPS
    assert context_for(["https://b.example"]) == two
    assert context_for(["https://b.example", "https://silt.example"]) is None
    assert context_for(["https://silt.example:444"]) is None
    assert context_for(["http://silt.example"]) is None


def test_nothing_prints_a_token() -> None:
    assert "canary" not in repr(OPS) + repr(Contexts().with_one("ops", OPS))
