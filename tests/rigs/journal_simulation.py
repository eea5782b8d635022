"""Owners of one partition that follow each other over a store that fails: seeded, one thread, virtual time.

Each owner appends, ships, flushes, trims and stops anywhere; those before it go on as if nothing had happened, in
between the requests of the one that takes over. What anybody was told must be there at the end, once, at its offset.
"""

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from siltlog.infra.errors import SiltlogError
from siltlog.infra.store.store import Put
from siltlog.ingest.journal import reader, seal, writer
from siltlog.ingest.journal.codec import Header, Object, decode_header, encode_groups, journal_name, path_of
from siltlog.ingest.journal.pins import Pins
from siltlog.ingest.journal.writer import Landing, Shipment
from siltlog.ingest.wal.codec import Frame, FrameKind
from tests.rigs.failing_store import FailingStore, VirtualClock, Weather
from tests.rigs.one_thread import one_thread

CLUSTER = "sim"
TOPIC = uuid.UUID(int=7).bytes
OWNERS = 4
STEPS_MAX = 60
TAKES_MAX = 1_000

Group = list[Frame]


class Fenced(Exception):
    """The table is another's."""


@dataclass
class Table:
    """Changes whole or not at all, and only for who has the epoch that it compares with."""

    rows: list[bytes] = field(default_factory=list)
    epoch: int = 0
    chain: list[tuple[int, str]] = field(default_factory=list)
    settled: int = 0

    def append(self, epoch: int, first: int, rows: list[bytes]) -> None:
        if (self.epoch, len(self.rows)) != (epoch, first):
            raise Fenced
        self.rows += rows


class World:
    def __init__(self, seed: int, weather: Weather | None = None) -> None:
        self.chance = random.Random(seed)
        chance = self.chance
        self.clock = VirtualClock()
        self.store = FailingStore(
            chance,
            self.clock,
            weather
            or Weather(
                lost=chance.choice((0, 0.05, 0.15)),
                late=chance.choice((0, 0.1)),
                doubled=chance.choice((0, 0.1)),
                slow_down=chance.choice((0, 0.05)),
                late_seconds=chance.choice((1.0, 20.0)),
                page=chance.choice((4, 1000)),
                sorts=chance.random() < 0.5,
            ),
        )
        self.table = Table()
        self.told: dict[int, bytes] = {}
        """What somebody was told is in the log, by offset."""
        self.ends: dict[str, int] = {}
        """Where each journal was found to end."""
        self.owners: list[Owner] = []
        self.store.meanwhile = self._others

    def tell(self, rows: Iterable[tuple[int, bytes]]) -> None:
        for offset, value in rows:
            assert self.told.setdefault(offset, value) == value, f"two records were told of at offset {offset}"

    def _others(self) -> None:
        if self.owners and self.chance.random() < 0.5:
            self.chance.choice(self.owners).step()

    def run(self) -> None:
        with one_thread():
            self._run()

    def _run(self) -> None:
        for number in range(OWNERS):
            owner = self.take_over(number)
            for _ in range(self.chance.randrange(STEPS_MAX)):
                owner.step()
        self.store.weather = Weather()
        self.store.land(everything=True)
        last = self.take_over(OWNERS)
        for offset, value in self.told.items():
            assert last.value(offset) == value, f"what was told of offset {offset} is not there"

    def take_over(self, number: int) -> "Owner":
        for attempt in range(TAKES_MAX):
            owner = Owner(self, f"n{number}.{attempt}")
            try:
                owner.take()
            except (Fenced, SiltlogError) as error:
                if getattr(error, "error_code", "") == "corrupt_data":
                    raise
                self.clock.advance(1)
                continue
            self.owners.append(owner)
            return owner
        raise AssertionError("nobody can take the topic over")


