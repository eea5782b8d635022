"""What is known of other processes."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from siltlog import server_process

SILT_SECONDS_MAX = 120.0


def stat_of(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on (proc_pid_stat(5)); nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (ProcessLookupError, FileNotFoundError):
        return []


def processor_seconds(pid: int) -> float:
    """The processor's time that it took; while it is stopped, or others are busy, it takes none."""
    return sum(int(ticks) for ticks in stat_of(pid)[11:13]) / os.sysconf("SC_CLK_TCK")


def opened_by(pid: int) -> list[str]:
    """What a process has open; what it closed between the listing and the look is not told."""
    opened = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(str(file.readlink()))
    return opened


def is_stopped(pid: int) -> bool:
    return stat_of(pid)[:1] == ["T"]


def alive(pid: int) -> bool:
    """Whether it runs; what only waits to be reaped does not."""
    return stat_of(pid)[:1] not in ([], ["Z"])


def silt(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Runs `silt` in a folder to its end, as a process that is forked where servers are."""
    with tempfile.TemporaryFile() as log:
        process = server_process._run(arguments, folder, environment, log)
        assert process.stdout is not None
        with process.stdout as output:
            said = output.read()
        status = process.wait(SILT_SECONDS_MAX)
        log.seek(0)
        return subprocess.CompletedProcess(arguments, status, said, log.read().decode())


def interrupted(arguments: Sequence[str], said: str) -> tuple[int, str, str]:
    """Runs `silt`, interrupts it once it has `said` so on standard error: its status, its output, what it says then."""
    command = [sys.executable, "-m", "siltlog.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stderr is not None
        for line in run.stderr:
            if said in line:
                break
        run.send_signal(signal.SIGINT)
        rest = run.stderr.read()
        return run.wait(), run.stdout.read(), rest
