"""Finds in the log what a group subscribes to: topics, partitions, bounds."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from siltlog.consumers.groups.messages import CommittedOffset, KafkaOffset, PartitionName, PolledOffset, Position
from siltlog.consumers.reading.fetch import find_partition, sources
from siltlog.consumers.reading.reader import check_there
from siltlog.consumers.reading.view import Key, LogView, TopicView
from siltlog.infra import names
from siltlog.infra.arrow.arrays import binary_array
from siltlog.infra.errors import SiltlogError, Unavailable, UnknownTopic, problem
from siltlog.infra.limits import TURN_ITEMS
from siltlog.infra.records import Bounds
from siltlog.infra.security.access import Subject
from siltlog.infra.security.grant import Access

Commit = tuple[str, int, str] | tuple[str, int, str, int] | tuple[str, int, str, int | None, int]
"""Partition as the scripts name it, offset, metadata; up to where records were handed out, and the leader epoch, where
those were said."""


class Subscription(NamedTuple):
    topics: frozenset[str]
    pattern: str
    subject: Subject | None = None
    """The caller that wants it; None where nobody said who they are."""

    @classmethod
    def of(cls, topics: str, pattern: str, principal: str = "", groups: str = "") -> "Subscription":
        subject = Subject(principal, tuple(msgspec.json.decode(groups or "[]"))) if principal else None
        return cls(frozenset(topics.split(",")) if topics else frozenset(), pattern, subject)

    def wants(self, name: str) -> bool:
        if name in self.topics:
            return True
        return bool(self.pattern and names.topic_name_problem(name) is None and _matching(_whole(self.pattern), [name]))


def pattern_problem(pattern: str) -> str | None:
    try:
        # Alone first: what closes a bracket that it has not opened would be right within others.
        for expression in (pattern, _whole(pattern)):
            _matching(expression, ["topic"])
    except pa.ArrowInvalid as error:
        return f"topic_pattern {pattern[:80]!r} is not a regular expression (RE2): {error}"
    return None


def _whole(pattern: str) -> str:
    """An expression that a name matches from its first character to its last."""
    return f"^(?:{pattern})$"


def _matching(expression: str, topics: Sequence[str]) -> list[str]:
    """RE2: its time is linear in the text, whatever the expression."""
    column = binary_array([topic.encode() for topic in topics]).cast(pa.string())
    matched: list[str] = column.filter(pc.match_substring_regex(column, expression)).to_pylist()
    return matched


class Unknown(NamedTuple):
    """What a server does not know of topics, and others may."""

    view: int
    """The one by which it knows them."""
    behind: bool
    """Whether another knows them by a newer view."""
    opening: Collection[str]
    """Names of those that it cannot read yet."""
    counts: Mapping[str, int]
    """Partitions of those that it knows, by `{topic}/{topic id}`."""

    def may_be_there(self, subscription: Subscription, text: str, number: int) -> bool:
        """Whether a partition that the subscription wants may be there, which this server does not know."""
        name = text.partition("/")[0]
        count = self.counts.get(text)
        missed = number >= count if count is not None else self.behind or name in self.opening
        return missed and subscription.wants(name)


class GroupTopics:
    def __init__(self, log: LogView, access: Access | None = None) -> None:
        """Lets everybody read everything without `access`."""
        self._log = log
        self._access = access

    @property
    def draining(self) -> bool:
        return self._log.draining

    def unknown(self, view: int) -> "Unknown":
        """What this server does not know, where another has planned by that view."""
        counts = {Key(name, topic_id, 0).topic_text(): count for name, topic_id, count in self.signature()}
        return Unknown(self._log.view, self._log.view < view, frozenset(self._log.opening()), counts)

    def signature(self) -> tuple[tuple[str, str, int], ...]:
        """Equal for as long as no topic came, went or grew."""
        return tuple((topic.name, topic.topic_id, len(topic.partitions)) for topic in self._log.topics())

    def access_version(self) -> int:
        """Another one whenever somebody may have lost a topic, or gained one."""
        return 0 if self._access is None else self._access.version

    def subscribed(self, subscriptions: Collection[Subscription]) -> dict[Subscription, list[TopicView]]:
        """The topics of each subscription that exist and that its subject may read; a pattern names none of the
        system's."""
        topics = {topic.name: topic for topic in self._log.topics()}
        candidates = [name for name in topics if names.topic_name_problem(name) is None]
        matches = {
            pattern: frozenset(_matching(_whole(pattern), candidates))
            for pattern in {subscription.pattern for subscription in subscriptions}
            if pattern
        }
        return {
            subscription: [
                topics[name]
                for name in sorted(subscription.topics | matches.get(subscription.pattern, frozenset()))
                if name in topics and self._may_read(subscription.subject, name)
            ]
            for subscription in subscriptions
        }

    def _may_read(self, subject: Subject | None, topic: str) -> bool:
        access = self._access
        if access is None:
            return True
        return subject is not None and all(access.allows(subject, "read", "topic", name) for name in sources(topic))

    def require(self, topics: Iterable[str]) -> None:
        """Raises UnknownTopic."""
        for name in topics:
            self._log.topic(name)

    def has(self, key: Key) -> bool:
        """Whether the partition is in the log, of the same topic id."""
        topic = self._find(key.topic)
        return topic is not None and topic.topic_id == key.topic_id and key.partition < len(topic.partitions)

    def may_have(self, key: Key) -> bool:
        """Says so too where the topic of that name cannot be read now: what is kept of it stays until it can."""
        try:
            return self.has(key)
        except Unavailable:
            return True

    def is_stale(self, key: Key) -> bool:
        """Whether the topic of `key` was deleted and its name given to another."""
        topic = self._find(key.topic)
        return topic is not None and topic.topic_id != key.topic_id

    async def owned(self, partitions: Iterable[PartitionName]) -> list[str]:
        """Names the partitions as the scripts do, each once; those that do not exist (any more) cannot be held."""
        return [key.text() for key in await self.keys((at.topic, at.partition) for at in partitions)]

    async def keys(self, partitions: Iterable[tuple[str, int]]) -> list[Key]:
        """The partitions of these names and numbers that exist, each once. Others have their turn meanwhile."""
        topics: dict[str, TopicView | None] = {}
        found = []
        for count, (name, number) in enumerate(set(partitions), 1):
            if name not in topics:
                topics[name] = self._find(name)
            topic = topics[name]
            if topic is not None and number < len(topic.partitions):
                found.append(Key(name, topic.topic_id, number))
            if count % TURN_ITEMS == 0:
                await asyncio.sleep(0)
        return found

    async def learn(self, offsets: Iterable[PolledOffset]) -> None:
        """Has the bounds of partitions known as far as they decide about `offsets`. Raises Unavailable where nobody
        tells."""
        for at in offsets:
            topic = self._find(at.topic)
            if topic is not None and 0 <= at.partition < len(topic.partitions):
                await self._decided(topic, at.partition, at.offset)

    async def beyond(self, positions: Iterable[Position]) -> dict[Key, Bounds]:
        """The bounds of partitions that end before the offset of their position, as far as their owners say so."""
        found = {}
        for key, offset in positions:
            if not self.has(key):
                continue
            try:
                bounds = await self._decided(self._log.topic(key.topic), key.partition, offset)
            except SiltlogError:
                # Whoever reads there hears of it.
                continue
            if offset > bounds.high_watermark:
                found[key] = bounds
        return found

    async def _decided(self, topic: TopicView, partition: int, offset: int) -> Bounds:
        """The bounds of a partition, as far as they decide about `offset`. Raises Unavailable where it is above what is
        known, and nobody owns the partition, or its owner knows less than the table has."""
        view = topic.partitions[partition]
        bounds = view.bounds()
        if offset <= bounds.high_watermark:
            return bounds
        decided = await view.decided()
        if decided is None or (offset > decided.high_watermark and await view.reaches(offset)):
            why = "nobody owns it now" if decided is None else "its owner has not heard of all that its table has"
            raise problem(
                "topic_unavailable",
                f"whether {topic.name}/{partition} has the offset {offset} is not known yet: {why}",
                topic=topic.name,
                partition=partition,
            )
        return decided

    def commits(
        self,
        offsets: Sequence[PolledOffset],
        topic_id: str | None = None,
        *,
        by_member: bool = True,
        anywhere: bool = False,
    ) -> list[Commit]:
        """Raises UnknownTopic, Refused `unknown_partition`, and 422 for an offset outside its partition's log, unless
        they may be `anywhere`."""
        seen: set[tuple[str, int]] = set()
        commits: list[Commit] = []
        for at in offsets:
            topic = self._log.topic(at.topic)
            if topic_id is not None and topic.topic_id != topic_id:
                raise problem(
                    "unknown_topic",
                    f"the topic {at.topic} has the id {topic.topic_id}, not {topic_id[:80]}: it was deleted and "
                    "created again, and these offsets are of the former one",
                    topic=at.topic,
                )
            if (at.topic, at.partition) in seen:
                raise problem("invalid_request", f"{at.topic}/{at.partition} is given twice; commit one offset for it")
            seen.add((at.topic, at.partition))
            if anywhere:
                find_partition(topic, at.partition)
            else:
                self._check_bounds(topic, at, by_member)
            text = Key(at.topic, topic.topic_id, at.partition).text()
            metadata = at.metadata if isinstance(at, CommittedOffset) else ""
            if isinstance(at, KafkaOffset) and at.leader_epoch >= 0:
                commits.append((text, at.offset, metadata, at.delivered, at.leader_epoch))
            elif isinstance(at, CommittedOffset) and at.delivered is not None:
                commits.append((text, at.offset, metadata, at.delivered))
            else:
                commits.append((text, at.offset, metadata))
        return commits

    def record(self, at: PolledOffset) -> Key:
        """The partition of a record. Raises UnknownTopic, Refused `unknown_partition`, and OffsetOutOfRange where there
        can be no record."""
        topic = self._log.topic(at.topic)
        check_there(topic, find_partition(topic, at.partition), at.offset)
        return Key(at.topic, topic.topic_id, at.partition)

    def readable_from(self, key: Key, offset: int) -> int:
        """`offset`, or the log start where retention has passed it: a group goes on with what is there."""
        if not self.has(key):
            return offset
        return max(offset, self._log.topic(key.topic).partitions[key.partition].bounds().log_start_offset)

    def _find(self, name: str) -> TopicView | None:
        try:
            return self._log.topic(name)
        except UnknownTopic:
            return None

    def _check_bounds(self, topic: TopicView, at: PolledOffset, by_member: bool) -> None:
        bounds = find_partition(topic, at.partition).bounds()
        # What a member has read may have been deleted since, and it must be able to go on.
        lowest = 0 if by_member else bounds.log_start_offset
        if not lowest <= at.offset <= bounds.high_watermark:
            raise problem(
                "invalid_request",
                f"the offset {at.offset} is outside {topic.name}/{at.partition}, which has {bounds.log_start_offset} "
                f"to {bounds.high_watermark}; commit the offset of the next record to read",
                topic=topic.name,
                partition=at.partition,
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
