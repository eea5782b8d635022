"""The partitions that a consumer has: those that it chose, or those that its group gives it and takes. No IO.

`watchers` are told of them before the user's callbacks are.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from siltlog.consumers.library.commits import LAST_COMMIT_MS, Commits
from siltlog.consumers.library.member import GroupMember, MemberOptions, News, Place
from siltlog.consumers.library.options import ConsumerOptions, OnPartitions
from siltlog.consumers.library.positions import Positions
from siltlog.consumers.library.program import Program, tell
from siltlog.consumers.library.topic_bounds import TopicBounds
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, Unavailable, problem

_log = logging.getLogger("siltlog.consumer")


class Watcher(NamedTuple):
    """Callbacks that are told of partitions that came, are about to go, and are gone already."""

    assigned: OnPartitions | None
    revoked: OnPartitions | None
    lost: OnPartitions | None


class Assignment:
    def __init__(
        self,
        options: ConsumerOptions,
        positions: Positions,
        topics: TopicBounds,
        clock: Clock,
        give_back: Callable[[], None],
    ) -> None:
        """`give_back` takes back what an iteration has not handed out, before its partition goes."""
        self.known = False
        """Whether it is known which partitions to read, none being an answer too."""
        self.watchers = [Watcher(options.on_assigned, options.on_revoked, options.on_lost)]
        self.member: GroupMember | None = None
        if options.group is not None:
            self.member = GroupMember(_member_options(options), clock.monotonic())
        self.commits = Commits(options, positions, self.member, clock, self.drop)
        self._options = options
        self._positions = positions
        self._topics = topics
        self._clock = clock
        self._give_back = give_back
        self._begun = self.member is not None
        self._unlearned: set[str] = set()
        self._news = News()
        self._taking: dict[TopicPartition, Place] | None = None
        """The assignment that is taken just now."""
        self._untold: list[TopicPartition] = []

    @property
    def is_unlearned(self) -> bool:
        """Whether it is not known yet which topics the names of some partitions stand for."""
        return bool(self._unlearned)

    def go_back(self) -> None:
        """Something was cut short between any two steps: an assignment that was not wholly taken is taken once more,
        and nobody watches for a run that has ended."""
        news = self._news
        if news.assignment is None and not news.lost:
            news.assignment = self._taking
        self._taking = None
        del self.watchers[:-1]

    def begin(self) -> Program[None]:
        """Gives the partitions of a consumer without a group their first positions, once."""
        if self._begun:
            return
        options = self._options
        bounds = {}
        for topic in sorted({at.topic for at in options.assign}):
            bounds[topic] = yield from self._topics.ask(topic)
        for at in options.assign:
            found = bounds[at.topic].get(at.partition)
            if found is None:
                self._positions.revoke(list(self._positions.states))
                raise problem("unknown_partition", f"{at.topic} has no partition {at.partition}")
            latest = options.auto_offset_reset == "latest"
            self._positions.assign(at, self._topics.end(found[0]) if latest else found[0].log_start_offset)
            self._positions.states[at].bounds = found[0]
            self._positions.states[at].placed = options.auto_offset_reset != "error"
        self.known = self._begun = True

    def take_news(self) -> Program[None]:
        """Takes what the group has told; what a callback or an error cuts short is gone on with by the next call."""
        member = self.member
        if member is None:
            return
        waited = member.unjoined_s(self._clock.monotonic())
        if not member.has_news and waited * 1000 > self._options.retry_timeout_ms:
            raise Unavailable(
                f"the group could not be joined in {waited:.0f} s: {member.last_error}",
                error_code="coordinator_unavailable",
            )
        news = self._news
        if member.has_news:
            # Each step may be made once more, should Ctrl-C come before the next.
            news.add(member.told())
            member.take()
        if news.lost:
            yield from self._lose()
            news.lost = False
        self._taking, news.assignment = news.assignment, None
        if self._taking is not None:
            yield from self._reassign(member, self._taking)
        error, news.error = news.error, None
        if error is not None:
            raise error
        yield from self._tell_what_is_due(member)

    def _lose(self) -> Program[None]:
        self.known = False
        self._untold = []
        yield from self.drop(self._positions.states)

    def drop(self, lost: Iterable[TopicPartition]) -> Program[None]:
        """They are another's already, or no more."""
        gone = sorted(at for at in lost if at in self._positions.states)
        if not gone:
            return
        self._give_back()
        self._positions.revoke(gone)
        for watcher in self.watchers:
            yield from tell(watcher.lost, gone)

    def _reassign(self, member: GroupMember, assignment: Mapping[TopicPartition, Place]) -> Program[None]:
        states = self._positions.states
        revoked = sorted(states.keys() - assignment.keys())
        try:
            # What was read of a topic that was deleted says nothing of another that has its name now.
            yield from self.drop(
                [at for at in states.keys() & assignment.keys() if states[at].topic_id != assignment[at].topic_id]
            )
            if revoked:
                self._give_back()
                done = self._positions.uncommitted() if self._options.commits_by_itself else {}
                yield from self.commits.try_to_commit({at: done[at] for at in revoked if at in done}, LAST_COMMIT_MS)
                revoked = [at for at in revoked if at in states]
                for watcher in self.watchers:
                    yield from tell(watcher.revoked, revoked)
        finally:
            # Also when a callback raised: the partitions are another's from now on.
            self._positions.revoke([at for at in revoked if at in states])
            assigned = sorted(assignment.keys() - states.keys())
            self._unlearned |= {at.topic for at in assigned}
            self._untold = [*(at for at in self._untold if at in states), *assigned]
            for at in assigned:
                self._positions.assign(at, *assignment[at])
            member.holds(states.keys())
            self.known = True
            self._taking = None

    def _tell_what_is_due(self, member: GroupMember) -> Program[None]:
        """Tells the group what was let go and the watchers what came; cut short, the next `take_news` goes on."""
        beat = member.release()
        if beat is not None:
            try:
                answer: Any = (yield beat.request).json()
            except SiltlogError as error:
                answer = error
            member.heard(beat, answer, self._clock.monotonic(), 0.0)
        yield from self._learn_topics()
        untold, self._untold = self._untold, []
        for watcher in self.watchers:
            yield from tell(watcher.assigned, untold)

    def _learn_topics(self) -> Program[None]:
        """Asks which topic a name stands for now, so that no fetch goes on in a successor of the same name."""
        while self._unlearned:
            topic = min(self._unlearned)
            self._topics.forget(topic)
            try:
                found = yield from self._topics.ask(topic)
            except SiltlogError as error:
                found = {}
                _log.warning("the id of topic %s is not known: %s", topic, error)
            topic_id = self._topics.topic_id(topic)
            for at, state in self._positions.states.items():
                if at.topic == topic and at.partition in found and state.topic_id in (None, topic_id):
                    state.bounds = found[at.partition][0]
            self._unlearned.discard(topic)


def _member_options(options: ConsumerOptions) -> MemberOptions:
    assert options.group is not None
    return MemberOptions(
        options.group,
        options.topics,
        options.topic_pattern,
        options.auto_offset_reset,
        options.session_timeout_ms,
        options.rebalance_timeout_ms,
        options.max_poll_interval_ms,
        options.client_id,
        options.instance_id,
    )
