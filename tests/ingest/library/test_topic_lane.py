"""The core of the producers against a model of a server, over a network that loses, delays and reorders."""

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.client.core import NODE_TIMEOUT_MS, READ_TIMEOUT_MS, ConnectionFailed, Request, Response
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.ingest.library.batch import Batch, Failed, Landed
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.outbox import Departure, Outbox

TOPIC = "t"
STEPS_MAX = 20_000


class ManualClock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now_us(self) -> int:
        return int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Known:
    next_sequence: int = 0
    last_offset: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    """First sequence of a request to its first offset."""


class ModelServer:
    """The table of answers in the contract, and nothing else."""

    def __init__(self, partitions: int) -> None:
        self.log: list[list[bytes]] = [[] for _ in range(partitions)]
        self.known: dict[tuple[str, int], Known] = {}
        self.epochs: dict[str, int] = {}

    def answer(self, request: Request) -> Response:
        parts = urlsplit(request.path)
        try:
            match request.method, parts.path.split("/")[2:]:
                case "GET", ["topics", _]:
                    return reply(200, {"partitions": len(self.log)})
                case "GET", ["cluster"]:
                    return reply(200, {"limits": {"request_bytes": 10_000, "records": 50}})
                case "POST", ["topics", _, "producers", producer]:
                    return reply(200, self.claim(producer))
                case _:
                    return reply(200, self.publish(request, dict(parse_qsl(parts.query))))
        except SiltlogError as error:
            return reply(error.status or 500, problem_document(error, None))

    def claim(self, producer: str) -> dict[str, Any]:
        self.epochs[producer] = self.epochs.get(producer, 0) + 1
        parts = [
            {"partition": p, "next_sequence": known.next_sequence, "last_offset": known.last_offset}
            for (who, p), known in self.known.items()
            if who == producer
        ]
        return {"producer_epoch": self.epochs[producer], "partitions": parts}

    def publish(self, request: Request, query: dict[str, str]) -> dict[str, Any]:
        producer, headers = request.headers[names.HEADER_PRODUCER_ID], request.headers
        rows = pa.ipc.open_stream(b"".join(request.body)).read_all().to_pylist()
        if "partition" in query:
            first = int(headers[names.HEADER_SEQUENCE])
            rows = [row | {"partition": int(query["partition"]), "sequence": first + i} for i, row in enumerate(rows)]
        groups: dict[int, list[Any]] = {}
        for row in rows:
            groups.setdefault(row["partition"], []).append(row)
        if int(headers[names.HEADER_PRODUCER_EPOCH]) < self.epochs.get(producer, 0):
            raise problem("fenced_producer", "claimed", producer_epoch=self.epochs[producer])
        fresh = set()
        for p, part in groups.items():
            first, last = part[0]["sequence"], part[-1]["sequence"]
            known = self.known.get((producer, p))
            if known is None and first:
                raise problem("unknown_producer", "not known", partition=p, next_sequence=0)
            following = known.next_sequence if known is not None else 0
            if first == following:
                fresh.add(p)
            elif last >= following:
                raise problem("out_of_order_sequence", "out of order", partition=p, next_sequence=following)
        if fresh and int(headers[names.HEADER_PARTITION_COUNT]) != len(self.log):
            raise problem("partition_count_changed", "another count", partitions=len(self.log))
        for index, row in enumerate(rows):
            if row["value"].startswith(b"bad"):
                raise problem("invalid_record", "bad", index=index)
        return {"partitions": [self.append(producer, p, part, p in fresh) for p, part in groups.items()]}

    def append(self, producer: str, p: int, rows: list[Any], fresh: bool) -> dict[str, Any]:
        first = rows[0]["sequence"]
        known = self.known.setdefault((producer, p), Known())
        if fresh:
            known.offsets[first] = len(self.log[p])
            self.log[p] += [row["value"] for row in rows]
            known.next_sequence, known.last_offset = first + len(rows), len(self.log[p]) - 1
        offset = known.offsets[first]
        return {
            "partition": p, "count": len(rows), "first_offset": offset, "last_offset": offset + len(rows) - 1,
            "duplicate": not fresh,
        }  # fmt: skip


