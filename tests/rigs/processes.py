"""What is known of other processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


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
