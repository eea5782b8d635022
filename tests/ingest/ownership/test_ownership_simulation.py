"""Many nodes and one table over a store that loses, delays and doubles what is sent, by a seed: who may claim when, and
what an owner may do while nobody knows whether its release landed.

The nodes decide by `rules.py`; their commits are those of a table, in the small. Whatever happens, an acknowledged
record is in the table once, where it was said to be.
"""

import random
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from chaos import seeds
from failing_store import FailingStore, SeenStore, VirtualClock, Weather

from siltlog.infra.cluster.view import TermEntry, TopicEntry
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import Put
from siltlog.ingest.ownership import rules
from siltlog.ingest.ownership.rules import Facts, MayClaim, Rule, Waits, decide

NODES = ("a", "b", "c")
STEPS = 300
Rows = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class State:
    """A table at one version."""

    version: int = -1
    epoch: int = 0
    released: int = -1
    shipped: int = 0
    rows: Rows = ()
    ids: tuple[str, ...] = ()

    @property
    def offset(self) -> int:
        return len(self.rows)

    def facts(self) -> Facts:
        return Facts({0: self.epoch}, {0: self.released}, {0: self.shipped})


class Lost(Exception):
    """Somebody else has the table, or it is not as it was."""


class Unknown(Exception):
    """Whether the commit landed cannot be told."""


class Table:
    """Shows it as one process sees it."""

    def __init__(self, store: SeenStore) -> None:
        self._store = store
        self.state = State()

    def refresh(self) -> State:
        while True:
            try:
                entry = msgspec.json.decode(self._store.get(self._path(self.state.version + 1)))
            except FileNotFoundError:
                return self.state
            rows = (*self.state.rows, *(tuple(row) for row in entry.pop("add")))
            ids = (*self.state.ids, entry.pop("id"))
            self.state = replace(self.state, version=self.state.version + 1, rows=rows, ids=ids, **entry)

    def commit(self, commit_id: str, change: Callable[[State], Mapping[str, Any]]) -> State:
        """Raises Lost, Unknown; SiltlogError where nothing was sent."""
        while True:
            version = self.refresh().version
            entry = {"add": [], **change(self.state), "id": commit_id}
            answer = self._store.put_if_absent(self._path(version + 1), msgspec.json.encode(entry))
            try:
                if commit_id in self.refresh().ids:
                    return self.state
            except SiltlogError:
                raise Unknown from None
            if answer is Put.UNKNOWN and self.state.version == version:
                raise Unknown

    def outcome(self, commit_id: str) -> bool:
        """Whether it landed; one that did not is shut out. Raises SiltlogError, Unknown while that cannot be told."""
        if commit_id in self.refresh().ids:
            return True
        self.commit(f"after {commit_id}", lambda state: {})
        return commit_id in self.state.ids

    def _path(self, version: int) -> str:
        return f"log/{version:020d}"


@dataclass
class Disk:
    """What a data directory keeps."""

    epochs: set[int] = field(default_factory=set)
    records: dict[int, str] = field(default_factory=dict)
    """Acknowledged from this WAL alone, by offset."""