def reply(status: int, document: Any) -> Response:
    return Response(status, {"content-type": "application/problem+json"}, msgspec.json.encode(document))


class Simulation:
    """One producer's outbox, a server, and the requests between them, which a random generator moves about."""

    def __init__(self, seed: int, partitions: int, **options: Any) -> None:
        self.chosen = random.Random(seed)
        self.server = ModelServer(partitions)
        self.clock = ManualClock()
        self.lock = threading.Lock()
        given = {
            "acks": None, "compression": "none", "linger_ms": 5, "batch_bytes": 1_000, "buffer_bytes": 10**9,
            "max_block_ms": 0, "delivery_timeout_ms": 60_000, "request_timeout_ms": 1_000,
        }  # fmt: skip
        self.outbox = Outbox(Endpoints("http://a,http://b"), PublishOptions(**(given | options)), self.clock, self)
        self.outbox.accumulator._jitter = self.chosen.random
        self.air: list[Departure] = []
        self.answered: list[tuple[Departure, Response | ConnectionFailed]] = []
        self.zombies: list[Request] = []
        self.records: list[tuple[bytes, bytes | None, Batch, int]] = []
        self.faults = 0.0
        self.late = 0.0

    def hurry(self, batch: Batch) -> None: ...

    def changed(self, finished: bool) -> None: ...

    def send(self) -> None:
        bad = self.chosen.random() < 0.02
        value = b"%s%06d" % (b"bad" if bad else b"", len(self.records))
        key = b"k%d" % self.chosen.randrange(6) if self.chosen.random() < 0.5 else None
        batch, index, _ = self.outbox.accumulator.append(TOPIC, value, key, None, 0, None, 60, self.clock.monotonic)
        self.records.append((value, key, batch, index))

    def depart(self) -> None:
        lane = self.outbox.accumulator.take(self.clock.monotonic())
        if lane is not None:
            departure = self.outbox.depart(lane)
            if departure is not None:
                self.air.append(departure)

    def serve(self) -> None:
        """One request reaches the server, or does not, and its answer the client, or not."""
        if not self.air:
            return
        departure = self.air.pop(self.chosen.randrange(len(self.air)))
        request = departure.step.request
        fault = self.chosen.random()
        if fault >= self.faults:
            self.answered.append((departure, self.server.answer(request)))
            return
        kind = self.chosen.choice(["refused", "lost", "answer lost", "503", "500", "500 after", "late"])
        if kind == "late" and self.chosen.random() > self.late:
            kind = "lost"
        if kind == "late":
            self.zombies.append(request)
        if kind in ("answer lost", "500 after"):
            self.server.answer(request)
        if kind == "503":
            error = problem("overloaded", "busy", retry_after_ms=self.chosen.choice([0, 20, 3_000]))
            self.answered.append((departure, reply(503, problem_document(error, None))))
        elif kind.startswith("500"):
            self.answered.append((departure, reply(500, problem_document(problem("internal", "x"), None))))
        else:
            self.answered.append((departure, ConnectionFailed(kind, sent=kind != "refused")))

    def hear(self) -> None:
        if self.answered:
            departure, result = self.answered.pop(self.chosen.randrange(len(self.answered)))
            self.outbox.arrive(departure, result)

    def raise_the_dead(self) -> None:
        """What the client gave up on reaches the server after all."""
        if self.zombies:
            self.server.answer(self.zombies.pop(self.chosen.randrange(len(self.zombies))))

    def pass_time(self) -> None:
        self.clock.seconds += self.chosen.choice([0.0005, 0.005, 0.05, 0.5])

    def grow(self) -> None:
        if len(self.server.log) < 8:
            self.server.log.append([])

    def run(self, steps: int, actions: list[Any]) -> None:
        for _ in range(steps):
            self.chosen.choice(actions)()

    def settle(self) -> None:
        """No more faults: until everything is decided."""
        self.faults = 0.0
        self.outbox.accumulator.close_open()
        for _ in range(STEPS_MAX):
            if not self.outbox.accumulator.unfinished:
                return
            for action in (self.depart, self.serve, self.hear, self.raise_the_dead):
                action()
            due = self.outbox.accumulator.next_due()
            if not self.air and not self.answered and due is not None:
                self.clock.seconds = max(self.clock.seconds, due)
        raise AssertionError("records are never decided")

    def check(self, *, grown: bool) -> None:
        while self.zombies:
            self.raise_the_dead()
        stored = Counter(value for partition in self.server.log for value in partition)
        assert max(stored.values(), default=1) == 1, "a record is there twice"
        for batch in {id(batch): batch for *_, batch, _ in self.records}.values():
            covered = [index for outcome in batch.outcomes for index in range(outcome.start, outcome.stop)]
            assert batch.done and covered == list(range(batch.count)), "a record has no outcome, or several"
        places: dict[bytes, tuple[int, int]] = {}
        for value, key, batch, index in self.records:
            outcome = batch.outcome_of(index)
            if isinstance(outcome, Landed):
                metadata = batch.metadata(index)
                assert metadata.offset is not None
                assert self.server.log[metadata.partition][metadata.offset] == value
                places[value] = metadata.partition, metadata.offset
                assert grown or key is None or partition_of(key, len(self.server.log)) == metadata.partition
            else:
                assert isinstance(outcome, Failed)
                assert value not in stored or outcome.error.retryable == "unknown", "it failed, and is there"
                assert outcome.error.retryable != "no" or value.startswith(b"bad")
        self._check_order(places, grown)
        assert self.outbox.accumulator.used_bytes == 0
        metrics = self.outbox.metrics()
        assert metrics.records_acknowledged == len(places)
        assert metrics.records_acknowledged + metrics.records_failed == len(self.records)
        assert metrics.requests_in_flight == 0 and metrics.bytes_buffered == 0

    def _check_order(self, places: dict[bytes, tuple[int, int]], grown: bool) -> None:
        """In each partition offsets rise as the records were sent; where partitions were added, for each key."""
        last: dict[Any, int] = {}
        for value, key, _, _ in self.records:
            if value in places and not (grown and key is None):
                partition, offset = places[value]
                lane = (partition, key) if grown else partition
                assert last.get(lane, -1) < offset, "out of order"
                last[lane] = offset


