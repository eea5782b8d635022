"""Tables of topics that no server has made, for what is measured without one."""

import uuid
from collections.abc import Mapping

from siltlog.infra.clock import Clock
from siltlog.infra.settings.topic_config import TopicConfig, Value
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable


def new_table(
    store: ObjectStore, topic: str, clock: Clock, *, partitions: int = 1, config: Mapping[str, Value] | None = None
) -> TopicTable:
    return TopicTable.create(
        store,
        topic,
        topic_id=str(uuid.uuid4()),
        partitions=partitions,
        config=TopicConfig(config or {}),
        created_us=clock.now_us(),
        clock=clock,
    )
