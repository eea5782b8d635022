"""The units of systemd: it takes them, they give away little, and a server runs under what they forbid."""

import configparser
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.units import duration_ms

UNITS = Path(__file__).parents[2] / "infra" / "deploy" / "systemd"
EXPOSURE_MAX = 2.0
PR_SET_MDWE = 65
PR_MDWE_REFUSE_EXEC_GAIN = 1
FOUND = re.compile(r"Overall exposure level for \S+: ([\d.]+)")


class _Twice(dict[str, object]):
    """What is given several times is joined by lines."""

    def __setitem__(self, key: str, value: object) -> None:
        before = self.get(key)
        if isinstance(value, list) and isinstance(before, list):
            before.extend(value)
        else:
            super().__setitem__(key, value)


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, dict_type=_Twice)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNITS / name)
    return parser


def in_place(folder: Path) -> list[Path]:
    """The units as they are, but that the programs they start are here: systemd looks whether they can be."""
    copied = []
    for path in UNITS.iterdir():
        text = re.sub(r"/opt/siltlog(?:-pipelines)?/bin/silt", sys.executable, path.read_text("utf-8"))
        (folder / path.name).write_text(text)
        copied.append(folder / path.name)
    return copied


def verified(program: str, *paths: Path) -> str:
    ran = subprocess.run([program, "verify", "--man=no", *paths], capture_output=True, text=True, check=False)
    return "".join(line for line in f"{ran.stdout}{ran.stderr}".splitlines(True) if str(paths[0].parent) in line)


def test_systemd_takes_the_units(tool: Callable[[str], str], tmp_path: Path) -> None:
    assert verified(tool("systemd-analyze"), *in_place(tmp_path)) == ""


def test_a_unit_with_a_fault_is_found(tool: Callable[[str], str], tmp_path: Path) -> None:
    [service] = [path for path in in_place(tmp_path) if path.name == "siltlog.service"]
    service.write_text(service.read_text().replace("ProtectSystem=strict", "ProtectSytem=strict"))
    assert "ProtectSytem" in verified(tool("systemd-analyze"), service)


@pytest.mark.parametrize("name", ["siltlog.service", "siltlog-compact.service"])
def test_a_unit_gives_away_little(tool: Callable[[str], str], name: str) -> None:
    command = [
        tool("systemd-analyze"),
        "security",
        "--offline=yes",
        f"--threshold={int(EXPOSURE_MAX * 10)}",
        UNITS / name,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    level = FOUND.search(ran.stdout)
    assert level, ran.stdout + ran.stderr
    assert float(level[1]) <= EXPOSURE_MAX
    assert ran.returncode == 0


def test_a_stop_waits_longer_than_the_drain_and_the_jobs() -> None:
    service = unit("siltlog.service")["Service"]
    assert duration_ms(f"{service['TimeoutStopSec']}s") > 2 * ServerSettings.model_fields["drain_ms"].default
    assert service["KillMode"] == "mixed"  # its Valkey and its jobs are ended by the server
    assert service["ExecReload"].endswith("-HUP $MAINPID")


def test_what_is_set_is_a_setting() -> None:
    text = "".join(path.read_text("utf-8") for path in UNITS.iterdir())
    known = {f"SILT_{name.upper()}" for name in ServerSettings.model_fields} | {"SILT_CONFIG"}
    assert set(re.findall(r"SILT_[A-Z_]+[A-Z]", text)) <= known
    assert "LoadCredential=secret:" in text
    assert "%d/secret" in text


def confined() -> None:
    """What the unit says of a process, as far as a process can do it to itself."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0):
        os._exit(99)


@pytest.mark.slow
def test_a_server_runs_where_memory_is_never_both_written_and_executed(tmp_path: Path) -> None:
    """`MemoryDenyWriteExecute=yes`: libraries that make code while they run would fail."""
    assert unit("siltlog.service")["Service"]["MemoryDenyWriteExecute"] == "yes"
    silt = Path(sys.executable).with_name("silt")
    environment = {
        "PATH": os.environ["PATH"],
        "SILT_PORT": "0",
        "SILT_DATA_DIR": str(tmp_path),
        "SILT_SECRET_FILE": str(tmp_path / "secret"),
        "PYTHONUNBUFFERED": "1",
    }
    (tmp_path / "secret").write_bytes(os.urandom(32))
    (tmp_path / "secret").chmod(0o400)
    setpriv = shutil.which("setpriv") or pytest.skip("setpriv is not installed: apt-get install util-linux")
    command = [setpriv, "--no-new-privs", silt, "serve"]
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=tmp_path,
        preexec_fn=confined,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        if process.poll() == 99:
            pytest.skip("this kernel cannot refuse memory that is written and executed (Linux 6.3 can)")
        assert line.startswith("listening on "), line
        url = line.split()[2]
        asked = {**environment, "SILT_URL": url}
        for arguments in (["topic", "create", "orders"], ["publish", "orders", "one"], ["retain"]):
            ran = subprocess.run(
                [silt, *arguments],
                env=asked,
                cwd=tmp_path,
                preexec_fn=confined,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
