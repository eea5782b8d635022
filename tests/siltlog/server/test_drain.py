"""What a drain says that it did."""

from pathlib import Path

import uvloop
from log_rig import running_log

from siltlog.ingest.wal.disk import Disk
from siltlog.server.drain import Acknowledged


def test_topics_that_are_let_go_while_a_server_drains_lower_no_count(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            there = [await topics.create(name, 1, {}) for name in ("kept", "let-go")]
            for topic in there:
                topic.acknowledged(5, 50, duplicates=0)
            acknowledged = Acknowledged(log.topics)
            assert acknowledged.records() == 0
            kept, let_go = there
            kept.acknowledged(2, 20, duplicates=0)
            log.topic_logs.remove(let_go)
            assert acknowledged.records() == 2
            let_go.acknowledged(1, 10, duplicates=0)
            taken = await topics.create("taken", 1, {})
            taken.acknowledged(4, 40, duplicates=0)
            assert acknowledged.records() == 7

    uvloop.run(play())
