"""Ends what a benchmark started below a folder, should the benchmark be killed before it could.

Run as `python -m benchmarks.servers.warden FOLDER`, it waits for its standard input to end. Where it was told that all
has ended it does nothing more. Otherwise it kills every process that works below the folder, and removes the folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

QUIET_PASSES = 3
PASS_SECONDS = 0.2
ALL_ENDED = b"all ended\n"
STOP_SECONDS_MAX = 10.0


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """What the block leaves running below `folder` when this process is killed is killed, too."""
    warden = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.servers.warden", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the benchmark alone
    )
    try:
        yield
    finally:
        with suppress(subprocess.TimeoutExpired):
            warden.communicate(ALL_ENDED, STOP_SECONDS_MAX)


def working_below(folder: Path) -> list[int]:
    """The processes whose working directory is that folder, or below it."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is another user's
            if process.name.isdecimal() and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    if sys.stdin.buffer.read() == ALL_ENDED:
        return
    quiet = 0
    while quiet < QUIET_PASSES:
        there = working_below(folder)
        quiet = 0 if there else quiet + 1
        for pid in there:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(PASS_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