@dataclass
class Node:
    """A process."""

    world: "World"
    name: str
    journal: str
    table: Table
    entry: TopicEntry
    epoch: int = 0
    next_offset: int = 0
    pending: list[str] = field(default_factory=list)
    """Sequenced and not in the table, from `next_offset - len(pending)` on."""
    open_release: str = ""
    doing: Iterator[None] | None = None

    @property
    def disk(self) -> Disk:
        return self.world.disks[self.name]

    def act(self) -> None:
        """One more request of what is under way, or something else."""
        if self.doing is None:
            self.doing = self.next_step()
        try:
            next(self.doing)
        except StopIteration:
            self.doing = None
        except (SiltlogError, Unknown):
            self.doing = None
        except Lost:
            self.doing = None
            self.let_go()

    def next_step(self) -> Iterator[None]:
        if not self.epoch:
            return self.claim()
        if self.open_release:
            return self.settle()
        others = self.entry.to is not None and self.entry.to.journal != self.journal
        if (others or self.entry.entitled(self.journal) is None) and self.world.chance.random() < 0.5:
            return self.hand_over()
        return self.flush() if self.world.chance.random() < 0.4 else self.publish()

    def claim(self) -> Iterator[None]:
        state = self.table.refresh()
        decision = decide(state.facts(), self.entry, self.journal, self.disk.epochs)
        self.world.told(self, decision)
        yield
        if isinstance(decision, Waits):
            return
        epoch = decision.term << 32 | self.world.chance.randrange(1 << 32)
        self.disk.epochs.add(epoch)
        yield
        shipped = {"shipped": epoch} if self.world.ships else {}
        seen = (state.epoch, state.released, state.shipped)

        def change(now: State) -> Mapping[str, Any]:
            if not self.world.same(seen, (now.epoch, now.released, now.shipped)):
                raise Lost
            return {"epoch": epoch, **shipped}

        try:
            self.table.commit(f"claim {epoch}", change)
        except Unknown:
            yield from self.asked_after(f"claim {epoch}")
        if self.table.state.epoch != epoch:
            raise Lost
        self.begin(decision, epoch)

    def begin(self, decision: MayClaim, epoch: int) -> None:
        offset = self.table.state.offset
        self.epoch, self.pending = epoch, []
        if decision.rules[0] is Rule.OWN:
            while (record := self.disk.records.get(offset + len(self.pending))) is not None:
                self.pending.append(record)
        self.next_offset = offset + len(self.pending)

    def publish(self) -> Iterator[None]:
        value = self.world.value()
        self.pending.append(value)
        self.next_offset += 1
        yield
        if not self.world.ships:
            self.disk.records[self.next_offset - 1] = value
            self.world.acknowledged[value] = self.next_offset - 1

    def flush(self, release: str = "") -> Iterator[None]:
        first, sent = self.next_offset - len(self.pending), list(self.pending)
        yield

        def change(now: State) -> Mapping[str, Any]:
            if now.epoch != self.epoch or now.offset != first:
                raise Lost
            released = {"released": self.epoch} if release else {}
            return {"add": [(first + at, value) for at, value in enumerate(sent)], **released}

        commit_id = release or f"flush {self.world.value()}"
        while True:
            try:
                self.table.commit(commit_id, change)
                break
            except Unknown:
                if release:
                    raise
                if (yield from self.asked_after(commit_id)):
                    break
                commit_id += "'"
        if not release and self.table.state.epoch != self.epoch:
            raise Lost
        self.flushed(sent, first)

    def asked_after(self, commit_id: str) -> Generator[None, None, bool]:
        """Whether it landed, once that is known."""
        while True:
            yield
            with suppress(SiltlogError, Unknown):
                return self.table.outcome(commit_id)

    def flushed(self, sent: list[str], first: int) -> None:
        del self.pending[: len(sent)]
        if self.world.ships:
            self.world.acknowledged |= {value: first + at for at, value in enumerate(sent)}

    def hand_over(self) -> Iterator[None]:
        yield from self.flush()
        self.open_release = f"release {self.epoch} {self.world.value()}"
        yield from self.flush(self.open_release)
        self.let_go()

    def settle(self) -> Iterator[None]:
        """What came of a release whose answer was lost."""
        landed = self.world.settled(self)
        yield
        if landed:
            first = self.next_offset - len(self.pending)
            self.flushed(list(self.pending), first)
            self.let_go()
            return

        def change(now: State) -> Mapping[str, Any]:
            if now.epoch != self.epoch:
                raise Lost
            return {"released": 0}

        self.world.take_back(self, change)
        # What the release had of records is in the table, or never will be.
        first = self.next_offset - len(self.pending)
        self.flushed(self.pending[: self.table.state.offset - first], first)
        self.open_release = ""

    def let_go(self) -> None:
        self.epoch, self.pending, self.open_release = 0, [], ""


