"""The frame of the command line: help, exit codes, errors as sentences or problems, missing parts."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from siltlog.cli.commands.node import health
from siltlog.cli.main import COMMANDS as LISTED
from siltlog.cli.main import run, silt
from siltlog.infra.errors import Unavailable, problem

NOBODY = "http://127.0.0.1:1"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))
    else:
        yield path, command


COMMANDS = dict(commands(silt))


def without(absent: set[str], arguments: list[str]) -> str:
    """A program that runs a command line where some packages are not installed."""
    return f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from siltlog.cli.main import main
main({arguments!r})
"""


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `silt health` raise."""

    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(health.health, "callback", fail)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"silt {' '.join(path)}" in text.partition("Example")[2]


def test_the_commands_are_those_that_are_promised() -> None:
    families = {path[0] for path in COMMANDS}
    assert families == {
        "init", "serve", "demo", "health", "ping", "topic", "publish", "consume", "search",
        "group", "dlq", "stranded", "compact", "retain", "vacuum", "audit", "backup", "restore", "erase", "catalog",
        "replay", "export", "import", "schedule", "jobs", "query", "config", "doctor", "completion", "top", "bench",
        "login", "context", "access", "node", "cluster", "drain", "profile", "stop",
    }  # fmt: skip
    assert {path[1] for path in COMMANDS if path[0] == "topic"} == {
        *("create", "list", "describe", "alter", "move", "abandon", "delete", "delete-records"),
    }


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["topic", "create"], ["topic", "list", "--no-such"], ["topic", "list", "--token", "secret"], []],
)
def test_misuse_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, "Usage: silt" in said.err) == ("", True)


@pytest.mark.parametrize("arguments", [[], ["topic"], ["access", "key"]])
def test_a_group_without_a_command_says_its_help_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("Usage: silt")) == ("", 1)
    assert "Error:" not in said.err and "Commands:" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe", "\udcff", "--url", NOBODY],
        ["publish", "t", "a\udcff", "--url", NOBODY],
        ["topic", "list", "--url", "http://\udcff"],
    ],
)
def test_an_argument_that_is_no_text_is_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("closed", ["0", "1", "2", "0,1,2"])
def test_streams_that_are_closed_are_no_failure(closed: str, tmp_path: Path) -> None:
    program = (
        f"import os\nfor number in ({closed},): os.close(number)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'siltlog.cli', 'config', 'check'])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("valid" in ended.stdout) is ("1" not in closed)


def test_a_command_that_is_misspelt(capsys: pytest.CaptureFixture[str]) -> None:
    for name, meant in (("topci", "'topic'"), ("consum", "'consume'"), ("conf", "'config'")):
        assert run([name]) == 2
        assert f"did you mean {meant}?" in capsys.readouterr().err
    assert run(["xyzzy"]) == 2
    assert "No such command 'xyzzy'." in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["topic", "list"], ["health"], ["publish", "t", "v"], ["consume", "t"], ["group", "list"]]
)
def test_without_a_server_a_sentence_names_the_command_that_starts_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--url", NOBODY]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert NOBODY in said.err
    assert "`silt serve`" in said.err


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_error_in_json_mode_is_its_problem(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["topic", "list", "--url", NOBODY]
    arguments = ["--output", "json", *command] if place == "before" else [*command, "--output", "json"]
    assert run(arguments) == 1
    document = json.loads(capsys.readouterr().err)
    assert (document["error_code"], document["retryable"]) == ("unreachable", "yes")
    assert run([*arguments, "--no-such-option"]) == 2
    assert json.loads(capsys.readouterr().err)["error_code"] == "invalid_parameter"


@pytest.mark.parametrize("url", ["nonsense", "http://[::1", "http://h:x", "ftp://h", ""])
def test_what_is_no_url_is_said_to_be_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--url", url]) == 1
    assert "http://127.0.0.1:7070" in capsys.readouterr().err


def test_a_misspelt_variable_does_not_leave_a_command_at_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SILT_URL", raising=False)
    monkeypatch.setenv("SILT_ULR", "http://127.0.0.1:1")
    assert run(["topic", "list"]) == 1
    assert "did you mean SILT_URL?" in capsys.readouterr().err
    assert run(["topic", "list", "--url", "http://127.0.0.1:1"]) == 1
    assert "no server answers at http://127.0.0.1:1" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert run(["health"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_an_error_of_ours_is_its_detail_with_the_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, problem("wal_full", "the log is full; wait", request_id="r-7"))
    assert run(["health"]) == 1
    assert capsys.readouterr().err == "silt: the log is full; wait (request r-7)\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/x/y"), "/x/y: Permission denied"),
        (TypeError("wrong"), "TypeError: wrong (a defect of Siltlog"),
    ],
)
def test_what_nobody_foresaw_is_a_sentence_too(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert run(["health"]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    with pytest.raises(type(error)):
        run(["--debug", "health"])


@pytest.mark.parametrize(("flags", "expected"), [([], "silt: mind\n"), (["--debug"], "silt: mind\nsilt: trace\n")])
def test_warnings_of_ours_are_sentences_and_logs_of_others_are_for_debugging(
    flags: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def log(**_: Any) -> None:
        logging.getLogger("siltlog.consumer").warning("mind")
        logging.getLogger().error("trace")

    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(health.health, "callback", log)
    assert run([*flags, "health"]) == 0
    assert capsys.readouterr().err == expected


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "siltlog.cli", "config", "show", "--output", "json"]
    shut = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert shut.stdout is not None
    shut.stdout.close()
    _, said = shut.communicate()
    assert (shut.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "absent", "extra"),
    [
        (["config", "show"], "pydantic", "server"),
        (["serve", "--help"], "pydantic_settings", "server"),
        (["serve"], "uvicorn", "server"),
        (["query", "--engine", "spark", "select 1", "--root", "file:///tmp"], "pyspark", "spark"),
        (["query", "--engine", "spark", "select 1"], "pydantic", "spark"),
        (["query", "--engine", "duckdb", "select 1", "--root", "file:///tmp"], "duckdb", "sql"),
        (["query", "select 1"], "pydantic", "sql"),
        (["compact"], "pydantic", "spark"),
        (["replay", "--topic", "t", "--into", "u", "--where", "key is null"], "pydantic", "spark"),
        (["replay", "--topic", "t", "--into", "u"], "pydantic", "server"),
        (["export", "--topic", "t", "--to", "there"], "pydantic", "server"),
        (["retain"], "pydantic", "server"),
        (["config", "check"], "pydantic", "server"),
        (["config", "init"], "pydantic", "server"),
        (["doctor", "--data-dir", "there"], "pydantic", "server"),
        (["demo"], "deltalake", "demo"),
    ],
)
def test_a_missing_part_is_named_with_what_installs_it(arguments: list[str], absent: str, extra: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", without({absent}, arguments)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    said = " ".join(["silt", *arguments[: 2 if arguments[0] == "config" else 1]])
    assert ran.stderr.startswith(f"silt: {said} needs the package {absent!r}"), ran.stderr
    assert ran.stderr.endswith(f"pip install 'siltlog[{extra}]'\n")


def test_errors_of_the_client_are_passed_through_unchanged_when_a_server_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, Unavailable("the server is draining", error_code="shutting_down", status=503))
    assert run(["health"]) == 1
    assert capsys.readouterr().err == "silt: the server is draining\n"


INTERRUPTED = """
import os, signal, sys
last = sys.argv.pop(1)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == last:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from siltlog.cli.__main__ import start
start()
"""


@pytest.mark.parametrize(
    "name", ["click", "siltlog.cli.main", "siltlog.cli.commands.records.consume", "rich", "msgspec", "httptools"]
)
def test_ctrl_c_while_something_is_imported_ends_it_without_a_word(name: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, name, "consume", "t", "--url", NOBODY]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (130, "", "")


UNENDING = """
import io, sys, threading, time
import pyarrow as pa
import pyarrow.parquet as pq
written = io.BytesIO()
pq.write_table(pa.table({"a": [1]}), written)
begun = threading.Event()
class File(io.BytesIO):
    def read(self, size=-1):
        while threading.current_thread().name.startswith("Dummy"):  # a thread of Arrow's
            begun.set()
            time.sleep(0.0001)
        return super().read(size)