class Owner:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.journal = journal_name(name, "start")
        self.store = world.store.of(name)
        self.writer: writer.Writer[Group] = writer.Writer(0.2, writer.IN_FLIGHT_MAX)
        self.pins = Pins()
        self.epoch = 0
        self.values: dict[int, bytes] = {}
        self.next_offset = 0
        self.flying: dict[int, Object] = {}
        self.unsettled = 0
        """Group commits that must land before the journals of former owners are needed no more."""
        self.shown = 0
        self.alive = False
        self.busy = False

    def value(self, offset: int) -> bytes | None:
        rows = self.world.table.rows
        return rows[offset] if offset < len(rows) else self.values.get(offset)

    def take(self) -> None:
        """Opens a journal, seals those of the chain, claims, reads, in this order."""
        table = self.world.table
        self._put(self._object(0, 0, ()), 0)
        epoch, settled = table.epoch, table.settled
        chain = [link for link in table.chain if link[0] >= settled]
        ended = [self._seal(journal) for _, journal in chain]
        if table.epoch != epoch:
            raise Fenced
        self.epoch = table.epoch = (epoch >> 32) + 1 << 32 | self.world.chance.getrandbits(32)
        table.chain = [*chain, (self.epoch, self.journal)]
        table_offset = len(table.rows)
        while True:
            try:
                frames = self._read(ended)
                break
            except SiltlogError as error:
                if error.error_code == "corrupt_data":
                    raise
                self.world.clock.advance(1)
        found = reader.kept(frames, "t", TOPIC, 0, [epoch for epoch, _ in chain], table_offset)
        self._take_in(found, table_offset)
        self.alive = True

    def _read(self, ended: list[seal.Sealed]) -> Group:
        return [f for one in ended for f in reader.frames_of(reader.read(self.store, CLUSTER, one))]

    def _seal(self, journal: str) -> seal.Sealed:
        ended = seal.seal(self.store, CLUSTER, journal, self.world.chance.randbytes(16))
        assert self.world.ends.setdefault(journal, ended.end) == ended.end, f"two ends of {journal} were found"
        return ended

    def _take_in(self, found: list[reader.Kept], table_offset: int) -> None:
        self.next_offset = found[-1].next_offset if found else table_offset
        for kept in found:
            rows = kept.payload.to_pybytes().split(b",")
            begin = kept.next_offset - len(rows)
            self.values |= {begin + at: row for at, row in enumerate(rows) if begin + at >= kept.first_offset}
            frame = Frame(FrameKind.RECORDS, TOPIC, 0, self.epoch, begin, len(rows), kept.payload)
            self.writer.add([frame], frame.payload_bytes)
        self.unsettled = len(found)
        self.shown = self.next_offset
        if not found and self.world.table.epoch == self.epoch:
            self.world.table.settled = self.epoch
        for offset, value in self.world.told.items():
            assert offset < self.next_offset, f"offset {offset} was told of, and the log ends at {self.next_offset}"
            assert self.value(offset) == value, f"offset {offset} is another record than was told"
        self.world.tell(self.values.items())

    def step(self) -> None:
        if not self.alive or self.busy:
            return
        act: Callable[[], None] = self.world.chance.choice(
            (
                self.append,
                self.append,
                self.ship,
                self.ship,
                self.answer,
                self.answer,
                self.answer,
                self.flush,
                self.trim,
            )
        )
        self.busy = True
        try:
            act()
        except Fenced:
            self.alive = False
        except SiltlogError:
            """It is tried again some time."""
        finally:
            self.busy = False

    def append(self) -> None:
        rows = [f"{self.journal}:{self.next_offset + at}".encode() for at in range(self.world.chance.randint(1, 3))]
        payload = b",".join(rows)
        frame = Frame(FrameKind.RECORDS, TOPIC, 0, self.epoch, self.next_offset, len(rows), payload)
        self.values |= {self.next_offset + at: row for at, row in enumerate(rows)}
        self.next_offset += len(rows)
        self.writer.add([frame], len(payload))

    def ship(self) -> None:
        self.world.clock.advance(self.world.chance.choice((0.05, 0.3)))
        shipment = self.writer.take(self.world.clock.monotonic())
        if shipment is not None:
            self.flying[shipment.number] = self._object(shipment.number, shipment.first, shipment.groups)
            self.pins.add(shipment.number, (frame for group in shipment.groups for frame in group))

    def _object(self, number: int, first: int, groups: tuple[Group, ...]) -> Object:
        nonce = self.world.chance.randbytes(16)
        return encode_groups(groups, cluster_id=CLUSTER, journal=self.journal, number=number, first=first, nonce=nonce)

    def answer(self) -> None:
        if not self.flying:
            return
        number = self.world.chance.choice(list(self.flying))
        came = self._put(self.flying[number], number)
        if not self.alive:
            return
        assert came is not Landing.FOREIGN, "nobody else writes this journal"
        if came is Landing.SEALED:
            self.met_seal()
        elif came is Landing.LANDED and self.flying.pop(number, None) is not None:
            self._landed(self.writer.landed_one(number))

    def met_seal(self) -> None:
        self.writer.met_seal()
        self.alive = False

    def _landed(self, shipments: list[Shipment[Group]]) -> None:
        ends = [f.first_offset + f.count for s in shipments for group in s.groups for f in group]
        self._show(max([*ends, self.shown]))
        self.unsettled -= sum(len(s.groups) for s in shipments)
        if self.unsettled <= 0 and self.world.table.epoch == self.epoch:
            self.world.table.settled = self.epoch

    def _show(self, end: int) -> None:
        self.world.tell((offset, self.values[offset]) for offset in range(self.shown, end) if offset in self.values)
        self.shown = max(self.shown, end)

    def _put(self, made: Object, number: int) -> Landing:
        path = path_of(self.journal, number)
        put = self.store.put_if_absent(path, made.data)
        found: Header | None = None
        if put is not Put.WRITTEN:
            try:
                found = decode_header(self.store.get(path), cluster_id=CLUSTER, journal=self.journal, number=number)
            except FileNotFoundError:
                found = None
        came = writer.landing(made.header, put, found)
        if number == 0 and came is not Landing.LANDED:
            raise Fenced
        return came

    def flush(self) -> None:
        """What is synced goes into the table, landed or not."""
        first = len(self.world.table.rows)
        if first < self.next_offset:
            end = self.world.chance.randint(first + 1, self.next_offset)
            rows = [self.values[offset] for offset in range(first, end)]
            self.world.table.append(self.epoch, first, rows)
            self._show(end)

    def trim(self) -> None:
        if self.world.table.epoch != self.epoch:
            raise Fenced
        offset = len(self.world.table.rows)
        self.writer.flushed_below(self.pins.flushed_below(self.writer.next_number, lambda *_: offset, lambda _: True))
        for number in self.writer.deletable():
            self.store.delete(path_of(self.journal, number))
            self.writer.deleted(number)
