"""How long removed files stay, from the settings of a topic and of its server into the table's own."""

import asyncio
from pathlib import Path

from log_rig import running_log

from siltlog.infra.table.entries import HOUR_MS
from siltlog.ingest.wal.disk import Disk

SETTING = "removed.files.retention.ms"


def test_what_a_topic_or_its_server_says_is_what_the_table_has(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (_, topics):
            own = await topics.create("own", 1, {SETTING: 7 * HOUR_MS})
            other = await topics.create("other", 1, {})
            assert own.snapshot.removed_files_ms == 7 * HOUR_MS
            assert other.snapshot.removed_files_ms == 24 * HOUR_MS
            await topics.alter("own", None, {SETTING: 8 * HOUR_MS})
            assert own.snapshot.removed_files_ms == 8 * HOUR_MS
        async with running_log(tmp_path, Disk(), server_config={SETTING: 6 * HOUR_MS}) as (log, topics):
            assert log.topic("own").snapshot.removed_files_ms == 8 * HOUR_MS
            assert log.topic("other").snapshot.removed_files_ms == 6 * HOUR_MS, "a table that was there"
            assert (await topics.create("newer", 1, {})).snapshot.removed_files_ms == 6 * HOUR_MS
            own = await topics.alter("own", None, {SETTING: None})
            assert own.snapshot.removed_files_ms == 6 * HOUR_MS
            grown = await topics.alter("other", 2, {SETTING: 9 * HOUR_MS})
            assert grown.snapshot.removed_files_ms == 9 * HOUR_MS

    asyncio.run(run())
