"""The topics that this node owns by the newest view: it takes what the view gives it, and hands over what others get.

A view says who is entitled, the table's snapshot whether it may be claimed now (`rules.py`). An owner goes on until it
has handed over, also where a newer view names another.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from typing import Literal

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.beat import TopicReport, TopicState
from siltlog.infra.cluster.router import Held
from siltlog.infra.cluster.view import ClusterView, TermEntry, TopicEntry
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.topic_config import LOCAL_LEVELS, TopicConfig
from siltlog.infra.table.table import TopicTable
from siltlog.infra.telemetry import Logger
from siltlog.ingest.flush.release import Release
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.ownership.delays import Delays
from siltlog.ingest.ownership.plan import Leave
from siltlog.ingest.ownership.rules import Facts, Rule, Waits, decide, is_here_alone
from siltlog.ingest.ownership.semaphore import UrgentFirst
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.ownership.waiting import WaitingTopics

CLAIMS_AT_ONCE = 32
HOLD_SECONDS_MAX = 1.0
"""How long publishes wait for a hand-over before it is given up, while nothing was sent."""
AGAIN_SECONDS_MAX = 8.0
"""How long a topic that cannot be handed over is left alone, at most: less than it takes until its target counts as
one that does not claim it."""
LOOK_SECONDS = 1.0
"""How often it is looked which topics are another's by now."""
RETRY_SECONDS = 1.0
LOOKS_PER_FORMER = 10
SETTLE_SECONDS = 0.5
"""How often it is asked whether a release without an answer landed."""

WEIGHT = (Rule.RELEASED, Rule.OWN, Rule.SHIPPED, Rule.ABANDONED)
"""The rules by which a topic is claimed, by how much they say of what befell it."""

Step = Literal["take", "ship", "hand_over", "settle", "let_go"]


