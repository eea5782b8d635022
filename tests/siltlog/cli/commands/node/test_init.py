"""`silt init`: what it writes starts and is well; what is interrupted leaves nothing."""

import json
import os
import pty
import pwd
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import processes
import pytest
import yaml
from http_rig import Http
from s3_server import S3Server
from tls_rig import Made, client_of

from siltlog import server_process
from siltlog.infra import names
from siltlog.infra.security.secret_file import read_secret

_LISTENING = re.compile(r"listening on (\S+)")
SECONDS_MAX = 150.0
PRESS_SECONDS = 10.0


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names.ENV_PREFIX)}
    return {**kept, "COLUMNS": "200"}


def silt(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return processes.silt(arguments, folder, environment())


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """`silt serve` in a folder, by the file that is there; where it listens."""
    with (folder / "log").open("wb") as log:
        server = server_process._run(["serve"], folder, environment(), log)
    try:
        assert server.stdout is not None
        found = _LISTENING.match(server.stdout.readline())
        assert found, (folder / "log").read_text()
        yield found[1]
    finally:
        server.terminate()
        assert server.wait(SECONDS_MAX) == 0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.screen = ""
        self._seen = 0
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            command = [sys.executable, "-m", "siltlog.cli", *arguments]
            os.execve(sys.executable, command, environment())

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        """Looks at what comes after what was looked at before."""
        end = time.monotonic() + SECONDS_MAX
        while text not in self.screen[self._seen :]:
            assert time.monotonic() < end, f"{text!r} is not on the screen:\n{self.screen}"
            self.screen += self._read()
        self._seen = self.screen.index(text, self._seen) + len(text)

    def ended(self, seconds: float = SECONDS_MAX) -> int:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.screen += self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.screen += self._read()
                os.close(self._terminal)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it goes on:\n{self.screen}")

    def pressed_until_ended(self, key: str) -> int:
        """Presses it again while nothing comes of it: what comes before an answer is read for may be lost."""
        for _ in range(10):
            os.write(self._terminal, key.encode())
            with suppress(AssertionError):
                return self.ended(PRESS_SECONDS)
        raise AssertionError(f"it goes on:\n{self.screen}")

    def _read(self) -> str:
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return ""
        try:
            return os.read(self._terminal, 65_536).decode("utf-8", "replace")
        except OSError:
            return ""  # it has closed its end


def check_works(folder: Path, topic: str, key: str | None, given: Mapping[str, Any]) -> None:
    """Serves what is there, publishes to it, and has the doctor look."""
    with served(folder) as url:
        http = Http(url, token=key or "")
        http.create(topic)
        assert http.publish(topic, {"value": 1}).status == 200
        if key is not None:
            assert Http(url).get("/v1/topics").status == 401
        token = [] if key is None else ["--token", f"@{folder / 'admin.key'}"]
        doctor = silt(folder, "doctor", "--url", url, "--output", "json", *token)
        found = {one["check"]: one for one in json.loads(doctor.stdout)["findings"]}
        assert doctor.returncode == 0, doctor.stdout
        assert found["server"]["state"] in ("ok", "warning") and "takes records" in found["server"]["detail"], found
        settings = http.get("/v1/config").json["settings"]
        for name, value in given.items():
            assert (settings[name]["value"], settings[name]["place"]) == (value, str(folder / names.CONFIG_FILE))


def test_without_questions_it_is_as_by_default_and_nothing_is_written_over(tmp_path: Path) -> None:
    made = silt(tmp_path, "init", "--yes", "--port", "0", "--output", "json")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["config"] == str(tmp_path / names.CONFIG_FILE) and len(document["next"]) == 3
    check_works(tmp_path, "events", None, {"data_dir": str(tmp_path / "silt-data"), "port": 0})
    before = (tmp_path / names.CONFIG_FILE).read_text()
    again = silt(tmp_path, "init", "--yes", "--port", "1")
    assert again.returncode == 1 and "exists, and is kept as it is" in again.stderr
    assert (tmp_path / names.CONFIG_FILE).read_text() == before
    assert silt(tmp_path, "init", "--yes", "--port", "0", "--force", "--auth", "on").returncode == 0
    key = read_secret(tmp_path / "admin.key")
    assert silt(tmp_path, "init", "--yes", "--port", "0", "--force", "--auth", "on").returncode == 0
    assert read_secret(tmp_path / "admin.key") == key, "a log keeps the keys that it has"
    assert 'auth = "on"' in (tmp_path / names.CONFIG_FILE).read_text().splitlines()


def test_answers_on_a_terminal_become_a_server_that_works(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "init")
    terminal.answer("Data directory", "data\r")
    terminal.answer("Tables", "/proc/nothing\r")
    terminal.wait_for("/proc/nothing cannot be made")
    terminal.answer("Tables", "tables\r")
    terminal.answer("Who may connect", "\r")
    terminal.answer("Port", "0\r")
    terminal.answer("Do callers need a key", "y\r")
    terminal.answer("Started by hand", "\r")
    terminal.answer("Write it?", "\r")
    terminal.wait_for("silt doctor")
    assert terminal.ended() == 0, terminal.screen
    key_file = tmp_path / "admin.key"
    modes = {path: path.stat().st_mode & 0o777 for path in (key_file, tmp_path / "data" / names.SECRET_FILE)}
    assert set(modes.values()) == {0o600}, modes
    check_works(
        tmp_path,
        "events",
        read_secret(key_file),
        {"root": (tmp_path / "tables").as_uri(), "data_dir": str(tmp_path / "data")},
    )
    assert (tmp_path / "tables").is_dir() and (tmp_path / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("questions", [0, 2, 6])
def test_what_is_interrupted_leaves_nothing(tmp_path: Path, questions: int) -> None:
    terminal = Terminal(tmp_path, "init")
    asked = [
        "Data directory",
        "Tables",
        "Who may connect",
        "Port",
        "Do callers need a key",
        "Started by hand",
        "Write it?",
    ]
    for question in asked[:questions]:
        terminal.answer(question, "\r")
    terminal.wait_for(asked[questions])
    # A person has read the question.
    time.sleep(0.5)
    assert terminal.pressed_until_ended("\x03") == 130, terminal.screen
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--connect", "network"), "without TLS"),
        (("--root", "s3://no-such-bucket-here/x", "--s3-endpoint", "http://127.0.0.1:1"), "there are no keys for S3"),
        (("--tls-cert", "missing.pem", "--tls-key", "missing.key"), "missing.pem"),
        (("--hosts", "not a host"), "hosts"),
        (("--auth", "on", "--key-file", "no/folder/admin.key"), "no/folder"),
    ],
)
def test_what_would_not_start_is_said_and_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    made = silt(tmp_path, "init", "--yes", *arguments)
    assert made.returncode == 1, made.stdout
    assert said in made.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_for_the_network_on_s3_with_tls_is_set_up(tmp_path: Path, s3_server: S3Server) -> None:
    made_files = Made(tmp_path)
    files = made_files.files
    place = ("--root", s3_server.root_uri("init"), "--s3-endpoint", s3_server.endpoint, "--s3-region", s3_server.region)
    reach = ("--connect", "network", "--host", "127.0.0.1", "--hosts", "localhost", "--port", "0")
    tls = ("--tls-cert", str(files.certificate), "--tls-key", str(files.key))
    made = silt(tmp_path, "init", "--yes", *place, *reach, *tls)
    assert made.returncode == 0, made.stderr
    assert "--url https://localhost:0" in made.stderr
    with served(tmp_path) as url:
        token = read_secret(tmp_path / "admin.key")
        assert Http(url, client_of(made_files), token=token).get("/v1/access/whoami").json["principal"] == "key:admin"


