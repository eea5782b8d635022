"""Retries and dead letters against a model of the server: crashes, partitions that move, calls that fail."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from chaos import seeds

from siltlog.consumers.library.assignment import Watcher
from siltlog.consumers.library.handling.handling import Handling
from siltlog.consumers.library.handling.partition_lane import PartitionLane, work
from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import Beat
from siltlog.consumers.library.options import ConsumerOptions, HandlingOptions
from siltlog.consumers.library.positions import Fetch
from siltlog.consumers.library.program import Program, Tell
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.consumers.library.sources.server import Fetched
from siltlog.infra.client.core import Request, Response
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable, problem
from siltlog.infra.records import Bounds

PARTITIONS = 3
RECORDS = 60
WORKERS = 2
MAX_ATTEMPTS = 4
CRASHES_MAX = 2
LIVES_MAX = 40
STEPS_MAX = 4_000
Place = tuple[int, int]
"""Partition, offset."""


class Crash(BaseException):
    """The process of the consumer ends."""


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0

    def now_us(self) -> int:
        return int(self.now * 1e6)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Model:
    """What the server keeps; refuses what it must, and checks that nothing is passed that was not handled."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.committed = [0] * PARTITIONS
        self.delivered = [0] * PARTITIONS
        self.starts = [0] * PARTITIONS
        self.gone: set[Place] = set()
        """Deleted before they were handled."""
        self.open: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.suspects: dict[Place, str | None] = {}
        """Tells whose first attempt was counted because they may have ended a consumer, and by whom."""
        self.settled: set[Place] = set()
        self.dead: list[Place] = []
        self.generation = 0
        self.owned: set[int] = set()
        self.told = 0

    def joined(self) -> None:
        """Another consumer has everything."""
        self.move(range(PARTITIONS))

    def move(self, owned: Sequence[int]) -> None:
        self.owned = set(owned)
        self.generation += 1

    def delete(self, partition: int, start: int) -> None:
        """The log start moves."""
        self.starts[partition] = max(self.starts[partition], start)
        below = {(partition, offset) for offset in range(start)}
        self.gone |= below - self.settled
        self.settled |= below

    def answer(self, request: Request, *, faults: bool = True) -> Response:
        """Performs a call; some are refused, and of some the reply is lost."""
        if faults and self.rng.random() < 0.05:
            raise Unavailable("not now")
        document = msgspec.json.decode(request.body[0]) if request.body else {}
        reply = self._perform(request, document)
        if faults and request.repeatable and self.rng.random() < 0.05:
            raise OutcomeUnknown("lost")
        return Response(200, {}, msgspec.json.encode(reply))

    def _perform(self, request: Request, document: dict[str, Any]) -> Any:
        if request.path.startswith("/v1/topics/"):
            return {
                "topic_id": "t",
                "partitions": [
                    {
                        "partition": number,
                        "log_start_offset": start,
                        "table_offset": 0,
                        "high_watermark": RECORDS,
                    }
                    for number, start in enumerate(self.starts)
                ],
            }
        if "/members/" in request.path:
            return self._heartbeat(document)
        if request.path.endswith("/offsets"):
            return self._commit(document)
        partition, offset = document["partition"], document["offset"]
        self._check(document["generation"], partition)
        if offset < self.starts[partition]:
            raise problem("offset_out_of_range", "gone", log_start_offset=self.starts[partition])
        if request.path.endswith("/attempts"):
            assert offset >= self.committed[partition], "what is done is not tried"
            return self._count((partition, offset), document)
        assert request.path.endswith("/dead_letters")
        assert not [lower for lower in self.open[partition] if self.committed[partition] <= lower < offset]
        if (partition, offset) not in self.dead:
            self.dead.append((partition, offset))
        self.settled.add((partition, offset))
        self._pass(partition, max(offset + 1, self.committed[partition]), None)
        return {}

    def _count(self, place: Place, document: dict[str, Any]) -> Any:
        """Follows `attempts.lua`: an attempt that was not counted is, once its record has ended another consumer."""
        counts, most = self.open[place[0]], document.get("attempts_max")
        if place[1] not in counts:
            self.suspects[place] = document["member_id"] if most is not None else None
        count = counts.get(place[1], 0)
        if most is not None:
            if self.suspects[place] not in (None, document["member_id"]):
                count, self.suspects[place] = count + 1, None
            elif self.suspects[place] is not None:
                self.suspects[place] = document["member_id"]
            if count >= most:
                counts[place[1]] = count
                return {"attempts": count, "spent": True}
        counts[place[1]] = count + 1
        return {"attempts": count + 1, "spent": False}

    def _heartbeat(self, document: dict[str, Any]) -> Any:
        changed = document["generation"] < self.generation
        places = [
            {"topic": "t", "partition": p, "offset": max(self.committed[p], self.starts[p])}
            | ({"delivered": self.delivered[p]} if self.delivered[p] else {})
            for p in sorted(self.owned)
        ]
        return {"generation": self.generation, "assignment": places if changed else None}

    def _commit(self, document: dict[str, Any]) -> Any:
        for at in document["offsets"]:
            self._check(document["generation"], at["partition"])
            if at["offset"] < self.starts[at["partition"]]:
                raise problem("invalid_request", "outside", log_start_offset=self.starts[at["partition"]])
        for at in document["offsets"]:
            self._pass(at["partition"], at["offset"], at.get("delivered"))
        return {}

    def _check(self, generation: int, partition: int) -> None:
        # Who is about to learn that a partition goes may still commit there.
        if generation < self.generation - 1 and partition not in self.owned:
            raise problem("fenced_member", "not yours", partitions=[])

    def _pass(self, partition: int, offset: int, delivered: int | None) -> None:
        for passed in range(self.committed[partition], offset):
            assert (partition, passed) in self.settled, "a commit passed what was not handled"
        assert offset >= self.committed[partition]
        self.committed[partition] = offset
        self.open[partition] = {at: count for at, count in self.open[partition].items() if at >= offset}
        to = self.delivered[partition] if delivered is None else delivered
        self.delivered[partition] = to if to > offset else 0


