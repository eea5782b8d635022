"""Checks a change of a topic without making it, also where another node owns the topic."""

from collections.abc import Mapping, Sized
from typing import Any, NamedTuple

from siltlog.consumers.reading.view import LogView, TopicView
from siltlog.infra import delta_names
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.ingest.topics.altered import altered, check_changeable
from siltlog.ingest.topics.topics import Topics


class _Elsewhere(NamedTuple):
    """A topic of another node, as its table tells of it."""

    name: str
    config: TopicConfig
    partitions: Sized
    journaled: bool
    ships: bool


def check_change(log: LogView, topics: Topics, name: str, partitions: int | None, changes: Mapping[str, Any]) -> None:
    """Raises what the change would be refused with. `log` has the topics of all nodes, `topics` those of this one."""
    if topics.own(name) is not None:
        topics.check_change(name, partitions, changes)
        return
    topic = log.topic(name)
    check_changeable(name, partitions)
    altered(_elsewhere(topic), topic.snapshot, partitions, changes)


def _elsewhere(topic: TopicView) -> _Elsewhere:
    marks = topic.snapshot.transactions
    ships = any(marks.get(delta_names.txn_shipped(view.partition)) for view in topic.partitions)
    return _Elsewhere(topic.name, topic.config, topic.partitions, topic.config["acks"] == "object", ships)
