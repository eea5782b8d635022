"""What is said of claims that the store does not take."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from log_rig import CLOCK, in_thread, running_log

from siltlog.infra.errors import problem
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.producers import objects
from siltlog.ingest.wal.disk import Disk


class Said:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.warnings.append(event)


def test_claims_that_do_not_come_beside_the_table_are_told_once_until_they_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each claim says it otherwise, and whoever claims without end fills the disk of the log."""
    write = objects.write_epochs
    full = True

    def refusing(*args: Any) -> None:
        if full:
            raise problem("disk_full", "no space is left")
        write(*args)

    monkeypatch.setattr(objects, "write_epochs", refusing)

    async def run() -> None:
        nonlocal full
        said = Said()
        async with running_log(tmp_path, Disk()) as (log, topics):
            states = StateWriter(log.store, CLOCK, cast("Logger", said), in_thread)
            topic = await topics.create("t", 1, {})
            told = []
            for full in (True, True, False, True, True):
                await log.claim_producer(topic, "p")
                await states.store_epochs(topic)
                assert topic.producers.epochs_stored is not full
                told.append(len(said.warnings))
            assert told == [1, 1, 1, 2, 2]

    asyncio.run(run())
