"""A seeded world of nodes that beat, look and plan over a store that fails, on clocks that are askew and stand still.

The topics are a model: of each the term that its table names, whether that was released, and which were ever claimed.
`check` holds every view that was ever written to what views promise.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from failing_store import FailingStore, SeenStore, SkewedClock, VirtualClock, Weather
from one_thread import one_thread

from siltlog.infra import names
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import Report, TopicReport, Wish
from siltlog.infra.cluster.identity import Identity, Timing
from siltlog.infra.cluster.member import Member
from siltlog.infra.cluster.steps import Call
from siltlog.infra.cluster.survey import Found
from siltlog.infra.cluster.view import ClusterView, TopicEntry, decode_view
from siltlog.infra.errors import ConfigError, SiltlogError

TIMING = Timing(lease_ms=5_000, heartbeat_ms=1_500)
CALL_SECONDS = (0.005, 0.08)
SLOW_CALL_SECONDS = 1.2
SECRET = b"s" * 32
FORMATS = 9
"""Views of any release are looked at here."""
LOOK_SECONDS = 0.25
"""How often it is looked whether a process that stands still goes on."""


@dataclass
class Table:
    """What the table of a topic says of its owner."""

    topic_id: str = ""
    shipped: bool = True
    """Whether another may go on from it: without, only the data directory that has the rest."""
    term: int = 0
    data_dir: str = ""
    released: int = 0
    """The term that was handed back last."""
    claimed: list[int] = field(default_factory=list)


class SimulatedNode:
    """One process after another under one name and on one data directory."""

    def __init__(self, world: "MembersWorld", name: str, data_dir: str, place: str = "") -> None:
        self.world = world
        self.name = name
        self.data_dir = data_dir
        self.place = place or f"place of {data_dir}"
        self.store: SeenStore = world.objects.of(name)
        self.clock = SkewedClock(world.clock, world.chance.uniform(-9, 9), world.chance.uniform(0.93, 1.07))
        self.start_number = 0
        self.paused_until = 0.0
        self.alive = False
        self.refused = ""
        self.ready = True
        self.unlanded_ms = 0
        self.breaks = False
        """Whether its planner raises."""
        self.slow = False
        self.silent: set[str] = set()
        """Topics that it neither claims nor lets go nor speaks of."""
        self.forgotten: set[str] = set()
        """Topics that it has claimed and does not have: its take of them failed afterwards."""
        self.unreachable: tuple[str, ...] = ()
        """Nodes that it cannot reach."""
        self.grips = False
        """Whether it lets no topic go that it has."""
        self.keeps = 0
        """So many hand-overs come to nothing, as its topics wait too long for their flush."""
        self._kept: dict[str, int] = {}
        self.shut = False
        """Whether connections to it are refused though it lives, as by a proxy."""
        self.secret = SECRET
        self.redisless = False
        """Whether its Redis does not answer."""
        self.formats = 1
        """What its release reads and writes."""
        self.member: Member | None = None
        self.tables_call: Call | None = None
        """The last that looked at tables."""

    def start(self) -> None:
        self.start_number += 1
        self.alive, self.refused = True, ""
        identity = Identity(
            "c", self.name, self.data_dir, self.place, f"http://{self.name}", "", "1", formats=self.formats
        )
        ids = (f"{self.name}/{self.start_number}/{number}" for number in itertools.count())
        topics = {} if self.world.views else {name: self.world.topic_id(name) for name in self.world.tables}
        self.member = Member(
            identity,
            TIMING,
            self.clock,
            self._report,
            lambda: next(ids),
            self._tables,
            Addresses(self.secret, "c"),
            refused=self._refused,
            found=Found(topics, self.world.first_term),
        )
        self.world.begin(self, "arrive", 0.0)

    def kill(self) -> None:
        self.alive = False

    def pause(self, seconds: float) -> None:
        self.paused_until = self.world.clock.monotonic() + seconds

    def _refused(self) -> list[str]:
        """Journals of members that would refuse it a connection, also of those at which it would not knock."""
        assert self.member is not None
        if self.breaks and self.member.controls:
            raise ZeroDivisionError
        members = self.member.view.members()
        return [entry.journal for name, entry in members if name != self.name and self.world.refuses(name)]

    def _tables(self, known: Collection[str], again: Collection[str]) -> Call:
        def call(store: object) -> dict[str, str]:
            there = {
                name: self.world.topic_id(name) for name in self.world.tables if name not in known or name in again
            }
            return {**dict.fromkeys(again, ""), **there}

        self.tables_call = call
        return call

    def _report(self) -> Report:
        assert self.member is not None
        found = {}
        for name, topic in self.member.view.topics.items():
            if name not in self.silent and (report := self._own(name, topic)) is not None:
                found[name] = report
        return Report(
            ready=self.ready,
            unlanded_ms=self.unlanded_ms,
            unreachable=self.unreachable,
            redisless=self.redisless,
            topics=found,
        )

    def _own(self, name: str, topic: TopicEntry) -> TopicReport | None:
        """Claims and hands over as far as the rules of ownership let it; what there is to report."""
        assert self.member is not None
        table, journal = self.world.tables.get(name), self.member.journal
        if table is None or topic.topic_id != self.world.topic_id(name):
            return None  # one of the same name was made since
        mine = topic.entitled(journal)
        holds = next((term for term in topic.terms if term.term == table.term and term.journal == journal), None)
        if holds is not None and holds != mine and table.released != table.term and name not in self.forgotten:
            table.released = table.term
            return None
        if mine is None:
            return None
        if topic.to is not None and topic.to != mine:
            if table.term != mine.term:
                return None
            if self.keeps and self._kept.get(name) != topic.to.term:
                self.keeps -= 1
                self._kept[name] = topic.to.term
            if not self.grips and self._kept.get(name) != topic.to.term:
                table.released = table.term
            return TopicReport(term=mine.term, state="settled", kept=self._kept.get(name, 0))
        if table.term == mine.term == table.released:
            return TopicReport(term=mine.term, state="waiting", floor=table.term)
        if table.term != mine.term:
            between = [term for term in topic.terms if table.released < term.term <= table.term]
            free = table.released == table.term
            explained = any(term.term == table.term for term in between)
            if table.term >= mine.term:
                return TopicReport(term=mine.term, state="waiting", awaited=table.term, floor=table.term)
            if not (
                free
                or (table.shipped and explained and all(term.lost for term in between))
                or table.data_dir == self.data_dir
            ):
                awaited = 0 if table.shipped else table.term
                held = sum(term.term for term in between if term.term == table.term and not term.lost)
                return TopicReport(term=mine.term, state="waiting", awaited=0 if held else awaited, held=held)
            self.forgotten.discard(name)
            table.term, table.data_dir = mine.term, self.data_dir
            table.claimed.append(mine.term)
        return TopicReport(term=mine.term, state="settled")


class MembersWorld:
    def __init__(self, seed: int, nodes: int = 3, topics: int = 4, weather: Weather | None = None) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock()
        self.objects = FailingStore(self.chance, self.clock, weather)
        self.tables = {name: self.new_table(name) for name in (f"t{number}" for number in range(topics))}
        self.views: dict[int, ClusterView] = {}
        """Every view that counted when it was written."""
        self.nodes: dict[str, SimulatedNode] = {}
        self.first_term = 0
        """The highest term of the tables that were there before there was a view."""
        self.survey_seconds = 0.0
        """How much longer than other calls a look at tables takes, after it has seen them."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._seen: dict[tuple[str, int], ClusterView] = {}
        for number in range(nodes):
            self.add(f"n{number}")

    def add(self, name: str, data_dir: str = "") -> SimulatedNode:
        node = self.nodes[name] = self.new_node(name, data_dir or f"data of {name}")
        node.start()
        return node

    def refuses(self, name: str) -> bool:
        """Whether nobody listens at a node's address, or something refuses in its place."""
        return self.nodes[name].shut or not self.nodes[name].alive

    def new_node(self, name: str, data_dir: str) -> SimulatedNode:
        return SimulatedNode(self, name, data_dir)

    def new_table(self, name: str) -> Table:
        return Table()

    def topic_id(self, name: str) -> str:
        return self.tables[name].topic_id or f"id of {name}"

    def later_table(self, name: str) -> Table:
        return Table(shipped=self.chance.random() < 0.5)

    # Time.

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.monotonic() + seconds, next(self._count), do))

    def run(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        with one_thread():
            while self._events and self._events[0][0] <= until:
                when, _, do = heapq.heappop(self._events)
                self.clock.advance(max(0.0, when - self.clock.monotonic()))
                do()
                self._look_at_views()
        self.clock.advance(until - self.clock.monotonic())

    def begin(self, node: SimulatedNode, kind: str, seconds: float) -> None:
        member = node.member

        def turn() -> None:
            assert member is not None
            self._step(node, member, kind, getattr(member, kind)(), None, None)

        self.at(seconds, lambda: self._awake(node, member, turn))

    def _awake(self, node: SimulatedNode, member: Member | None, do: Callable[[], None]) -> None:
        """Goes on once the process does; never, where that process is no more."""
        if not node.alive or node.member is not member:
            return
        left = node.paused_until - self.clock.monotonic()
        if left > 0:
            self.at(min(left, LOOK_SECONDS), lambda: self._awake(node, member, do))
        else:
            do()

    def _step(self, node: SimulatedNode, member: Member, kind: str, turn: Any, answer: Any, error: Any) -> None:
        try:
            call = turn.throw(error) if error is not None else turn.send(answer)
        except StopIteration as ended:
            self._ended(node, kind, ended.value)
            return
        except ConfigError as refusal:
            node.alive, node.refused = False, str(refusal)
            return
        except (SiltlogError, ZeroDivisionError):
            self._ended(node, kind, None)
            return
        self.at(
            self._latency(node) / 2, lambda: self._awake(node, member, lambda: self._do(node, member, kind, turn, call))
        )

    def _do(self, node: SimulatedNode, member: Member, kind: str, turn: Any, call: Call) -> None:
        answer = error = None
        try:
            answer = call(node.store)
        except Exception as raised:
            error = raised
        self._look_at_views()
        going_on = lambda: self._step(node, member, kind, turn, answer, error)  # noqa: E731
        latency = self._latency(node) / 2 + self.survey_seconds * (call is node.tables_call)
        self.at(latency, lambda: self._awake(node, member, going_on))

    def _latency(self, node: SimulatedNode) -> float:
        return SLOW_CALL_SECONDS if node.slow else self.chance.uniform(*CALL_SECONDS)

    def _ended(self, node: SimulatedNode, kind: str, result: Any) -> None:
        if kind == "arrive" and result:
            self.begin(node, "beat", 0.0)
            self.begin(node, "look", 0.1)
            self.begin(node, "survey", 0.2)
        else:
            self.begin(node, kind, TIMING.heartbeat_s if kind == "beat" else TIMING.look_s)

    # What holds always.

    def newest(self) -> ClusterView:
        return self.views[max(self.views)]

    def _look_at_views(self) -> None:
        number = max(self.views, default=0) + 1
        while (found := self.objects.objects.get(names.view_object(number))) is not None:
            view = self.views[number] = decode_view(found[0], number, FORMATS)
            self._check_view(self.views.get(number - 1), view)
            number += 1
        for node in self.nodes.values():
            member = node.member
            if member is None or not node.alive:
                continue
            start, number = (node.name, node.start_number), member.view.number
            if (before := self._seen.get(start)) is member.view:
                continue
            if number:
                assert member.view == self.views[number], f"{node.name} has another view {number} than counts"
            assert before is None or number >= before.number, f"{node.name} went back to view {number}"
            self._seen[start] = member.view

    def _check_view(self, before: ClusterView | None, view: ClusterView) -> None:
        if before is None:
            assert view.number == 1, f"view {view.number} follows none"
            return
        given = {term.term for topic in before.topics.values() for term in topic.terms}
        for name, topic in view.topics.items():
            old = before.topics.get(name)
            assert old is not None or {t.term for t in topic.terms}.isdisjoint(given)
            terms = {term.term: term for term in topic.terms}
            assert len(terms) == len(topic.terms), f"{name} has a term twice"
            former = {term.term: term for term in old.terms} if old and old.topic_id == topic.topic_id else {}
            assert all(term > before.term for term in terms.keys() - former.keys()), f"{name}: a term was given before"
            for number, term in former.items():
                if number in terms:
                    assert terms[number].journal == term.journal and terms[number].lost >= term.lost
                else:
                    above = [each for each in self.tables[name].claimed if each in terms and each > number]
                    assert above, f"{name}: term {number} left the chain, and none above it was claimed"
        lost = {node.journal for node in before.nodes.values() if node.state == "away"}
        members = {entry.journal for _, entry in view.members()}
        assert not lost & members, f"journals that were lost came back: {lost & members}"
        assert not set(before.removed.values()) & members, "who was removed came back"

    def buried_alive(self) -> list[str]:
        """Nodes that a view took for gone while they ran; they have come back with another journal."""
        return [
            entry.journal
            for number, view in self.views.items()
            for node, entry in view.nodes.items()
            if entry.state == "away" and entry.journal == self._journal_at_start(node)
        ]

    def _journal_at_start(self, node: str) -> str:
        there = self.nodes[node]
        return f"{node}/{there.start_number}/0" if there.alive else ""

    def settled_problems(self) -> list[str]:
        """What is not as it must be once all is calm."""
        view, problems = self.newest(), []
        up = {name for name, node in self.nodes.items() if node.alive}
        for name in sorted(up):
            member = self.nodes[name].member
            assert member is not None
            if member.view != view or not member.in_view:
                problems.append(f"{name} is at view {member.view.number} of {view.number}, listed: {member.in_view}")
        problems += [f"{name} is {node.state}" for name, node in view.members() if name not in up]
        if view.controller not in up:
            problems.append(f"{view.controller} rules and is gone")
        for name, table in self.tables.items():
            topic = view.topics.get(name)
            if topic is None:
                problems.append(f"{name} is in no view")
            elif not table.shipped and table.data_dir not in {self.nodes[node].data_dir for node in up}:
                continue
            elif topic.owner.term != table.term or table.released == table.term or topic.owner.node not in up:
                problems.append(f"{name} belongs to {topic.owner} and the table says {table}")
            elif topic.to is not None or any(term.term < table.term for term in topic.chain):
                # A higher term that was given up stays until a still higher one is settled.
                problems.append(f"{name} has not come to rest: {topic}")
        return problems

    def wish(self, asked: str, kind: Any, **what: str) -> str:
        member = self.nodes[asked].member
        assert member is not None
        wish = Wish(id=f"w{next(self._count)}", kind=kind, **what)
        member.wish(wish)
        return wish.id

    def chaos(self, seconds: float) -> None:
        """All that may happen to nodes and to the store, for so long; calm afterwards."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.run(self.chance.uniform(0.2, 6))
            self._mishap()
        self.objects.weather = Weather()
        self.objects.land(everything=True)
        for node in self.nodes.values():
            self.objects.mend(node.name)
            node.slow = node.breaks = node.shut = False
            node.ready, node.paused_until = True, 0.0
            if not node.alive and (not node.refused or self.chance.random() < 0.5):
                node.start()

    def _mishap(self) -> None:
        node = self.chance.choice(list(self.nodes.values()))
        what = self.chance.randrange(11)
        if what == 0 and node.alive:
            node.kill()
        elif what in (0, 1) and not node.alive:
            node.start()
        elif what == 2:
            node.pause(self.chance.choice((1, 4, 8, 60)))
        elif what == 3:
            self.chance.choice((self.objects.cut, self.objects.mute))(node.name)
            self.at(self.chance.uniform(1, 12), lambda: self.objects.mend(node.name))
        elif what == 4:
            self.objects.slow_down(self.chance.uniform(0.5, 20))
        elif what == 5:
            node.breaks = not node.breaks
        elif what == 6:
            node.slow = not node.slow
        elif what == 7:
            node.ready = not node.ready
        elif what == 8 and node.alive:
            other = self.chance.choice(list(self.nodes))
            kind = self.chance.choice(("move", "drain", "balance", "remove"))
            self.wish(node.name, kind, node=other, topic=self.chance.choice(list(self.tables)))
        elif what == 9:
            node.shut = not node.shut
        elif what == 10:
            name = f"u{len(self.tables)}"
            self.tables[name] = self.later_table(name)
