"""Processes that run a function of a test, forked from one that has imported what they need: most of a start is that.

It has nothing of the test's process: no thread, no file, no connection.
"""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from multiprocessing.queues import Queue
from typing import Any

import pytest
from forked import ONE_THREAD

IMPORTED = [
    *("pytest", "boto3", "deltalake", "s3_server", "record_tables"),
    *("siltlog.infra.store.s3", "siltlog.consumers.library.consumer", "siltlog.consumers.library.async_consumer"),
]
_CONTEXT = multiprocessing.get_context("forkserver")


def queue() -> "Queue[Any]":
    return _CONTEXT.Queue()


def process(target: Callable[..., object], *arguments: Any) -> ForkServerProcess:
    """It ends with the tests where it would go on for ever."""
    _CONTEXT.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ONE_THREAD.items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return _CONTEXT.Process(target=_run, args=(dict(os.environ), target, arguments), daemon=True)


def _run(environment: Mapping[str, str], target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """The environment of the one it was forked from is as old as that one."""
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
