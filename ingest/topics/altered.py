"""What a change of a topic makes of it, and whether it may be. Pure."""

from collections.abc import Collection, Mapping, Sized
from typing import Any, NamedTuple, Protocol

from siltlog.infra import names
from siltlog.infra.errors import problem
from siltlog.infra.settings.topic_config import LOCAL_LEVELS, TopicConfig, validated_partitions
from siltlog.infra.table.lifecycle import check_growth
from siltlog.infra.table.snapshot import TableSnapshot


class Alterable(Protocol):
    """A topic that may be changed."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> TopicConfig: ...
    @property
    def partitions(self) -> Sized: ...
    @property
    def journaled(self) -> bool:
        """Whether it was made with acks=object."""

    @property
    def ships(self) -> bool:
        """Whether what it acknowledges outlives the disk of its node."""


class Altered(NamedTuple):
    """A topic as it is to be."""

    partitions: int
    config: TopicConfig
    changed: TopicConfig
    """The settings that get another value."""
    unset: Collection[str]
    """The settings that are put back."""

    @property
    def removed_files_ms(self) -> int:
        return self.config.integer("removed.files.retention.ms")


def altered(topic: Alterable, snapshot: TableSnapshot, partitions: int | None, changes: Mapping[str, Any]) -> Altered:
    """`changes` are a merge patch of the topic's settings; `partitions` None: as many as there are.

    Raises Refused `invalid_request` or `invalid_config`.
    """
    config = topic.config.patched(changes)
    if topic.journaled != (config["acks"] == "object"):
        raise problem(
            "invalid_config",
            f"topic {topic.name} was made {'with' if topic.journaled else 'without'} acks=object, which is chosen "
            "when a topic is made: create another, and copy the records there",
        )
    if topic.ships and config.own.get("acks") in LOCAL_LEVELS:
        raise problem(
            "invalid_config",
            f"what topic {topic.name} acknowledges outlives this node's disk; in a cluster acks={config['acks']} is "
            "chosen when a topic is made: create another, and copy the records there",
        )
    changed = TopicConfig({setting: config.own[setting] for setting in changes if setting in config.own})
    count = len(topic.partitions) if partitions is None else partitions
    check_growth(topic.name, snapshot, count, changed)
    return Altered(count, config, changed, topic.config.own.keys() - config.own.keys())


def check_changeable(name: str, partitions: int | None) -> None:
    """Raises Refused `forbidden` for a topic of the system's, `invalid_request` for a number that no topic may have."""
    if names.is_system_topic(name):
        raise problem("forbidden", f"the topic {name} is the system's: it can be read, not changed")
    if partitions is not None:
        validated_partitions(partitions)