class World:
    def __init__(self, seed: int, *, ships: bool) -> None:
        self.chance = random.Random(seed)
        self.ships = ships
        self.clock = VirtualClock()
        stormy = Weather(lost=0.08, late=0.06, doubled=0.04, slow_down=0.02, late_seconds=20)
        self.store = FailingStore(random.Random(seed + 1), self.clock, stormy)
        self.disks = {name: Disk() for name in NODES}
        self.acknowledged: dict[str, int] = {}
        self.claims = 0
        self._values = 0
        self._term = 1
        self._starts = dict.fromkeys(NODES, 0)
        self.nodes: dict[str, Node] = {}
        self.waiting: dict[str, Waits] = {}
        self.entry = TopicEntry(topic_id="t", chain=(TermEntry(term=1, node="a", data_dir="a", journal="a1"),))
        for name in NODES:
            self.start(name)

    # What a mutant does otherwise.

    def same(self, seen: tuple[int, ...], now: tuple[int, ...]) -> bool:
        return seen == now

    def settled(self, node: Node) -> bool:
        """An owner may also take back what landed, as long as nobody has claimed."""
        if self.chance.random() < 0.5:
            return False
        return node.table.outcome(node.open_release) and node.table.state.released == node.epoch

    def take_back(self, node: Node, change: Callable[[State], Mapping[str, Any]]) -> None:
        node.table.commit(f"take back {node.open_release}", change)

    # The world.

    def value(self) -> str:
        self._values += 1
        return f"v{self._values}"

    def told(self, node: Node, decision: MayClaim | Waits) -> None:
        if isinstance(decision, Waits):
            self.waiting[node.journal] = decision
        else:
            self.claims += 1
            self.waiting.pop(node.journal, None)

    def start(self, name: str) -> None:
        self._starts[name] += 1
        journal = f"{name}{self._starts[name]}"
        if self._starts[name] > 1:
            self.lose(f"{name}{self._starts[name] - 1}")
        self.nodes[name] = Node(self, name, journal, Table(self.store.of(journal)), self.entry)

    def granted(self, name: str, above: int = 0) -> TermEntry:
        self._term = max(self._term, above) + 1
        return TermEntry(term=self._term, node=name, data_dir=name, journal=self.nodes[name].journal)

    def lose(self, journal: str) -> None:
        def marked(one: TermEntry) -> TermEntry:
            return replaced(one, lost=True) if one.journal == journal else one

        chain, to = self.entry.chain, self.entry.to
        if to is not None and to.journal == journal:
            # It may have claimed all the same.
            chain, to = (*chain[:-1], to, chain[-1]), None
        self.entry = replaced(self.entry, chain=tuple(marked(one) for one in chain), to=to)

    def plan(self) -> None:
        """Does what a controller does, in the small: what is lost or moved goes to somebody, terms only rise."""
        present = {node.journal: node.name for node in self.nodes.values()}
        owner, to = self.entry.owner, self.entry.to
        if to is not None and self.nodes[to.node].epoch >> 32 == to.term:
            self.entry = replaced(self.entry, chain=(*self.entry.chain, to), to=None)
        elif owner.journal not in present or owner.lost:
            waits = next((one for one in self.waiting.values() if one.awaited), None)
            awaited = None if waits is None else self.entry.term(waits.awaited)
            self.give(awaited.data_dir if awaited else self.chance.choice(NODES))
        elif (waits := self.waiting.get(owner.journal)) is not None and (waits.floor or waits.awaited):
            awaited = self.entry.term(waits.awaited)
            self.give(awaited.data_dir if awaited else owner.node, waits.floor)
        elif to is None and self.chance.random() < 0.3 and self.nodes[owner.node].epoch >> 32 == owner.term:
            others = [name for name in NODES if name != owner.node]
            self.entry = replaced(self.entry, to=self.granted(self.chance.choice(others)))

    def give(self, name: str, above: int = 0) -> None:
        chain = self.entry.chain if self.entry.to is None else (*self.entry.chain, self.entry.to)
        self.entry = replaced(self.entry, chain=(*chain, self.granted(name, above)), to=None)
        self.waiting.clear()

    def run(self) -> None:
        for _ in range(STEPS):
            fate, node = self.chance.random(), self.nodes[self.chance.choice(NODES)]
            if fate < 0.02:
                self.start(node.name)  # killed, and started again
            elif fate < 0.03:
                self.lose(node.journal)  # taken for lost, and it goes on
                self.plan()
                self.start_anew_later(node)
            elif fate < 0.10:
                self.plan()
            elif fate < 0.20:
                node.entry = self.entry
            elif fate < 0.25:
                self.clock.advance(self.chance.uniform(0, 10))
            else:
                node.act()
        self.end()

    def start_anew_later(self, node: Node) -> None:
        """A node that meets that its journal is lost begins anew; what it was may still act until then."""
        for _ in range(self.chance.randrange(12)):
            node.act()
        self.start(node.name)

    def end(self) -> None:
        """The weather clears, and the topic comes to rest."""
        self.store.weather = Weather()
        self.store.land(everything=True)
        for _ in range(2000):
            self.plan() if self.chance.random() < 0.2 else None
            for node in self.nodes.values():
                node.entry = self.entry
                node.act()
            owner = self.nodes[self.entry.owner.node]
            if self.entry.to is None and owner.epoch and not owner.pending and not owner.open_release:
                break
        else:
            raise AssertionError(f"nobody owns it in the end: {self.entry}, {self.waiting}")

    def check(self) -> None:
        rows = Table(self.store.of("auditor")).refresh().rows
        assert [offset for offset, _ in rows] == list(range(len(rows))), "offsets have no hole and no double"
        there = {value: offset for offset, value in rows}
        assert len(there) == len(rows), "a record is there twice"
        wrong = {value: offset for value, offset in self.acknowledged.items() if there.get(value) != offset}
        assert not wrong, f"acknowledged and not there: {wrong}"


