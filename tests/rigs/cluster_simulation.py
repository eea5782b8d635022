"""A whole cluster by a seed: members, views, ownership, hand-over, journals, recovery and clients, together.

Nodes beat, look and plan by the product's `Member`, and what they do with topics is in `cluster_process`; the store
fails, clocks are askew and stand still, processes die between any two of their requests. In the end the history of what
clients were told must be one that a single log can have told.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from cluster_process import Held, Process
from failing_store import Weather
from history import Ack, Read, Row, complaints
from members_simulation import MembersWorld, SimulatedNode, Table
from small_table import SmallTable, Steps, Unknown

from siltlog.infra.cluster.beat import Report
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.journal.codec import path_of

KINDS = ("object", "object", "wal", "table")
CHAOS_SECONDS = 45.0
CALM_SECONDS = 15.0
REST_SECONDS_MAX = 240.0
TIMEOUT_SECONDS = 4.0
READ_ROWS = 8


@dataclass
class Disk:
    """What a data directory keeps."""

    epochs: dict[str, set[int]] = field(default_factory=dict)
    records: dict[str, dict[int, str]] = field(default_factory=dict)
    """Acknowledged from this WAL alone, by topic and offset."""


@dataclass
class SeenTable(Table):
    """What the log of a table says, as nobody in the world sees it: at once."""

    kind: str = "object"
    log: SmallTable = field(default_factory=lambda: SmallTable(""))


class ClusterNode(SimulatedNode):
    world: "ClusterWorld"

    def __init__(self, world: "ClusterWorld", name: str, data_dir: str, place: str = "") -> None:
        super().__init__(world, name, data_dir, place)
        self.disk = Disk()
        self.process: Process | None = None
        self._followed: tuple[object, str] = (None, "")

    def start(self) -> None:
        super().start()
        assert self.member is not None
        self.process = Process(self, self.member.journal, self.world.chance)
        self.spawn(self.process.write(self.process.journal))

    def kill(self) -> None:
        if self.alive and self.process is not None:
            held = self.process.held.values()
            self.world.saw("a successor died unsettled", any(not one.settled for one in held))
            self.world.saw("an owner died with objects under way", bool(self.process.journal.flying))
            self.world.saw("an owner died before its release was answered", any(one.open_release for one in held))
        super().kill()

    def spawn(self, turn: Steps[None]) -> None:
        self.world.take_steps(self, turn)

    def follow(self) -> None:
        """Goes by the view that its member has seen, if that is another."""
        assert self.member is not None and self.process is not None
        now = self.member.view, self.member.journal
        if self.alive and (now[0] is not self._followed[0] or now[1] != self._followed[1]):
            self._followed = now
            self.process.follow()

    def _report(self) -> Report:
        assert self.process is not None
        return Report(ready=self.ready, unreachable=self.unreachable, topics=self.process.report())


class ClusterWorld(MembersWorld):
    nodes: dict[str, ClusterNode]
    tables: dict[str, SeenTable]

    def __init__(self, seed: int, nodes: int = 3, topics: int = 3) -> None:
        chance = random.Random(seed + 1)
        weather = Weather(
            lost=chance.choice((0, 0.03, 0.08)),
            late=chance.choice((0, 0.03, 0.08)),
            doubled=chance.choice((0, 0.05)),
            slow_down=chance.choice((0, 0.03)),
            late_seconds=chance.choice((2.0, 20.0)),
            page=chance.choice((5, 1000)),
            sorts=chance.random() < 0.5,
        )
        self.counts: Counter[str] = Counter()
        self.acks: list[Ack] = []
        self.reads: list[Read] = []
        self.acknowledged: set[str] = set()
        self._ends: dict[str, int] = {}
        self._sealing: defaultdict[str, list[Process]] = defaultdict(list)
        self._deleted: set[str] = set()
        self._publishing = True
        super().__init__(seed, nodes, topics, weather)
        for name in [*self.tables]:
            self._use(name)

    def new_node(self, name: str, data_dir: str) -> ClusterNode:
        return ClusterNode(self, name, data_dir)

    def new_table(self, name: str) -> SeenTable:
        kind = self.chance.choice(KINDS)
        return SeenTable(shipped=kind != "wal", kind=kind, log=SmallTable(name))

    def later_table(self, name: str) -> SeenTable:
        self.at(0.5, lambda: self._use(name))
        return self.new_table(name)

    def _use(self, name: str) -> None:
        for number in range(2):
            Client(self, f"{name}.{number}", name).next()
        self.at(1.0, self._reader(name))

    def kind(self, name: str) -> str:
        return self.tables[name].kind

    # What a mutant does otherwise.

    def same(self, decided_on: tuple[int, ...], now: tuple[int, ...]) -> bool:
        return decided_on == now

    def owned(self, held: Held, now: SmallTable) -> bool:
        return now.epoch == held.epoch

    def release_landed(self, held: Held) -> Steps[bool]:
        try:
            landed = yield from held.table.outcome(held.open_release)
        except Unknown:
            raise
        return landed and held.table.released == held.epoch

    def put_roughly(self, store: ObjectStore, path: str, content: bytes) -> Put:
        """What decides who owns a topic is sent through worse weather than the rest."""
        weather = self.objects.weather
        if weather != Weather() and self.chance.random() < 0.3:
            self.objects.weather = replace(weather, lost=0.3, late=0.5)
        try:
            return store.put_if_absent(path, content)
        finally:
            self.objects.weather = weather

    def take_fails(self) -> bool:
        """Whether a take fails once its claim has landed."""
        return self.objects.weather != Weather() and self.chance.random() < 0.05

    # Steps of processes.

    def take_steps(self, node: ClusterNode, turn: Generator[Any, Any, None]) -> None:
        member = node.member

        def step(answer: Any, error: Exception | None) -> None:
            try:
                call = turn.throw(error) if error is not None else turn.send(answer)
            except StopIteration:
                return
            if isinstance(call, int | float):
                later(call, lambda: step(None, None))
            else:
                later(self._latency(node) / 2, lambda: done(call))

        def done(call: Callable[[Any], Any]) -> None:
            answer = error = None
            try:
                answer = call(node.store)
            except (SiltlogError, FileNotFoundError) as raised:
                error = raised
            later(self._latency(node) / 2, lambda: step(answer, error))

        def later(seconds: float, do: Callable[[], None]) -> None:
            self.at(seconds, lambda: self._awake(node, member, do))

        later(0.0, lambda: step(None, None))

    def _look_at_views(self) -> None:
        for name, table in self.tables.items():
            while (found := self.objects.objects.get(table.log.path(table.log.version + 1))) is not None:
                before = table.log.epoch
                table.log.apply(found[0])
                table.term = table.log.epoch >> 32
                table.released = table.term if table.log.released == table.log.epoch else 0
                if table.log.epoch != before:
                    self._claimed(name, table)
        super()._look_at_views()
        for node in self.nodes.values():
            if node.process is not None:
                node.follow()

    def _claimed(self, name: str, table: SeenTable) -> None:
        entry = self.newest().topics[name].term(table.term)
        assert entry is not None, f"{name} was claimed under term {table.term}, which the newest view does not explain"
        assert all(former < table.term for former in table.claimed), f"{name} was claimed under {table.term} anew"
        table.data_dir = entry.data_dir
        table.claimed.append(table.term)

    # What happens, and how often.

    def saw(self, what: str, when: bool = True) -> None:
        if when:
            self.counts[what] += 1

    def seals(self, journal: str, process: Process) -> None:
        members = {entry.journal for _, entry in self.newest().members()}
        assert journal not in members, f"{journal} is sealed, and its node is a member"
        self.saw("two successors sealed one journal at once", bool(self._sealing[journal]))
        self._sealing[journal].append(process)
        self.saw("a journal was sealed that is written on", self._goes_on(journal))
        self.fails(process.journal.name, 0.3)

    def seals_no_more(self, journal: str, process: Process) -> None:
        self._sealing[journal].remove(process)

    def sealed(self, journal: str, end: int) -> None:
        assert self._ends.setdefault(journal, end) == end, f"two ends of {journal} were found"
        self.saw("objects stood above the seal of their journal", path_of(journal, end + 1) in self.objects.objects)

    def trimmed(self, journal: str, number: int) -> None:
        self._deleted.add(path_of(journal, number))
        self.saw("a journal was trimmed while a successor ended or read it", bool(self._sealing[journal]))

    def _goes_on(self, journal: str) -> bool:
        owners = (node for node in self.nodes.values() if node.alive and node.process is not None)
        return any(node.process.journal.name == journal for node in owners if node.process)

    def took(self, held: Held, recovers: bool) -> None:
        """A node that has just taken what others left is the next to fail, more often than not."""
        given = self.newest().topics[held.name].term(held.term)
        assert given is None or given.journal == held.journal.name, f"{held.name} was given to {given}"
        self.saw("a topic was taken")
        if recovers:
            self.saw("a topic was taken whose owner was lost")
            self.fails(held.journal.name, 0.6)
            for node in self.nodes.values():
                if node.paused_until > self.clock.monotonic() and self.chance.random() < 0.5:
                    node.pause(self.chance.uniform(0, 0.5))

    def fails(self, journal: str, likely: float) -> None:
        if self.objects.weather != Weather() and self.chance.random() < likely:
            node = next(
                (one for one in self.nodes.values() if one.process is not None and one.process.journal.name == journal),
                None,
            )
            seconds = self.chance.choice((1, 7, 20))
            if node is not None and self.chance.random() < 0.5:
                self.at(self.chance.uniform(0, 1), node.kill)
            elif node is not None:
                self.at(self.chance.uniform(0, 1), lambda: node.pause(seconds))

    def _mishap(self) -> None:
        if self.chance.random() < 0.5:
            super()._mishap()
            return
        owners = [node for node in self.nodes.values() if node.alive and node.process and node.process.held]
        if not owners:
            return
        node = self.chance.choice(owners)
        assert node.process is not None
        fate = self.chance.randrange(5)
        if fate < 2:
            self.fails(node.process.journal.name, 1)
        elif fate == 2:
            self.objects.cut(node.name)
            self.at(self.chance.uniform(4, 12), lambda: self.objects.mend(node.name))
        else:
            other = self.chance.choice([*self.nodes])
            self.wish(node.name, "move", node=other, topic=self.chance.choice([*node.process.held]))

    # Clients.

    @property
    def publishing(self) -> bool:
        return self._publishing

    def holders(self, name: str) -> list[ClusterNode]:
        return [
            node for node in self.nodes.values() if node.alive and node.process is not None and node.process.read(name)
        ]

    def _reader(self, name: str) -> Callable[[], None]:
        """One read after the other; one that is not answered in time is forgotten."""

        def read() -> None:
            began = self.clock.monotonic()
            if holders := self.holders(name):
                node = self.chance.choice(holders)
                self._awake(node, node.member, lambda: self._read(node, name, began))
            if self._publishing:
                self.at(self.chance.uniform(0.2, 1), read)

        return read

    def _read(self, node: ClusterNode, name: str, began: float) -> None:
        held = node.process.read(name) if node.process is not None else None
        if held is None or self.clock.monotonic() > began:
            return
        first = max(0, held.shown - READ_ROWS)
        rows = tuple((at, held.values[at]) for at in range(first, held.shown))
        start = f"{node.name}/{node.start_number}"
        self.reads.append(Read("reader", self._number(name), first, held.shown, held.shown, rows, began, began, start))

    def _number(self, name: str) -> int:
        return [*self.tables].index(name)

    def acked(self, client: str, value: str, name: str, offset: int, began: float) -> None:
        self.acknowledged.add(value)
        self.acks.append(Ack(client, value, self._number(name), offset, began, self.clock.monotonic()))

    # All of it.

    def simulate(self) -> None:
        self.chaos(CHAOS_SECONDS)
        self.run(CALM_SECONDS)
        self._publishing = False
        for node in self.nodes.values():
            if not node.alive:
                node.start()
        until = self.clock.monotonic() + REST_SECONDS_MAX
        while (problems := self.unrest()) and self.clock.monotonic() < until:
            self.run(4)
        assert not problems, problems
        rows = [
            Row(self._number(name), at, value)
            for name, table in self.tables.items()
            for at, value in enumerate(table.log.rows)
        ]
        copies = self._deleted & self.objects.objects.keys()
        self.saw("a copy of a journal's PUT came after its number had been deleted", bool(copies))
        wrong = complaints(self.acks, self.reads, rows, exactly_once=self.acknowledged, fresh=False)
        assert not wrong, wrong

    def unrest(self) -> list[str]:
        problems = self.settled_problems()
        for node in self.nodes.values():
            held = node.process.held.values() if node.alive and node.process is not None else ()
            problems += [
                f"{node.name} has not flushed all of {one.name}" for one in held if one.in_table < one.next_offset
            ]
        return problems


class Client:
    """Sends one record after another, each until it is acknowledged, to whoever says that it owns the topic."""

    def __init__(self, world: ClusterWorld, name: str, topic: str) -> None:
        self._world = world
        self._name = name
        self._topic = topic
        self._sent = 0
        self._began = 0.0
        self._attempt = 0

    def next(self) -> None:
        if not self._world.publishing:
            return
        self._sent += 1
        self._began = self._world.clock.monotonic()
        self._try()

    def _try(self) -> None:
        world = self._world
        self._attempt += 1
        attempt, value, began = self._attempt, f"{self._name}:{self._sent}", self._began

        def answered(offset: int | None) -> None:
            world.at(world.chance.uniform(0.001, 0.02), lambda: came(offset))

        def came(offset: int | None) -> None:
            if offset is not None:
                world.acked(self._name, value, self._topic, offset, began)
            if attempt == self._attempt:
                self._attempt += 1
                wait = world.chance.uniform(0.05, 0.6)
                world.at(wait, self._again if offset is None else self.next)

        def timed_out() -> None:
            if attempt == self._attempt:
                self._again()

        if not (holders := world.holders(self._topic)):
            self._attempt += 1
            world.at(0.5, self._again)
            return
        node = world.chance.choice(holders)
        process = node.process
        assert process is not None
        sent = lambda: process.publish(self._topic, value, answered)  # noqa: E731
        world.at(world.chance.uniform(0.001, 0.02), lambda: world._awake(node, process.node.member, sent))
        world.at(TIMEOUT_SECONDS, timed_out)

    def _again(self) -> None:
        if self._world.publishing:
            self._try()