def said_of(unit: str, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)


def test_a_unit_is_written_that_systemd_takes_and_that_starts_this_server(tmp_path: Path) -> None:
    tables = tmp_path / "the tables"
    arguments = ("--data-dir", "100% $data", "--root", str(tables), "--port", "0", "--unit", "log.service")
    made = silt(tmp_path, "init", "--yes", *arguments)
    assert made.returncode == 0, made.stderr
    assert f"sudo systemctl enable --now {tmp_path / 'log.service'}" in made.stderr
    text = (tmp_path / "log.service").read_text()
    data = f"{tmp_path}/100% $data"
    doubled = data.replace("%", "%%")
    assert said_of(text, "ReadWritePaths") == [f'"{doubled}"', f'"{tables}"']
    assert said_of(text, "WorkingDirectory") == [doubled]
    assert said_of(text, "PrivateTmp") == (["no"] if tmp_path.is_relative_to("/tmp") else ["yes"])
    assert said_of(text, "User") == [pwd.getpwuid(os.getuid()).pw_name]
    assert said_of(text, "Type") == ["notify"]
    # What is of the unit with a user of its own is not in this one.
    assert not re.search(r"/opt|/etc/siltlog/s|%[dS]|DynamicUser|StateDirectory|LoadCredential", text)
    if (analyze := shutil.which("systemd-analyze")) is not None:
        command = [analyze, "verify", "--man=no", tmp_path / "log.service"]
        taken = subprocess.run(command, capture_output=True, text=True, check=False)
        assert [line for line in taken.stderr.splitlines() if "log.service" in line] == []
    # As systemd would start it, but for what only systemd can do.
    [start] = said_of(text, "ExecStart")
    variables = [shlex.split(value)[0].partition("=") for value in said_of(text, "Environment")]
    process = subprocess.Popen(
        shlex.split(start),
        cwd=data,
        env={**environment(), **{name: value for name, _, value in variables}},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert _LISTENING.match(process.stdout.readline())
        assert (Path(data) / "wal").is_dir()
        assert {path.name for path in tmp_path.iterdir()} == {
            Path(data).name,
            tables.name,
            "siltlog.toml",
            "log.service",
        }
    finally:
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0


DOCKERFILE = Path(__file__).parents[5] / "infra" / "deploy" / "Dockerfile"


def said_by_the_image() -> dict[str, str]:
    """The settings that the image of a server comes with."""
    stage = DOCKERFILE.read_text("utf-8").partition(" AS server\n")[2]
    [line] = re.findall(r"^ENV (SILT_.*)$", stage.partition("FROM")[0], re.MULTILINE)
    return dict(one.split("=", 1) for one in line.split())


def test_a_compose_file_is_written_whose_container_is_this_server(tmp_path: Path) -> None:
    data, tables = tmp_path / "100% $data", tmp_path / "the tables"
    arguments = ("--data-dir", data.name, "--root", str(tables), "--port", "0", "--compose", "compose.yaml")
    made = silt(tmp_path, "init", "--yes", *arguments)
    assert made.returncode == 0, made.stderr
    assert f"docker compose --file {tmp_path / 'compose.yaml'} up --detach --wait" in made.stderr
    service = yaml.safe_load((tmp_path / "compose.yaml").read_text().replace("$$", "$"))["services"]["server"]
    assert service["user"] == f"{os.getuid()}:{os.getgid()}"
    config = tmp_path / names.CONFIG_FILE
    assert service["volumes"] == [f"{data}:{data}", f"{tables}:{tables}", f"{config}:{config}:ro"]
    assert service["network_mode"] == "host", "an address of the loopback is that of the machine"
    # As Docker would start it: what the image says, above it what the file says, and nothing of this process.
    variables = said_by_the_image() | dict(one.split("=", 1) for one in service["environment"])
    run = {"PATH": os.environ["PATH"], **variables}
    server = subprocess.Popen(
        [sys.executable, "-m", "siltlog.cli", "serve"], cwd=tmp_path, env=run, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        found = _LISTENING.match(server.stdout.readline())
        assert found and found[1].startswith("http://127.0.0.1:")
        assert service["healthcheck"]["test"][:2] == ["CMD", "silt"]
        health = [sys.executable, "-m", "siltlog.cli", *service["healthcheck"]["test"][2:]]
        asked = subprocess.run(health, env=run, capture_output=True, text=True, check=False)
        assert asked.returncode == 0, asked.stdout + asked.stderr
    finally:
        server.terminate()
        assert server.wait(SECONDS_MAX) == 0
    assert {path.name for path in tmp_path.iterdir()} == {data.name, tables.name, config.name, "compose.yaml"}


def test_what_starts_it_is_asked_for(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "init")
    for question in ("Data directory", "Tables", "Who may connect", "Port", "Do callers need a key"):
        terminal.answer(question, "\r")
    terminal.answer("Started by hand", "compose\r")
    terminal.answer("Write it?", "\r")
    terminal.wait_for("docker compose --file")
    assert terminal.ended() == 0, terminal.screen
    assert (tmp_path / "compose.yaml").exists()


def test_a_bucket_of_s3_is_reached_with_the_keys_of_who_calls_compose(tmp_path: Path, s3_server: S3Server) -> None:
    place = ("--root", s3_server.root_uri("compose"), "--s3-endpoint", s3_server.endpoint, "--s3-region", "us-east-1")
    made = silt(tmp_path, "init", "--yes", "--port", "0", *place, "--compose", "compose.yaml")
    assert made.returncode == 0, made.stderr
    service = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["server"]
    assert "AWS_SECRET_ACCESS_KEY" in service["environment"], "a name alone is the caller's value"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--unit", "log.txt"), 2, ".service"),
        (("--unit", "log.service", "--port", "80"), 1, "cannot take port 80"),
        (("--compose", "compose.yaml", "--data-dir", "a:b"), 1, "a colon"),
        (("--compose", "compose.yaml", "--unit", "log.service"), 2, "two ways"),
    ],
)
def test_what_would_not_do_as_a_unit_or_in_a_container_is_not_written(
    tmp_path: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    made = silt(tmp_path, "init", "--yes", *arguments)
    assert made.returncode == status
    assert said in made.stderr
    assert list(tmp_path.iterdir()) == []