class Life:
    """One consumer from its start to its end, or its crash."""

    def __init__(self, model: Model, rng: random.Random, clock: ManualClock, kinds: Mapping[Place, str]) -> None:
        self.model, self.rng, self.clock, self.kinds = model, rng, clock, kinds
        options = ConsumerOptions(
            group="g",
            topics=["t"],
            topic_pattern=None,
            assign=[],
            auto_offset_reset="earliest",
            auto_commit=rng.random() < 0.5,
            auto_commit_interval_ms=50,
            isolation="wal",
            read="server",
            stop_at=None,
            idle_timeout_ms=None,
            buffer_bytes=64 * 1024,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            max_poll_interval_ms=3_600_000,
            retry_timeout_ms=3_600_000,
            client_id=None,
            instance_id=None,
            on_assigned=None,
            on_revoked=None,
            on_lost=None,
        )
        self.inbox = Inbox(options, clock)
        handling = HandlingOptions(MAX_ATTEMPTS, 10, 100, WORKERS)
        self.handling = Handling(self.inbox, handling, clock, rng.random)
        self.inbox.done_is_said = True
        self.inbox.assignment.watchers.insert(0, Watcher(None, self.revoked, self.handling.drop))
        self.busy: list[PartitionLane] = []

    def drive(self, program: Program[Any]) -> None:
        answer: Any = None
        raised: BaseException | None = None
        while True:
            try:
                step = program.send(answer) if raised is None else program.throw(raised)
            except StopIteration:
                return
            answer = raised = None
            try:
                answer = step.callback(step.partitions) if isinstance(step, Tell) else self.model.answer(step)
            except SiltlogError as error:
                raised = error

    def revoked(self, partitions: list[TopicPartition]) -> None:
        for lane in self.handling.stop(partitions):
            if self.rng.random() < 0.5:
                self.work(lane)
        self.drive(self.handling.release(partitions))

    def work(self, lane: PartitionLane) -> None:
        self.busy.remove(lane)
        error = work(lane, self.handle, self.clock, self.handling.halts, lambda: self.rng.random() < 0.2)
        if isinstance(error, Crash):
            raise error
        self.handling.finished(lane, error)

    def handle(self, record: ConsumerRecord) -> None:
        self.clock.now += 0.003
        place = record.partition, record.offset
        assert all((place[0], lower) in self.model.settled for lower in range(place[1])), "order is kept"
        state = self.inbox.positions.states.get(TopicPartition(record.topic, record.partition))
        assert state is None or not state.paused, "nothing of what is paused is begun"
        if state is not None and self.rng.random() < 0.05:
            self.inbox.pause([state.at], True)
        kind = self.kinds.get(place, "")
        seen[place] += 1
        if kind == "kills":
            raise Crash
        if kind == "fails" or (kind == "fails once" and seen[place] == 1):
            raise ValueError(kind)
        self.model.settled.add(place)

    def step(self) -> None:
        self.clock.now += self.rng.choice((0.001, 0.01, 0.05))
        assert self.inbox.member is not None
        beat = self.inbox.member.next_step(self.clock.now)
        if isinstance(beat, Beat):
            try:
                answer: Any = self.model.answer(beat.request).json()
            except SiltlogError as error:
                answer = error
            self.inbox.member.heard(beat, answer, self.clock.now, 0.5)
        self.drive(self.handling.attend())
        if self.rng.random() < 0.2:
            self.inbox.pause(self.inbox.positions.states, False)
        for fetch in self.inbox.depart():
            self.inbox.arrive(fetch, self.read(fetch))
        while (lane := self.handling.startable()) is not None:
            assert len(self.busy) < WORKERS, "as many at a time as there are workers"
            assert lane.at not in {other.at for other in self.busy}, "one at a time in a partition"
            self.busy.append(lane)
        for lane in list(self.busy):
            if self.rng.random() < 0.6:
                self.work(lane)

    def read(self, fetch: Fetch) -> list[Fetched]:
        found = []
        for wanted in fetch.plan.wanted:
            bounds = Bounds(self.model.starts[wanted.at.partition], 0, RECORDS)
            if wanted.offset < bounds.log_start_offset:
                error = problem("offset_out_of_range", "gone")
                found.append(Fetched(wanted.at, wanted.offset, None, bounds, error))
                continue
            count = self.rng.randrange(1, 40)
            offsets = range(wanted.offset, min(wanted.offset + count, RECORDS))
            rows = [
                {"topic": "t", "partition": wanted.at.partition, "offset": offset, "timestamp": 0, "value": b"x"}
                for offset in offsets
            ]
            table = pa.Table.from_pylist(rows, FETCH_SCHEMA) if rows else None
            found.append(Fetched(wanted.at, wanted.offset + len(rows), table, bounds))
        return found


