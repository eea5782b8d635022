"""Looks from outside whether a server syncs before it acknowledges: by its system calls while it is asked."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.compare.system import Missing, Running, System
from benchmarks.servers.child import ending
from benchmarks.wires.caller import Caller

REQUESTS = 20
WARMUP_REQUESTS = 3
ATTACH_SECONDS_MAX = 20.0
SYNCS = ("fsync", "fdatasync", "msync", "sync_file_range")
WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
"""They are syncs, too, of a file that was opened with O_SYNC or O_DSYNC, or where each says so (RWF_DSYNC)."""
_LINE = re.compile(r"^(\d+)\s+(\d+\.\d+) (?:<\.\.\. )?(\w+)(?:\((\d+))?(.*)$")


class Call(NamedTuple):
    name: str
    began: float
    """Seconds since 1970, as is `ended`."""
    ended: float


class Covered(NamedTuple):
    acknowledgements: int
    """The answers before which a sync began and ended after the request was sent."""
    requests: int
    by: str
    """What synced, most often first; nothing where none did."""


def covered(system: System, running: Running, value: bytes, folder: Path) -> Covered:
    """Publishes one record after the other while strace looks. Raises Missing without it."""
    if shutil.which("strace") is None:
        raise Missing("who syncs is looked at by strace: apt-get install strace")
    request = system.single(running.port, value)[0]
    pids = family(running.pid)
    trace = folder / "strace.out"
    times: list[tuple[float, float]] = []
    with Caller(running.port, system.wire) as caller, _looking(pids, trace):
        for number in range(WARMUP_REQUESTS + REQUESTS):
            sent = time.time()
            caller.call(request)
            if number >= WARMUP_REQUESTS:
                times.append((sent, time.time()))
        synced = {(pid, file) for pid in pids for file in _opened_to_sync(pid)}
    found = list(calls(trace.read_text(errors="replace").splitlines(), {file for _, file in synced}))
    within = [[call for call in found if sent <= call.began and call.ended <= had] for sent, had in times]
    counts: dict[str, int] = {}
    for call in (call for some in within for call in some):
        counts[call.name] = counts.get(call.name, 0) + 1
    by = ", ".join(sorted(counts, key=lambda name: -counts[name]))
    return Covered(sum(map(bool, within)), len(times), by)


def calls(lines: Sequence[str], files: set[int]) -> Iterator[Call]:
    """Yields the syncs among the lines of strace (-f -ttt); `files` are descriptors whose writes are syncs."""
    begun: dict[str, tuple[str, float]] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        thread, at, name, file, rest = found[1], float(found[2]), found[3], found[4], found[5]
        if " resumed>" in rest:
            if thread in begun and begun[thread][0] == name:
                yield Call(name, begun.pop(thread)[1], at)
            continue
        counts = name in SYNCS or (file is not None and int(file) in files) or "RWF_DSYNC" in rest
        if not counts:
            continue
        if "<unfinished" in rest:
            begun[thread] = (name, at)
        else:
            took = re.search(r"<(\d+\.\d+)>$", rest)
            yield Call(name, at, at + float(took[1] if took else 0))


def family(pid: int) -> list[int]:
    """The process and all that come of it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _opened_to_sync(pid: int) -> Iterator[int]:
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError, IndexError):
            flags = int(re.findall(r"^flags:\s+([0-7]+)", entry.read_text(), re.MULTILINE)[0], 8)
            if flags & os.O_DSYNC:
                yield int(entry.name)


@contextmanager
def _looking(pids: Sequence[int], trace: Path) -> Iterator[None]:
    """Begins once strace is attached to all of `pids`. Raises Missing where it may not be."""
    which = ",".join([*SYNCS, *WRITES])
    attached = [argument for pid in pids for argument in ("-p", str(pid))]
    arguments = ["strace", "-f", "-ttt", "-T", "-s", "0", "-e", f"trace={which}", "-o", str(trace), *attached]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    with ending(process):
        assert process.stderr is not None
        waiting = len(pids)
        deadline = time.monotonic() + ATTACH_SECONDS_MAX
        while waiting and time.monotonic() < deadline:
            line = process.stderr.readline()
            if " attached" in line:
                waiting -= 1
            elif not line or "not permitted" in line:
                raise Missing(f"strace may not look at the server: {line.strip() or 'it ended'}")
        yield