@pytest.mark.rule("X2", "X3")
@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([0.0, 0.2, 0.6]), st.booleans())
def test_each_record_is_decided_once_lands_once_and_in_order(
    seed: int, partitions: int, faults: float, grows: bool
) -> None:
    simulation = Simulation(seed, partitions)
    simulation.faults = faults
    actions = [simulation.send] * 6 + [simulation.depart, simulation.serve, simulation.hear] * 2
    actions += [simulation.pass_time] + ([simulation.grow] if grows else [])
    simulation.run(250, actions)
    simulation.settle()
    simulation.check(grown=len(simulation.server.log) > partitions)
    failed = simulation.outbox.metrics().records_failed
    assert failed == sum(value.startswith(b"bad") for value, *_ in simulation.records), "time was not over for any"


@pytest.mark.rule("X4")
@settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([500, 3_000]))
@example(1223127738, 2, 3_000).via("a claim that got no answer arrives when nothing waits for it any more")
def test_whatever_comes_late_or_not_at_all_nothing_is_doubled_and_nobody_is_told_wrong(
    seed: int, partitions: int, timeout_ms: int
) -> None:
    simulation = Simulation(seed, partitions, delivery_timeout_ms=timeout_ms)
    simulation.faults, simulation.late = 0.7, 0.7
    actions = [simulation.send] * 5 + [simulation.depart, simulation.serve, simulation.hear] * 2
    actions += [simulation.pass_time, simulation.raise_the_dead]
    simulation.run(300, actions)
    simulation.settle()
    simulation.check(grown=False)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_server_that_forgets_its_producers_is_told_again(seed: int, partitions: int) -> None:
    """Nothing is lost on the way here: a server that forgot what it answered for cannot tell a duplicate."""
    simulation = Simulation(seed, partitions)

    def forget() -> None:
        for known in list(simulation.server.known):
            if simulation.chosen.random() < 0.5 and not simulation.answered and not simulation.air:
                del simulation.server.known[known]

    actions = [simulation.send] * 6 + [simulation.depart, simulation.serve, simulation.hear] * 2
    simulation.run(300, [*actions, simulation.pass_time, forget])
    simulation.settle()
    simulation.check(grown=False)


