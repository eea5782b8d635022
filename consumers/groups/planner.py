"""Keeps the assignment of a group in step with its members and its topics."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from siltlog.consumers.groups.assignment import Partition, assign
from siltlog.consumers.groups.scripts import Reply
from siltlog.consumers.groups.topics import GroupTopics, Subscription, Unknown
from siltlog.consumers.reading.view import Key, TopicView

ATTEMPTS_MAX = 8
Run = Callable[[str, str, Mapping[str, Any]], Awaitable[Reply]]
Counts = dict[tuple[str, str], int]
"""(topic, topic id) -> partitions."""
Subscribed = Mapping[Subscription, list[TopicView]]
"""The topics of each subscription that a member has; many have the same."""


class GroupPlanner:
    """The planner of one group. Used on one event loop.

    An assignment is computed here, from one state, and installed by a script that refuses it when that state has
    changed since. Calls that come while one is computed share the next.
    """

    def __init__(self, group: str, topics: GroupTopics, run: Run, rebalances: Counter[str]) -> None:
        """Counts in `rebalances` what it installs, by what had changed: `members` or `topics`."""
        self._group = group
        self._topics = topics
        self._run = run
        self._rebalances = rebalances
        self._lock = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._planned: Mapping[Subscription, Counts] | None = None

    async def plan(self) -> None:
        """Returns once an assignment from a state not older than this call is installed, or cannot be yet."""
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._answered >= asked:
                return
            covers = self._asked
            for _ in range(ATTEMPTS_MAX):
                if await self._attempt():
                    break
            self._answered = covers

    def is_outdated(self) -> bool:
        """Whether topics came, went, grew, or may be read by others since the last plan, or there was none yet."""
        now = self._topics.subscribed(set(self._subscriptions.values()))
        return self._planned is None or {of: _counts(topics) for of, topics in now.items()} != self._planned

    async def _attempt(self) -> bool:
        inputs = await self._run("inputs", self._group, {})
        if inputs["status"] in ("foreign", "classic") or not inputs["members"] or inputs["holding"]:
            return True
        subscriptions = {member: Subscription.of(*wanted) for member, *wanted in inputs["members"]}
        subscribed = self._topics.subscribed(set(subscriptions.values()))
        unknown = self._topics.unknown(inputs.get("view") or 0)
        request = _request(inputs, subscriptions, subscribed, unknown)
        installed = await self._run("assign", self._group, request)
        if installed["status"] != "ok":
            return False
        planned = {subscription: _counts(topics) for subscription, topics in subscribed.items()}
        if installed["changed"]:
            same_members = self._subscriptions == subscriptions
            self._rebalances["topics" if same_members and self._planned != planned else "members"] += 1
        self._subscriptions, self._planned = subscriptions, planned
        return True


def _counts(topics: Sequence[TopicView]) -> Counts:
    return {(topic.name, topic.topic_id): len(topic.partitions) for topic in topics}


def _request(
    inputs: Reply, subscriptions: Mapping[str, Subscription], subscribed: Subscribed, unknown: Unknown
) -> dict[str, Any]:
    named = {
        subscription: {_topic_text(topic): topic for topic in topics} for subscription, topics in subscribed.items()
    }
    views = {text: topic for topics in named.values() for text, topic in topics.items()}
    current: dict[Partition, str] = {}
    for text, member in inputs["current"]:
        topic, _, number = text.rpartition("/")
        current[topic, int(number)] = member
    target = assign(
        {member: named[subscription] for member, subscription in subscriptions.items()},
        {text: len(topic.partitions) for text, topic in views.items()},
        current,
    )
    unresolved = {(key.rpartition("/")[0], int(key.rpartition("/")[2])) for key in inputs["unresolved"]}
    bounds = []
    for text, number in target:
        if (text, number) not in current or (text, number) in unresolved:
            at = views[text].partitions[number].bounds()
            bounds.append((f"{text}/{number}", text, number, at.log_start_offset, at.high_watermark))
    # What this server does not know yet another has planned: it stays where it is.
    for (text, number), member in current.items():
        if member in subscriptions and unknown.may_be_there(subscriptions[member], text, number):
            target[text, number] = member
    return {
        "revision": inputs["revision"],
        "view": unknown.view,
        "target": [(f"{topic}/{number}", member) for (topic, number), member in target.items()],
        "topics": [(text, len(topic.partitions)) for text, topic in views.items()],
        "bounds": bounds,
    }


def _topic_text(topic: TopicView) -> str:
    return Key(topic.name, topic.topic_id, 0).text().rpartition("/")[0]