seen: Counter[Place] = Counter()


@pytest.mark.rule("D1", "D2", "D8")
@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(40))
def test_every_record_is_handled_or_given_up_alone(seed: int) -> None:
    rng = random.Random(seed)
    seen.clear()
    kinds: dict[Place, str] = {}
    for kind in ("kills", "fails", "fails once", "fails once"):
        for _ in range(rng.randrange(3)):
            kinds[rng.randrange(PARTITIONS), rng.randrange(RECORDS)] = kind
    poison = {place for place, kind in kinds.items() if kind != "fails once"}
    every = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    model, clock = Model(rng), ManualClock()
    crashes = 0
    for _ in range(LIVES_MAX):
        model.joined()
        life = Life(model, rng, clock, kinds)
        try:
            for _ in range(STEPS_MAX):
                life.step()
                if model.settled == every and life.handling.idle:
                    break
                if crashes < CRASHES_MAX and rng.random() < 0.005:
                    crashes += 1
                    raise Crash
                if rng.random() < 0.003:
                    model.delete(rng.randrange(PARTITIONS), rng.randrange(RECORDS))
                if rng.random() < 0.02:
                    model.move([p for p in range(PARTITIONS) if rng.random() < 0.7])
                elif rng.random() < 0.2:
                    model.joined() if len(model.owned) < PARTITIONS else None
            else:
                pytest.fail("it does not get on")
        except Crash:
            continue
        life.drive(life.handling.release(sorted(life.inbox.positions.states)))
        break
    assert model.settled == every
    assert max(Counter(model.dead).values(), default=1) == 1
    assert poison - model.gone <= set(model.dead) <= poison
    assert all(seen[place] <= MAX_ATTEMPTS for place, kind in kinds.items() if kind == "kills")
    assert all(seen[place] >= MAX_ATTEMPTS - CRASHES_MAX for place in model.dead if kinds[place] == "fails")


