"""A process of a simulated cluster: it ships, flushes, trims, claims and hands over by the rules of the product.

What decides is the product's: `rules.decide`, `seal`, `read` and `kept`, `Writer`, `landing` and `Pins`. What
carries it out is here, in steps, each of which may be the last one.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid5

from small_table import Lost, SmallTable, Steps, Unknown, put_once

from siltlog.infra.cluster import steps
from siltlog.infra.cluster.beat import TopicReport
from siltlog.infra.cluster.view import TopicEntry
from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import ObjectStore, Put
from siltlog.ingest.journal import reader, seal, writer
from siltlog.ingest.journal.codec import Object, decode_header, encode_groups, path_of
from siltlog.ingest.journal.pins import Pins
from siltlog.ingest.journal.writer import IN_FLIGHT_MAX, Landing, Shipment, Writer
from siltlog.ingest.ownership import rules
from siltlog.ingest.ownership.rules import Rule, Waits
from siltlog.ingest.wal.codec import Frame, FrameKind

if TYPE_CHECKING:
    from cluster_simulation import ClusterNode

CLUSTER = "c"
OBJECT_INTERVAL_SECONDS = 0.2
HOLD_SECONDS_MAX = 1.0
FLUSH_SHARE = 0.25
"""So many of the turns of a topic flush it."""
FOR_EVER = 1 << 62

Group = list[Frame]
Answered = Callable[[int | None], None]
"""Called with the offset that a record is acknowledged at; with None where its outcome is unknown, or it is refused."""
_Answer = TypeVar("_Answer")


def id_of(topic: str) -> bytes:
    return uuid5(UUID(int=0), topic).bytes


class _Asks(BaseException):
    def __init__(self, call: Callable[[ObjectStore], Any]) -> None:
        self.call = call


class _Replayed:
    """Answers what was answered before; the first request beyond that is asked for."""

    def __init__(self, answers: list[tuple[Any, Exception | None]]) -> None:
        self._answers = iter(answers)
        self.root_uri = "memory://root"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def request(*arguments: Any) -> Any:
            for answer, error in self._answers:
                if error is not None:
                    raise error
                return answer
            raise _Asks(lambda store: getattr(store, name)(*arguments))

        return request


def stepwise(function: Callable[[Any], _Answer]) -> Steps[_Answer]:
    """What waits for the store, step by step: it is run anew up to the request that has no answer yet."""
    answers: list[tuple[Any, Exception | None]] = []
    while True:
        try:
            return function(_Replayed(answers))
        except _Asks as asks:
            call = asks.call
        try:
            answers.append(((yield call), None))
        except Exception as error:
            answers.append((None, error))


class Journal:
    """The journal that a process writes until it is lost, or sealed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.writer: Writer[Group] = Writer(OBJECT_INTERVAL_SECONDS, IN_FLIGHT_MAX)
        self.pins = Pins()
        self.flying: dict[int, Object] = {}
        self.written: list[tuple[int, Frame]] = []
        """All that it has, with the numbers of the objects."""
        self.opened = False
        self.over = False


