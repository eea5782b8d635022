"""The growth of a topic: more partitions in one commit, while nothing is sequenced."""

import asyncio
import uuid

from siltlog.infra.errors import OutcomeUnknown, problem
from siltlog.infra.table.snapshot import TableSnapshot
from siltlog.infra.telemetry import Logger
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.topics.altered import Altered

SETTLE_SECONDS = 0.5
"""How often it is asked whether a commit without an answer has landed."""


async def grow(log: Log, topic: TopicLog, wanted: Altered, logger: Logger) -> None:
    """Gives the topic the partitions and settings that are wanted. The topic's `table_lock` is held.

    Raises Unavailable once it is sure that the commit did not land, and what `TopicTable.grow` does.
    """
    commit_id = str(uuid.uuid4())
    with topic.pause():
        # The history says where the new count begins: what was sequenced by the old one must survive a crash.
        await log.group_commit.commit()
        await log.landed(topic)
        first_offsets = [partition.offsets.submitted for partition in topic.partitions]
        version = topic.snapshot.version
        try:
            snapshot = await asyncio.to_thread(
                topic.table.grow,
                wanted.partitions,
                first_offsets,
                topic.epochs[-1],
                commit_id,
                config=wanted.changed,
                unset=wanted.unset,
                removed_files_ms=wanted.removed_files_ms,
            )
        except OutcomeUnknown as error:
            logger.warning("growing a topic: no answer yet", topic=topic.name, reason=error.detail)
            snapshot = await _settled(topic, commit_id, version)
        log.see_table(topic, snapshot)


async def _settled(topic: TopicLog, commit_id: str, version: int) -> TableSnapshot:
    """The table with that commit; raises Unavailable once it is sure that it did not land."""
    while True:
        outcome = await asyncio.to_thread(topic.table.outcome, commit_id, version)
        grown = topic.table.snapshot.partitions > len(topic.partitions)
        if outcome == "landed" or (outcome == "past" and grown):
            return topic.table.snapshot
        if outcome != "unknown":
            raise problem("topic_unavailable", f"topic {topic.name} was not changed: its table cannot be written")
        await asyncio.sleep(SETTLE_SECONDS)