def test_ending_leaves_nothing_undecided() -> None:
    for seed in range(40):
        simulation = Simulation(seed, 3)
        simulation.faults = 0.9
        simulation.run(200, [simulation.send, simulation.depart, simulation.serve, simulation.hear])
        simulation.outbox.accumulator.end()
        simulation.settle()
        simulation.check(grown=False)


@pytest.mark.parametrize("retry_after_ms", [700, 5_000])
def test_nothing_is_sent_before_the_server_asked_for_it(retry_after_ms: int) -> None:
    simulation = Simulation(1, 1, linger_ms=0)
    simulation.send()
    for _ in range(3):
        simulation.depart()
        simulation.serve()
        simulation.hear()
    assert not simulation.outbox.accumulator.unfinished
    simulation.send()
    simulation.depart()
    error = problem("rate_limited", "slowly", retry_after_ms=retry_after_ms)
    simulation.answered.append((simulation.air.pop(), reply(429, problem_document(error, None))))
    simulation.hear()
    simulation.send()
    due = simulation.outbox.accumulator.next_due()
    assert due is not None and due - simulation.clock.seconds >= retry_after_ms / 1_000
    simulation.depart()
    assert not simulation.air
    simulation.settle()
    simulation.check(grown=False)


@pytest.mark.rule("CR15")
def test_a_node_that_answers_no_question_is_left_for_another_and_the_second_is_waited_for() -> None:
    simulation = Simulation(1, 1, linger_ms=0)
    simulation.send()
    asked = []
    for _ in range(3):
        simulation.depart()
        departure = simulation.air.pop()
        asked.append((departure.send.url, departure.send.request.answer_timeout_ms))
        simulation.answered.append((departure, ConnectionFailed("no answer", sent=True)))
        simulation.hear()
        simulation.clock.seconds += 3
    assert asked == [("http://a", NODE_TIMEOUT_MS), ("http://b", READ_TIMEOUT_MS), ("http://a", NODE_TIMEOUT_MS)]
    simulation.settle()
    assert sum(map(len, simulation.server.log)) == 1


@pytest.mark.rule("X2")
def test_nothing_flies_beside_a_request_that_was_placed_by_another_count() -> None:
    simulation = Simulation(1, 2, linger_ms=0)
    simulation.send()
    for _ in range(4):
        simulation.depart()
        simulation.serve()
        simulation.hear()
    keys = {partition_of(key, 2): key for key in (b"k%d" % number for number in range(9))}
    for key in keys.values():
        simulation.outbox.accumulator.append(TOPIC, b"v", key, None, 0, None, 1_000, simulation.clock.monotonic)
        simulation.depart()
    late, refused = simulation.air
    simulation.grow()
    simulation.air.remove(refused)
    simulation.outbox.arrive(refused, simulation.server.answer(refused.step.request))
    for _ in range(3):
        simulation.depart()
    assert simulation.air == [late], "what was refused waits: the other may still land where the former count says"
    simulation.settle()
    assert sum(map(len, simulation.server.log)) == 3
