"""Many processes at once as the same producers: gaps, duplicates and retries beside their originals, several partitions
in one request, claims in between, and a kill. A request is appended whole or refused whole; then the books are read."""

import random
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from evidence import Found, read_api
from failure_rig import StartServer
from publishers import LOST, PAUSE_S, Reply, Wire

PARTITIONS = 3
PATH = "/v1/topics/logs/records"
PRODUCERS = ("contiguous", "increasing")
WORKERS = 4
STEPS = 60


@dataclass
class Sent:
    """One request, which may have been made several times, and all that was answered; status 0 where nothing was."""

    producer: str
    epoch: int
    sequences: dict[int, list[int]]
    """What was sent to each partition."""
    replies: list[Reply] = field(default_factory=list)


@dataclass
class Claimed:
    producer: str
    epoch: int
    next_sequences: dict[int, int]


@dataclass
class Known:
    """What the workers believe of a producer, rightly or not."""

    epoch: int = 0
    next_sequences: list[int] = field(default_factory=lambda: [0] * PARTITIONS)


class Crowd:
    def __init__(self, url: str, seed: int) -> None:
        self.sent: list[Sent] = []
        self.claims: list[Claimed] = []
        self._url = url
        self._seed = seed
        self._known = {producer: Known() for producer in PRODUCERS}
        self._lock = threading.Lock()

    def work(self, worker: int) -> None:
        rng = random.Random(f"{self._seed} {worker}")
        wire = Wire(self._url)
        for _ in range(STEPS):
            producer = rng.choice(PRODUCERS)
            if rng.random() < 0.08:
                self._claim(wire, producer)
            else:
                self._publish(wire, producer, rng)

    def _claim(self, wire: Wire, producer: str) -> None:
        try:
            reply = wire.call("POST", f"/v1/topics/logs/producers/{producer}")
        except LOST:
            time.sleep(PAUSE_S)
            return
        epoch = reply.document["producer_epoch"]
        told = {part["partition"]: part["next_sequence"] for part in reply.document["partitions"]}
        with self._lock:
            self.claims.append(Claimed(producer, epoch, told))
            known = self._known[producer]
            if epoch > known.epoch:
                known.epoch = epoch
                for partition, sequence in told.items():
                    known.next_sequences[partition] = sequence

    def _publish(self, wire: Wire, producer: str, rng: random.Random) -> None:
        with self._lock:
            number, sent = len(self.sent), self._made(producer, rng)
            self.sent.append(sent)
        records = [
            {"value": f"{number} {sequence}", "partition": partition, "sequence": sequence}
            for partition, sequences in sent.sequences.items()
            for sequence in sequences
        ]
        headers = {"Silt_Producer_Id": producer, "Silt_Producer_Epoch": str(sent.epoch)}
        if producer == "increasing":
            headers["Silt_Sequence_Mode"] = "increasing"

        def publish(wire: Wire) -> None:
            try:
                sent.replies.append(wire.call("POST", PATH, {"records": records}, **headers))
            except LOST:
                sent.replies.append(Reply(0, {}))
                time.sleep(PAUSE_S)

        # The retry may overtake the original, or come while that waits for its sync.
        beside = threading.Thread(target=publish, args=(Wire(self._url),))
        if rng.random() < 0.3:
            beside.start()
        publish(wire)
        if beside.ident is not None:
            beside.join()
        if sent.replies[-1].status == 0:
            publish(wire)
        refused = sent.replies[-1].document
        if refused.get("error_code") == "out_of_order_sequence":
            with self._lock:
                for part in refused["partitions"]:
                    self._known[producer].next_sequences[part["partition"]] = part["next_sequence"]

    def _made(self, producer: str, rng: random.Random) -> Sent:
        known = self._known[producer]
        sequences = {}
        for partition in rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS)):
            after, count = known.next_sequences[partition], rng.choice((1, 3, 20))
            moved = rng.choices((0, -count, -count // 2, 2), (70, 15, 8, 7))[0]
            first = max(0, after + moved)
            sequences[partition] = list(range(first, first + count))
            if producer == "increasing":
                sequences[partition] = sorted(rng.sample(range(first, first + 2 * count), count))
            # Others go on behind it before it is answered.
            known.next_sequences[partition] = max(after, sequences[partition][-1] + 1)
        return Sent(producer, max(0, known.epoch - (rng.random() < 0.1)), sequences)


@pytest.mark.slow
def test_each_request_is_there_whole_or_not_at_all(make_server: StartServer, rng: random.Random) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", PARTITIONS)
    crowd = Crowd(server.url, rng.getrandbits(32))
    with ThreadPoolExecutor(WORKERS) as threads:
        working = [threads.submit(crowd.work, worker) for worker in range(WORKERS)]
        while len(crowd.sent) < WORKERS * STEPS // 3 and not any(work.done() for work in working):
            time.sleep(PAUSE_S)
        server.kill()
        server.start()
        for work in working:
            work.result(120)
    statuses = {reply.status for sent in crowd.sent for reply in sent.replies}
    assert {200, 409} <= statuses <= {0, 200, 409}, statuses
    check(crowd, read_api(wire, "logs", PARTITIONS))


def check(crowd: Crowd, found: list[Found]) -> None:
    there: dict[tuple[str, int], dict[int, tuple[int, Found]]] = defaultdict(dict)
    """Keyed by producer and partition: sequence -> epoch and record."""
    for row in sorted(found):
        number, sequence = map(int, row.value.split())
        sent = crowd.sent[number]
        known = there[sent.producer, row.partition]
        assert sequence > max(known, default=-1), f"{row}: twice, or out of order"
        assert sent.epoch >= max((epoch for epoch, _ in known.values()), default=0), f"{row}: it was fenced"
        known[sequence] = (sent.epoch, row)
    for partition in range(PARTITIONS):
        sequences = list(there["contiguous", partition])
        assert sequences == list(range(len(sequences))), f"partition {partition}: a gap was let in"
    for number, sent in enumerate(crowd.sent):
        own = {p: [s for s in sequences if _is(there, sent, p, s, number)] for p, sequences in sent.sequences.items()}
        if any(own.values()):
            assert all(reply.status in (0, 200, 409) for reply in sent.replies)
            assert any(reply.status in (0, 200) for reply in sent.replies), f"{sent}: refused, and there"
        if any(own.values()) or any(reply.status == 200 for reply in sent.replies):
            for partition, sequences in sent.sequences.items():
                _check_share(sent, sequences, own[partition], there[sent.producer, partition])
        for reply in sent.replies:
            if reply.status == 200:
                _check_places(sent, reply, there)
    for claim in crowd.claims:
        for partition in range(PARTITIONS):
            known = there[claim.producer, partition]
            stopped = claim.next_sequences.get(partition, 0)
            assert stopped <= max(known, default=-1) + 1, f"{claim}: it told of what is not there"
            assert all(epoch >= claim.epoch for sequence, (epoch, _) in known.items() if sequence >= stopped), claim


def _is(
    there: dict[tuple[str, int], dict[int, tuple[int, Found]]], sent: Sent, partition: int, sequence: int, number: int
) -> bool:
    """Whether what is stored of that sequence came with this request, rather than with another that had it too."""
    stored = there[sent.producer, partition].get(sequence)
    return stored is not None and stored[1].value == f"{number} {sequence}"


def _check_share(sent: Sent, sequences: list[int], own: list[int], known: dict[int, tuple[int, Found]]) -> None:
    assert sequences[-1] <= max(known, default=-1), f"{sent}: a part of it is missing"
    if sent.producer == "contiguous":
        assert own in ([], sequences), f"{sent}: {own} of {sequences}"
        assert all(sequence in known for sequence in sequences), sent
    else:
        assert own == sequences[len(sequences) - len(own) :], f"{sent}: {own} of {sequences}"


def _check_places(sent: Sent, reply: Reply, there: dict[tuple[str, int], dict[int, tuple[int, Found]]]) -> None:
    places = iter(reply.document["records"])
    for partition, sequences in sent.sequences.items():
        for sequence, (at, offset) in zip(sequences, places, strict=False):
            assert at == partition
            if offset is not None:
                assert there[sent.producer, partition][sequence][1].offset == offset, f"{sent}: {sequence}"