def replaced(struct: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(struct, **changes)


def simulate(seed: int, ships: bool, kind: type[World] = World) -> World:
    world = kind(seed, ships=ships)
    world.run()
    world.check()
    return world


@pytest.mark.rule("CO1", "CO2", "CO3", "CO4", "CO5", "CH4")
@pytest.mark.chaos
@pytest.mark.parametrize("ships", [True, False])
def test_what_was_acknowledged_is_in_the_table_whoever_owned_it(ships: bool) -> None:
    claims = acknowledged = 0
    for seed in seeds(150):
        try:
            world = simulate(seed, ships)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
        claims += world.claims
        acknowledged += len(world.acknowledged)
    assert claims > 150 * 3 and acknowledged > 150 * 10


class TakesBack(World):
    """An owner takes back whatever it can."""

    def settled(self, node: Node) -> bool:
        return False


class ReleasesAreNotCompared(TakesBack):
    def same(self, seen: tuple[int, ...], now: tuple[int, ...]) -> bool:
        return seen[0] == now[0]


class LooksAlone(World):
    """A release that is not in the table yet counts as refused, though it may still land."""

    def settled(self, node: Node) -> bool:
        return node.open_release in node.table.refresh().ids

    def take_back(self, node: Node, change: Callable[[State], Mapping[str, Any]]) -> None:
        change(node.table.refresh())


class GoesOn(World):
    """A node whose release has no answer goes on as if it had not been sent."""

    def settled(self, node: Node) -> bool:
        return False

    def take_back(self, node: Node, change: Callable[[State], Mapping[str, Any]]) -> None:
        """Nothing is asked."""


@pytest.mark.rule("CO4", "CH4")
@pytest.mark.parametrize("mutant", [ReleasesAreNotCompared, LooksAlone, GoesOn])
def test_a_mutant_of_the_protocol_is_noticed(mutant: type[World]) -> None:
    assert noticed(mutant)


def test_an_owner_may_take_back_a_release_that_landed() -> None:
    assert not noticed(TakesBack, 100)


@pytest.mark.rule("CO3", "CO5")
def test_a_mutant_of_the_rules_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def anybodys(facts: Facts, partition: int, epoch: int, own_epochs: Any) -> Rule:
        return Rule.RELEASED

    monkeypatch.setattr(rules, "_rule", anybodys)
    assert noticed(World)


def noticed(kind: type[World], count: int = 600) -> bool:
    for seed in range(count):
        try:
            simulate(seed, False, kind)
        except AssertionError:
            return True
    return False