@dataclass
class Held:
    """A topic that was claimed."""

    name: str
    kind: str
    table: SmallTable
    journal: Journal
    term: int
    epoch: int
    rule: Rule
    values: dict[int, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0
    in_table: int = 0
    """Below it all is known to be in the table."""
    shown: int = 0
    landed: int = 0
    """Below it all is in the own journal, or in the table."""
    settled_at: int = 0
    """The offset below which it must have landed before no other journal is needed."""
    settled: bool = False
    paused: bool = False
    open_release: str = ""
    kept: int = 0
    gone: bool = False
    waiting: list[tuple[int, Answered]] = field(default_factory=list)

    @property
    def owns(self) -> bool:
        return not self.gone and not self.open_release

    def append(self, value: str) -> int:
        at = self.next_offset
        self.values[at] = value
        self.places[value] = at
        self.next_offset += 1
        return at

    def show(self, end: int) -> None:
        self.shown = max(self.shown, end)
        told = [(at, answer) for at, answer in self.waiting if at < self.shown]
        self.waiting = [(at, answer) for at, answer in self.waiting if at >= self.shown]
        for at, answer in told:
            answer(at)


class Process:
    """One start of a node. `spawn(turn)` has the world take the steps of a turn."""

    def __init__(self, node: "ClusterNode", journal: str, chance: random.Random) -> None:
        self.node = node
        self.world = node.world
        self.chance = chance
        self.journal = Journal(journal)
        self.held: dict[str, Held] = {}
        self.waits: dict[str, Waits] = {}
        self.handed: set[str] = set()
        self.offsets: dict[bytes, int] = {}
        """Table offsets, by topic id, of what the journal may pin."""
        self.tables: dict[str, SmallTable] = {}
        self.attended: set[str] = set()

    # What clients ask for.

    def publish(self, name: str, value: str, answer: Answered) -> None:
        held = self.held.get(name)
        if held is None or not held.owns or held.paused or held.journal.over:
            answer(None)
            return
        at = held.places.get(value)
        if at is None:
            at = held.append(value)
            if held.kind == "wal":
                self.node.disk.records.setdefault(name, {})[at] = value
            elif held.kind == "object":
                self._ship(held, at, at + 1)
        held.waiting.append((at, answer))
        held.show(held.next_offset if held.kind == "wal" else held.shown)

    def read(self, name: str) -> Held | None:
        held = self.held.get(name)
        return held if held is not None and not held.gone and not held.journal.over else None

    # What the beat says.

    def report(self) -> Mapping[str, TopicReport]:
        found: dict[str, TopicReport] = {}
        for name, held in self.held.items():
            found[name] = TopicReport(term=held.term, state="settled" if held.settled else "claimed", kept=held.kept)
        for name, waits in self.waits.items():
            entry = self._entry(name)
            right = entry and entry.entitled(self.journal.name)
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

    def _entry(self, name: str) -> TopicEntry | None:
        return self.node.member.view.topics.get(name)

    # The journal.

    def follow(self) -> None:
        """Begins what a newer view asks for. Where the journal is another, the present one is lost."""
        assert self.node.member is not None
        if self.journal.name != self.node.member.journal:
            self.end_journal("a journal was lost while its node was alive")
        for name in self.node.member.view.topics:
            if name not in self.attended:
                self.attended.add(name)
                self.node.spawn(self.attend(name))

    def end_journal(self, why: str) -> None:
        self.world.saw(why)
        self.journal.over = True
        self.journal.writer.met_seal()
        for held in [*self.held.values()]:
            if held.kind == "object":
                self._drop(held)
        self.journal = Journal(self.node.member.journal)
        self.node.spawn(self.write(self.journal))

    def met_seal(self, journal: Journal) -> None:
        if any(held.waiting for held in self.held.values() if held.journal is journal):
            self.world.saw("a seal was met while somebody waited for an acknowledgement")
        if self.node.member.journal == journal.name:
            self.node.member.reopen()
        self.end_journal("a seal was met")

    def write(self, journal: Journal) -> Steps[None]:
        """Opens it; ships what comes, and trims."""
        yield from self._landed(journal, self._object(journal, 0, 0, ()), 0)
        journal.opened = True
        while not journal.over:
            shipment = journal.writer.take(self.node.clock.monotonic())
            if shipment is not None:
                assert len(journal.flying) < IN_FLIGHT_MAX
                journal.flying[shipment.number] = self._object(
                    journal, shipment.number, shipment.first, shipment.groups
                )
                frames = [frame for group in shipment.groups for frame in group]
                journal.pins.add(shipment.number, frames)
                journal.written += [(shipment.number, frame) for frame in frames]
                self.node.spawn(self.put(journal, shipment.number))
            elif self.chance.random() < 0.1:
                yield from self.trim(journal)
            yield 0.1

    def put(self, journal: Journal, number: int) -> Steps[None]:
        came = yield from self._landed(journal, journal.flying[number], number)
        if journal.over:
            return
        if came is Landing.SEALED:
            self.met_seal(journal)
        else:
            journal.flying.pop(number)
            self.landed(journal, journal.writer.landed_one(number))

    def landed(self, journal: Journal, shipments: list[Shipment[Group]]) -> None:
        ends: dict[bytes, int] = {}
        for shipment in shipments:
            for frame in (frame for group in shipment.groups for frame in group):
                ends[frame.topic_id] = max(ends.get(frame.topic_id, 0), frame.first_offset + frame.count)
        for held in self.held.values():
            if held.journal is journal:
                held.landed = max(held.landed, ends.get(id_of(held.name), 0))
                held.show(ends.get(id_of(held.name), 0))

    def trim(self, journal: Journal) -> Steps[None]:
        def offset(topic_id: bytes, partition: int) -> int:
            return self.offsets.get(topic_id, 0)

        journal.writer.flushed_below(journal.pins.flushed_below(journal.writer.next_number, offset, lambda _: True))
        for number in journal.writer.deletable():
            try:
                yield lambda store, number=number: store.delete(path_of(journal.name, number))
            except SiltlogError:
                return
            self.world.trimmed(journal.name, number)
            journal.writer.deleted(number)

    def _landed(self, journal: Journal, made: Object, number: int) -> Steps[Landing]:
        while True:
            came = yield from self._put(journal, made, number)
            assert came is not Landing.FOREIGN, f"another has written {number} of {journal.name}"
            if came is not Landing.AGAIN or journal.over:
                return came
            yield 0.2

    def _put(self, journal: Journal, made: Object, number: int) -> Steps[Landing]:
        path = path_of(journal.name, number)
        put = yield lambda store: store.put_if_absent(path, made.data)
        found = None
        if put is not Put.WRITTEN:
            self.world.saw("the answer of a journal's PUT was lost", put is Put.UNKNOWN)
            try:
                data = yield steps.found(path)
            except SiltlogError:
                return Landing.AGAIN
            if data is not None:
                found = decode_header(data, cluster_id=CLUSTER, journal=journal.name, number=number)
        return writer.landing(made.header, put, found)

    def _object(self, journal: Journal, number: int, first: int, groups: tuple[Group, ...]) -> Object:
        nonce = self.chance.randbytes(16)
        return encode_groups(groups, cluster_id=CLUSTER, journal=journal.name, number=number, first=first, nonce=nonce)

    def _ship(self, held: Held, begin: int, end: int) -> None:
        payload = ",".join(held.values[at] for at in range(begin, end)).encode()
        frame = Frame(FrameKind.RECORDS, id_of(held.name), 0, held.epoch, begin, end - begin, payload)
        held.journal.writer.add([frame], len(payload))

    # Ownership.

    def attend(self, name: str) -> Steps[None]:
        """Whatever is to be done for a topic, one thing after the other."""
        while True:
            try:
                yield from self._next(name)
            except Lost:
                if (held := self.held.get(name)) is not None:
                    self._drop(held)
            except (SiltlogError, Unknown) as error:
                if getattr(error, "error_code", "") == "corrupt_data":
                    raise
            yield self.chance.uniform(0.1, 0.9)

    def _next(self, name: str) -> Steps[None]:
        entry, held = self._entry(name), self.held.get(name)
        if held is None:
            mine = entry is not None and entry.entitled(self.journal.name) is not None
            if entry is None or not mine:
                self.waits.pop(name, None)
                self.handed.discard(name)
                return
            handed = name in self.handed and entry.to is not None and entry.to.journal != self.journal.name
            if not handed:
                yield from self.take(name, entry)
            return
        if held.open_release:
            yield from self.settle(held)
            return
        if self._must_go(held, entry):
            yield from self.hand_over(held, entry)
            return
        if self.chance.random() < FLUSH_SHARE:
            yield from self.flush(held)
        yield from self.cut(held)

    def _must_go(self, held: Held, entry: TopicEntry | None) -> bool:
        if entry is None:
            return False
        right = entry.entitled(self.journal.name)
        if right is None or right.term != held.term:
            return True
        to = entry.to
        return to is not None and to.journal != self.journal.name and held.kept != to.term and not self.node.grips

    def take(self, name: str, entry: TopicEntry) -> Steps[None]:
        table = self.tables.setdefault(name, SmallTable(name))
        journal, kind = self.journal, self.world.kind(name)
        yield from table.refresh()
        decision = rules.decide(table.facts(), entry, journal.name, self.node.disk.epochs.get(name, set()))
        if isinstance(decision, Waits):
            self.waits[name] = decision
            return
        if not journal.opened:
            return
        decided_on = table.decided_on
        epoch = decision.term << 32 | self.chance.getrandbits(32)
        self.node.disk.epochs.setdefault(name, set()).add(epoch)
        chain = table.journals if decision.rules[0] is Rule.SHIPPED and kind == "object" else ()
        frames = yield from self.ended(name, chain)
        yield from self.claim(table, epoch, decided_on, chain, journal, kind)
        if journal.over or journal is not self.journal:
            return
        if self.world.take_fails():
            raise Lost
        held = Held(name, kind, table, journal, decision.term, epoch, decision.rules[0])
        self.begin(held, chain, frames)
        yield from self.cut(held)

    def ended(self, name: str, chain: Iterable[tuple[int, str]]) -> Steps[list[Frame]]:
        """Seals the journals of a chain, and reads them."""
        frames: list[Frame] = []
        for epoch, journal in chain:
            if journal == self.journal.name:
                found = yield from self.so_far(self.journal)
            else:
                found = yield from self.former(journal)
            frames += [one for one in found if one.topic_id == id_of(name) and one.epoch == epoch]
        return frames

    def former(self, journal: str) -> Steps[list[Frame]]:
        nonce = self.chance.randbytes(16)
        self.world.seals(journal, self)
        sealed = yield from stepwise(lambda store: seal.seal(store, CLUSTER, journal, nonce))
        self.world.sealed(journal, sealed.end)
        found = yield from stepwise(lambda store: reader.read(store, CLUSTER, sealed))
        self.world.seals_no_more(journal, self)
        return [*reader.frames_of(found)]

    def so_far(self, journal: Journal) -> Steps[list[Frame]]:
        self.world.saw("a topic was taken again by the journal that has its records")
        upto = journal.writer.next_number
        while journal.writer.landed < upto or not journal.writer.idle:
            if journal.over:
                raise Lost
            yield 0.2
        return [frame for _, frame in journal.written]

    def claim(
        self,
        table: SmallTable,
        epoch: int,
        decided_on: tuple[int, ...],
        chain: tuple[tuple[int, str], ...],
        journal: Journal,
        kind: str,
    ) -> Steps[None]:
        ships = {} if kind == "wal" else {"shipped": epoch}
        journals = {"journals": [*chain, (epoch, journal.name)]} if kind == "object" else {}

        def change(now: SmallTable) -> Mapping[str, Any]:
            if not self.world.same(decided_on, now.decided_on):
                self.world.saw("a claim met another's")
                raise Lost
            return {"epoch": epoch, **ships, **journals}

        commit_id = f"claim {epoch}"
        try:
            yield from table.commit(commit_id, change, self.world.put_roughly)
        except Unknown:
            landed = yield from table.asked_after(commit_id)
            self.world.saw(f"the answer of a claim was lost, landed: {landed}")
        if table.epoch != epoch:
            raise Lost

    def begin(self, held: Held, chain: tuple[tuple[int, str], ...], frames: list[Frame]) -> None:
        table = held.table
        held.next_offset = held.in_table = table.offset
        held.values = dict(enumerate(table.rows))
        held.places = dict(table.places)
        held.settled = not chain
        self.offsets[id_of(held.name)] = table.offset
        if chain:
            found = reader.kept(frames, held.name, id_of(held.name), 0, [epoch for epoch, _ in chain], table.offset)
            for kept in found:
                for value in kept.payload.to_pybytes().decode().split(",")[kept.first_offset - kept.begin :]:
                    held.append(value)
            self.world.saw("records were recovered from journals", bool(found))
            self.world.saw("records were recovered by a second successor", bool(found) and len(chain) > 1)
            if held.next_offset > table.offset:
                self._ship(held, table.offset, held.next_offset)
        elif held.rule is Rule.OWN:
            records = self.node.disk.records.get(held.name, {})
            while (value := records.get(held.next_offset)) is not None:
                held.append(value)
            self.world.saw("a data directory went on with what it alone had", held.next_offset > table.offset)
        held.settled_at = held.next_offset
        # What was found is durable.
        held.shown = held.next_offset if held.kind != "table" else table.offset
        self.held[held.name] = held
        self.waits.pop(held.name, None)
        self.handed.discard(held.name)
        self.world.took(held, bool(chain))

    def flush(self, held: Held, release: str = "") -> Steps[None]:
        first, end = held.in_table, held.next_offset
        if first == end and not release:
            return
        rows = [held.values[at] for at in range(first, end)]

        def change(now: SmallTable) -> Mapping[str, Any]:
            if not self.world.owned(held, now) or now.offset != first:
                self.world.saw("a flush of who was fenced was refused")
                raise Lost
            return {"add": rows, **({"released": held.epoch} if release else {})}

        commit_id = release or f"flush {held.epoch} {first} {self.chance.getrandbits(32)}"
        try:
            yield from held.table.commit(commit_id, change, self.world.put_roughly if release else put_once)
        except Unknown:
            if release:
                raise
            if not (yield from held.table.asked_after(commit_id)):
                return
        if held.table.epoch != held.epoch and not release:
            raise Lost
        self._flushed(held, end)

    def _flushed(self, held: Held, end: int) -> None:
        held.in_table = max(held.in_table, end)
        self.offsets[id_of(held.name)] = held.in_table
        if not held.gone:
            held.show(held.in_table)

    def cut(self, held: Held) -> Steps[None]:
        """Once what was recovered is in the own journal, no other is needed."""
        if held.settled or max(held.landed, held.in_table) < held.settled_at:
            return

        def change(now: SmallTable) -> Mapping[str, Any]:
            if now.epoch != held.epoch:
                raise Lost
            return {"journals": [(held.epoch, held.journal.name)]}

        yield from held.table.commit(f"cut {held.epoch} {self.chance.getrandbits(32)}", change)
        held.settled = True

    # Hand-over.

    def hand_over(self, held: Held, entry: TopicEntry | None) -> Steps[None]:
        yield from self.flush(held)
        self.world.fails(self.journal.name, 0.2)
        began = self.node.clock.monotonic()
        held.paused = True
        try:
            yield from self.flush(held)
            if self.node.clock.monotonic() - began > HOLD_SECONDS_MAX or held.gone:
                if entry is not None and entry.to is not None and entry.entitled(self.journal.name):
                    held.kept = entry.to.term
                self.world.saw("a hand-over was given up before the release was sent")
                return
            held.open_release = f"release {held.epoch} {self.chance.getrandbits(32)}"
            try:
                yield from self.flush(held, held.open_release)
            except Unknown:
                self.world.saw("the answer of a release was lost")
                raise
            except SiltlogError:
                held.open_release = ""
                raise
            self._released(held)
        finally:
            held.paused = False

    def settle(self, held: Held) -> Steps[None]:
        """What came of a release whose answer was lost. One that did not land is shut out, and the topic goes on."""
        landed = yield from self.world.release_landed(held)
        if landed:
            self.world.saw("a release whose answer was lost had landed")
            self._flushed(held, held.next_offset)
            self._released(held)
            return

        def change(now: SmallTable) -> Mapping[str, Any]:
            if now.epoch != held.epoch:
                raise Lost
            return {"released": 0}

        yield from held.table.commit(f"take back {held.open_release} {self.chance.getrandbits(32)}", change)
        self._flushed(held, held.table.offset)
        held.open_release = ""
        self.world.saw("a release was taken back")

    def _released(self, held: Held) -> None:
        self.world.saw("a hand-over")
        self.offsets[id_of(held.name)] = FOR_EVER
        self.handed.add(held.name)
        self._drop(held)

    def _drop(self, held: Held) -> None:
        """It is another's, or may be: who waits is told nothing."""
        held.gone = True
        if self.held.get(held.name) is held:
            del self.held[held.name]
        for _, answer in held.waiting:
            answer(None)
        held.waiting.clear()
