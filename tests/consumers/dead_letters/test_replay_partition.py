"""Where a dead letter goes back to, in a topic that has fewer partitions than the one that it was of."""

import pytest

from siltlog.consumers.dead_letters.record import Origin
from siltlog.consumers.dead_letters.replay import _partition
from siltlog.infra.arrow.partitioner import PARTITIONERS
from siltlog.infra.records import NewRecord
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.testing.log import MemoryTopic


@pytest.mark.rule("KF23")
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_it_stays_where_it_was_or_goes_where_its_key_belongs(partitioner: str) -> None:
    target = MemoryTopic("t", 3, TopicConfig({"partitioner": partitioner}), 0)
    for number in range(20):
        key = b"k%d" % number
        assert _partition(Origin(2, NewRecord(key, b"")), target) == 2
        assert _partition(Origin(7, NewRecord(key, b"")), target) == PARTITIONERS[partitioner].partition_of(key, 3)
    assert _partition(Origin(7, NewRecord(None, b"")), target) == 1
