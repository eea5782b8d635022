"""Modules of tests, compiled once for all workers: each imports all of them, and rewrites what it does not find.

Of a fresh clone nothing is there, and most of a worker's start is this. Each writes a share of its own before it begins
to collect; what another has not written by then, it rewrites itself.
"""

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key


def share(files: list[Path], number: int, count: int) -> list[Path]:
    """What the worker `number` of `count` begins with: neighbours, which are alike, go to different ones."""
    return sorted(files)[number::count]


def write(config: pytest.Config, files: list[Path]) -> None:
    """Leaves beside each of the files what an import of it finds."""
    state = config.stash[assertstate_key]
    for file in files:
        folder = rewrite.get_cache_dir(file)
        cached = folder / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, cached) is None and rewrite.try_makedirs(folder):
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source_hash, cached)


def write_share(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or config.args != config.getini("testpaths"):
        return
    number = int(worker["workerid"].removeprefix("gw"))
    files = [file for folder in config.args for file in (config.rootpath / folder).rglob("test_*.py")]
    write(config, share(files, number % worker["workercount"], worker["workercount"]))