file = pq.ParquetFile(pa.PythonFile(File(written.getvalue()), mode="r"), pre_buffer=True)
threading.Thread(target=file.read_row_group, args=(0,), daemon=True).start()
assert begun.wait(30)
"""


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--version"], 0), (["nonsense"], 2), (["health", "--url", NOBODY], 1)]
)
def test_threads_of_a_library_that_still_run_at_the_end_do_not_abort_it(arguments: list[str], code: int) -> None:
    program = f"{UNENDING}from siltlog.cli.__main__ import start\nstart()"
    command = [sys.executable, "-c", program, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (ran.returncode, "terminate" in ran.stderr) == (code, False)
    assert ran.stdout or ran.stderr


def test_the_end_calls_those_who_wait_for_it() -> None:
    program = """
import atexit, sys
from siltlog.cli import main
from siltlog.cli.__main__ import start
main.run = lambda _: atexit.register(print, "called") and 3
start()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=240)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "called\n", "")


def test_what_a_shell_runs_in_the_background_is_not_interrupted() -> None:
    program = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED
    command = [sys.executable, "-c", program, "click", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert ran.stdout.startswith("silt, version")


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    said = {name: summary for name, (_, summary) in LISTED.items()}
    context = click.Context(silt)
    found = {name: silt.get_command(context, name) for name in LISTED}
    assert said == {name: command.get_short_help_str(limit=1_000) for name, command in found.items() if command}


def test_help_and_completion_import_no_command() -> None:
    program = """
import sys
from siltlog.cli.main import run
try:
    run(sys.argv[1:])
finally:
    print(*(name for name in sys.modules if name.startswith("siltlog.") or "." not in name), file=sys.stderr)
"""
    asked = {"_SILT_COMPLETE": "bash_complete", "COMP_WORDS": "silt to", "COMP_CWORD": "1", "PATH": ""}
    for environment, arguments, said in ((None, ["--help"], "Look for what is wrong"), (asked, [], "plain,top")):
        command = [sys.executable, "-c", program, *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)
        assert said in ran.stdout
        loaded = set(ran.stderr.split())
        assert {name for name in loaded if name.startswith("siltlog.cli.")} == {
            "siltlog.cli.main",
            "siltlog.cli.session",
        }
        assert not {"rich", "numpy", "pyarrow", "httptools", "pydantic", "asyncio"} & loaded


def test_a_command_is_imported_only_when_it_is_asked_for() -> None:
    program = "import sys, siltlog.cli.main; print([m for m in sys.modules if m.startswith('siltlog.cli.')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['siltlog.cli.session', 'siltlog.cli.main']"


def test_config_init_writes_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SILT_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run(["config", "init", "--output", "value"]) == 0
    assert capsys.readouterr().out == "siltlog.toml\n"
    (tmp_path / "siltlog.toml").write_text("port = 1\n")
    assert run(["config", "init"]) == 1
    assert "siltlog.toml exists" in capsys.readouterr().err
    assert (tmp_path / "siltlog.toml").read_text() == "port = 1\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_asks_silt(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_SILT_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_a_shell_that_asks_is_answered() -> None:
    asked = {"_SILT_COMPLETE": "bash_complete", "COMP_WORDS": "silt topic cr", "COMP_CWORD": "2", "PATH": ""}
    command = [sys.executable, "-m", "siltlog.cli"]
    said = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=240, check=False)
    assert said.stdout == "plain,create\n"