class Ownership:
    """Used on the log's event loop."""

    def __init__(
        self,
        log: Log,
        taking: Taking,
        releases: Release,
        logger: Logger,
        *,
        changed: Callable[[], None],
        released: Callable[[str, TermEntry | None], None],
        missing: Callable[[str, str], None],
        wanted: Callable[[str], None],
    ) -> None:
        """`changed()` hears that `report` or `held` say something else; `released(topic, to)` that a topic was handed
        over, so that who is to own it next can be told; `missing(topic, topic_id)` that a view gives this node a topic
        that is not there (any more), `wanted(topic)` that one gives another what only this node can go on with: both
        over and over."""
        self._log = log
        self._taking = taking
        self._releases = releases
        self._logger = logger
        self._clock: Clock = log.clock
        self._changed = changed
        self._was_released = released
        self._is_missing = missing
        self._is_wanted = wanted
        self._view: ClusterView | None = None
        self._journal = ""
        self._claiming = UrgentFirst(CLAIMS_AT_ONCE)
        self._work: dict[str, asyncio.Task[None]] = {}
        self._woken: dict[str, asyncio.Event] = {}
        self._waiting = WaitingTopics(log.store, self._clock, logger)
        self._terms: dict[str, int] = {}
        """The terms under which topics are held."""
        self._kept: dict[str, int] = {}
        """Terms to which a topic was to be handed over, and was not."""
        self._held_up = Delays(self._clock, RETRY_SECONDS, AGAIN_SECONDS_MAX)
        """Delays of hand-overs that were given up, until they are tried again."""
        self._gone: set[str] = set()
        """Topics that were handed over, until a view names their next owner."""
        self.taken = {rule.value: 0 for rule in WEIGHT}
        """How many topics were claimed, by the weightiest rule of their partitions."""
        self.let_go = {"released": 0, "lost": 0}
        """How many topics others have, by how they came to have them."""
        self._news = asyncio.Event()
        """Set, and replaced, when a view came or a step was taken."""
        self._stopping = False
        self._looking: asyncio.Task[None] | None = None

    # What others are told.

    def held(self, name: str) -> Held:
        """The state of a topic on this node."""
        topic = self._log.topic_logs.get(name)
        if topic is None:
            if name in self._gone:
                return Held.RELEASED
            return Held.NOT
        if topic.state in ("creating", "taking"):
            return Held.TAKING
        if topic.state == "releasing" or (topic.may_flush and topic.paused is not None):
            return Held.HOLDING
        if topic.state == "released":
            return Held.RELEASED
        return Held.OPEN if topic.may_flush else Held.NOT

    def owned(self) -> Mapping[str, TopicLog]:
        """The topics that this node owns, by name."""
        return {topic.name: topic for topic in self._log.topics() if topic.may_flush}

    @property
    def waiting(self) -> int:
        """How many topics the view gives this node that it may not claim yet."""
        return len(self._waiting)

    def report(self) -> Mapping[str, TopicReport]:
        """What the beat says of topics that the view gives this node, or that it still owns."""
        found: dict[str, TopicReport] = {}
        for name, term in self._terms.items():
            if (topic := self._log.topic_logs.get(name)) is None:
                continue
            # Settled: what a successor needs is in the table, in the own journal, or in the WAL of this data directory.
            state: TopicState = "settled" if topic.settled else "claimed"
            found[name] = TopicReport(term=term, state=state, kept=self._kept.get(name, 0))
        for name, waits in self._waiting.items():
            entry = self._entry(name)
            right = entry and entry.entitled(self._journal)
            if right and name not in found:
                found[name] = TopicReport(
                    term=right.term,
                    state="waiting",
                    awaited=waits.awaited,
                    unexplained=waits.unexplained,
                    floor=waits.floor,
                    held=waits.held,
                )
        return found

    def waits(self, name: str) -> Waits | None:
        """Why a topic that the view gives this node is not claimed; None where it is, or where that is not known."""
        return self._waiting.get(name)

    # What others say.

    def follow(self, view: ClusterView, journal: str) -> None:
        """Goes by a newer view, as the node whose journal this is."""
        if self._journal not in ("", journal):
            # The present one is lost, and whoever has its topics next may have sealed it.
            self._log.journal.end()
        self._view, self._journal = view, journal
        self._log.topic_logs.named(view.topics)
        for name in [name for name in self._gone if (entry := view.topics.get(name)) is None or not self._mine(entry)]:
            self._gone.discard(name)
        for name in [name for name, _ in self._waiting.items() if self._step(name) != "take"]:
            self._waiting.forget(name)
        self._look()
        self._tell()

    def look_again(self, name: str) -> None:
        """Wakes what waits for a topic whose owner says that it was handed over."""
        if (woken := self._woken.get(name)) is not None:
            woken.set()

    async def placed(self, name: str, topic_id: str) -> None:
        """Returns once a view names the topic, and it is open here or another node's."""
        while True:
            entry = self._entry(name)
            named = entry is not None and entry.topic_id == topic_id
            if entry is not None and named and (not self._mine(entry) or self.held(name) is Held.OPEN):
                return
            await self._news.wait()

    def await_topic(self, name: str) -> None:
        """Somebody waits for the topic: it is claimed before others."""
        if name in self._work:
            self._claiming.hurry(name)

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_on())

    async def stop(self) -> None:
        """Begins nothing more. What is sent is sent, so it ends by itself, for as long as the store answers."""
        self._stopping = True
        if self._looking is not None:
            self._looking.cancel()
        for woken in self._woken.values():
            woken.set()
        if self._work:
            await asyncio.wait([*self._work.values()])

    async def _look_on(self) -> None:
        for turn in itertools.count():
            await asyncio.sleep(LOOK_SECONDS)
            self._look()
            if turn % LOOKS_PER_FORMER == 0:
                await self._look_at_former()

    async def _look_at_former(self) -> None:
        """What the WAL has of a topic that another node went on with would keep its segments for ever."""
        former = self._taking.former
        for topic_id in former.topic_ids():
            known = former.state(topic_id)
            if known is None or known.name in self._work or self._step(known.name) is not None:
                continue
            try:
                table = await asyncio.to_thread(TopicTable.open, self._log.store, known.name, self._clock)
                if known.name not in self._work:
                    await self._taking.give_up(topic_id, table)
                    entry, facts = self._entry(known.name), Facts.of(table.snapshot)
                    named = entry is not None and entry.topic_id == topic_id == table.topic_id
                    if entry is not None and named and is_here_alone(facts, entry, known.epochs):
                        self._is_wanted(known.name)
            except SiltlogError as error:
                self._logger.warning(
                    "a topic of another node cannot be looked at", topic=known.name, reason=error.detail
                )

    def _look(self) -> None:
        """Begins what there is to be done."""
        if self._view is None or self._stopping:
            return
        for name in [name for name in self._terms if self._log.topic_logs.get(name) is None and name not in self._work]:
            del self._terms[name]  # it was deleted
        for name in {*self._view.topics, *(topic.name for topic in self._log.topics())}:
            if self._step(name) is not None:
                if name in self._work:
                    self.look_again(name)
                else:
                    self._woken[name] = asyncio.Event()
                    self._work[name] = asyncio.create_task(self._attend(name))

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        self._changed()

    def _entry(self, name: str) -> TopicEntry | None:
        return None if self._view is None else self._view.topics.get(name)

    def _mine(self, entry: TopicEntry) -> bool:
        return entry.entitled(self._journal) is not None

    def _step(self, name: str) -> Step | None:
        """What is to be done for a topic now."""
        topic, entry = self._log.topic_logs.get(name), self._entry(name)
        if topic is None:
            if entry is None or not self._mine(entry) or self._log.draining:
                return None
            # It was handed over, and who is to have it next has still to claim it.
            handed = name in self._gone and entry.to is not None and entry.to.journal != self._journal
            return None if handed else "take"
        if topic.availability.lasting:
            return "let_go"
        if topic.state == "releasing":
            return "settle"
        if entry is None or entry.topic_id != topic.topic_id or not topic.may_flush:
            return None
        right = entry.entitled(self._journal)
        # Under another term, as its journal is another, or a hand-over to it was given up after it had seen of it, and
        # begun again: it is released, and claimed anew.
        if right is None or right.term != self._terms.get(name):
            return "hand_over"
        if entry.to is not None and entry.to.journal != self._journal and self._kept.get(name) != entry.to.term:
            return "hand_over"
        return "ship" if _ships(name, topic.config) and not topic.is_shipped else None

    async def _attend(self, name: str) -> None:
        steps = {
            "take": self._take,
            "ship": self._ship,
            "hand_over": self._hand_over,
            "settle": self._settle,
            "let_go": self._let_go,
        }
        while not self._stopping and (step := self._step(name)) is not None:
            try:
                pause = await steps[step](name)
            except SiltlogError as error:
                self._logger.warning(
                    "what is to become of a topic will be tried again", topic=name, reason=error.detail
                )
                pause = RETRY_SECONDS
            except Exception:
                self._logger.exception("what is to become of a topic failed", topic=name)
                pause = RETRY_SECONDS
            self._tell()
            await self._pause(name, pause)
        # A view that gave it to another may have come while its table was looked at.
        self._waiting.forget(name)
        self._tell()
        del self._work[name], self._woken[name]

    async def _pause(self, name: str, seconds: float) -> None:
        woken = self._woken[name]
        if seconds and not self._stopping:
            waiting = asyncio.ensure_future(woken.wait())
            await asyncio.wait([waiting], timeout=seconds)
            waiting.cancel()
        woken.clear()

    async def _take(self, name: str) -> float:
        async with self._claiming.of(name):
            entry = self._entry(name)
            if entry is None or self._step(name) != "take":
                return 0.0
            # Of one that waits, which is looked at again and again, they would be read as often.
            lost = [] if self.waits(name) else [one.journal for one in entry.chain if one.lost]
            with self._taking.ending(lost):
                return await self._claim_or_wait(name, entry)

    async def _claim_or_wait(self, name: str, entry: TopicEntry) -> float:
        table = await self._waiting.table(name, entry.topic_id)
        if table is None:
            # Who deleted it may have died before a view heard of that.
            self._is_missing(name, entry.topic_id)
            return RETRY_SECONDS
        former = self._taking.former.state(table.topic_id)
        own_epochs = () if former is None else former.epochs
        decision = decide(Facts.of(table.snapshot), entry, self._journal, own_epochs)
        if isinstance(decision, Waits):
            # The view may be a newer one by now.
            now = self._entry(name)
            return self._waiting.wait(name, decision, handed=now is not None and now.to is not None)
        shipped = frozenset(at for at, rule in decision.rules.items() if rule is Rule.SHIPPED)
        ships = _ships(name, TopicConfig(table.snapshot.config.own, self._log.server_config))
        self._waiting.drop_table(name)
        leave = Leave(take_over=Rule.ABANDONED in decision.rules.values(), shipped=shipped)
        topic = await self._taking.take(table, leave, term=decision.term, ships=ships)
        self._terms[name] = decision.term
        self._waiting.forget(name)
        self._gone.discard(name)
        rules = sorted({rule.value for rule in decision.rules.values()})
        self.taken[max(decision.rules.values(), key=WEIGHT.index).value] += 1
        self._logger.info("topic taken", topic=name, term=decision.term, rules=rules, ships=topic.ships)
        return 0.0

    async def _ship(self, name: str) -> float:
        shipped = await self._releases.ship(self._log.topic(name))
        return 0.0 if shipped else RETRY_SECONDS

    async def _hand_over(self, name: str) -> float:
        entry = self._entry(name)
        topic = self._log.topic_logs.get(name)
        if entry is None or topic is None:
            return 0.0
        planned = self._mine(entry) and entry.to is not None
        if planned and (left := self._held_up.left_seconds(name)):
            return left
        handed = await self._releases.hand_over(topic, HOLD_SECONDS_MAX)
        if handed != "kept":
            self._held_up.succeeded(name)
            return 0.0
        if planned and entry.to is not None:
            # The controller hears that it stays, and tries again: each time publishes have waited for nothing.
            self._held_up.failed(name)
            self._kept[name] = entry.to.term
        return RETRY_SECONDS

    async def _settle(self, name: str) -> float:
        handed = await self._releases.settle(self._log.topic(name))
        return SETTLE_SECONDS if handed == "unknown" else 0.0

    async def _let_go(self, name: str) -> float:
        """Another has the topic, or may have it."""
        topic = self._log.topic_logs.get(name)
        if topic is None:
            return 0.0
        released = topic.state == "released"
        if topic.state == "deleted":
            self._log.topic_logs.remove(topic)
        else:
            self.let_go["released" if released else "lost"] += 1
            # What it noted of itself is there before anything of it is forgotten.
            await self._log.group_commit.commit()
            self._taking.former.let_go(topic)
        self._terms.pop(name, None)
        self._kept.pop(name, None)
        for partition in topic.partitions:
            partition.notify()
        if released:
            self._gone.add(name)
            entry = self._entry(name)
            self._was_released(name, None if entry is None else entry.to or entry.owner)
        self._logger.info("topic let go", topic=name, released=released)
        return 0.0


def _ships(name: str, config: TopicConfig) -> bool:
    """Whether a topic's level leaves it to the cluster where its acknowledged records are: `wal` or `written` that
    somebody chose is this node's disk. Of the system's topics nobody has."""
    entry = config.entry("acks")
    return names.is_system_topic(name) or entry.value not in LOCAL_LEVELS or entry.source == "default"