class Calm(random.Random):
    """Nothing fails, nothing moves, and workers do their work; what is drawn lies in the middle."""

    def random(self) -> float:
        return 0.5


@pytest.mark.rule("D1", "D3")
def test_the_group_is_told_far_ahead_and_a_partition_let_go_in_order_leaves_no_suspects() -> None:
    rng = Calm()
    model = Model(rng)
    model.joined()
    life = Life(model, rng, ManualClock(), {})
    every = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}
    tells = 0
    for _ in range(STEPS_MAX):
        before = list(model.delivered)
        life.step()
        tells += before != model.delivered
        for partition, offset in model.settled:
            assert offset < max(model.delivered[partition], model.committed[partition])
        if model.settled == every and life.handling.idle:
            break
    assert model.settled == every
    assert tells <= PARTITIONS, "once for each partition, however many runs its records come in"
    assert min(model.delivered) > RECORDS
    life.drive(life.handling.release(sorted(life.inbox.positions.states)))
    assert (model.committed, model.delivered) == ([RECORDS] * PARTITIONS, [0] * PARTITIONS)


class ManyPartitions:
    """A run over partitions that all have records, whose handler fails while it is told to."""

    def __init__(self, partitions: int, records: int, value_bytes: int) -> None:
        options = ConsumerOptions(group="g", topics=["t"], buffer_bytes=64 * 1024)
        self.clock = ManualClock()
        self.inbox = Inbox(options, self.clock)
        self.inbox.assignment.known = True
        self.handling = Handling(self.inbox, HandlingOptions(1_000, 1_000, 1_000, WORKERS), self.clock, lambda: 0.5)
        self.inbox.done_is_said = True
        self.fails = True
        self.records = records
        self.value = b"v" * value_bytes
        self.handled: dict[int, list[int]] = {p: [] for p in range(partitions)}
        for partition in range(partitions):
            self.inbox.positions.assign(TopicPartition("t", partition), 0)

    @property
    def lanes(self) -> list[PartitionLane]:
        return list(self.handling._lanes.values())

    def drive(self) -> None:
        program = self.handling.attend()
        answer: Any = None
        with suppress(StopIteration):
            while True:
                step = program.send(answer)
                assert isinstance(step, Request)
                answer = Response(200, {}, msgspec.json.encode({"attempts": 1, "spent": False}))

    def step(self) -> None:
        self.drive()
        for fetch in self.inbox.depart():
            self.inbox.arrive(fetch, [self.read(wanted.at, wanted.offset) for wanted in fetch.plan.wanted])
        while (lane := self.handling.startable()) is not None:
            self.handling.finished(lane, work(lane, self.handle, self.clock, self.handling.halts, lambda: False))

    def read(self, at: TopicPartition, offset: int) -> Fetched:
        rows = [
            {"topic": "t", "partition": at.partition, "offset": one, "timestamp": 0, "value": self.value}
            for one in range(offset, min(offset + 40, self.records))
        ]
        table = pa.Table.from_pylist(rows, FETCH_SCHEMA) if rows else None
        return Fetched(at, offset + len(rows), table, Bounds(0, 0, self.records))

    def handle(self, record: ConsumerRecord) -> None:
        if self.fails:
            raise ValueError("all do")
        self.handled[record.partition].append(record.offset)


@pytest.mark.rule("M16")
@pytest.mark.parametrize(("value_bytes", "rest_at_most"), [(10, 50), (10_000, 10)])
def test_what_a_run_holds_is_bounded_while_every_record_fails(value_bytes: int, rest_at_most: int) -> None:
    run = ManyPartitions(50, 60, value_bytes)
    most = 0
    for _ in range(200):
        run.step()
        resting = [lane for lane in run.lanes if lane.rests_until > run.clock.now]
        assert all(len(lane.records) == lane.run.rows.num_rows == 1 for lane in resting)
        most = max(most, len(resting))
        assert len(run.lanes) - len(resting) <= 4 * WORKERS
    assert rest_at_most / 2 <= most <= rest_at_most + 4 * WORKERS
    run.fails = False
    for _ in range(3_000):
        run.clock.now += 0.5
        run.step()
        if all(len(handled) == run.records for handled in run.handled.values()):
            break
    assert all(handled == list(range(run.records)) for handled in run.handled.values()), "in order, and each once"
