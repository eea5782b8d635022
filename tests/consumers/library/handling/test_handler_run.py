"""Consumer.run against a real server: retries, dead letters, workers, and processes that are killed."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import started
from chaos import more
from waiting import until

from siltlog.consumers.library.async_consumer import AsyncConsumer
from siltlog.consumers.library.consumer import Consumer
from siltlog.consumers.library.record import ConsumerRecord
from siltlog.infra import errors
from siltlog.infra.client.admin import Admin
from siltlog.infra.client.record import TopicPartition
from siltlog.ingest.library.producer import Producer
from siltlog.testing import running_server

PARTITIONS = 4
QUICK: dict[str, Any] = {"backoff_ms": 1, "backoff_ms_max": 20}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(flush_ms=100) as server:
        yield server.url


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:150].replace("[", ".").replace("]", "")
    with Admin(url) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


def publish(url: str, topic: str, count: int) -> None:
    with Producer(url) as producer:
        for i in range(count):
            producer.send(topic, b"%d" % i, partition=i % PARTITIONS)


def number(record: ConsumerRecord) -> int:
    return int(record.value or b"")


def consumer_of(url: str, topic: str, **options: Any) -> Consumer:
    return Consumer(url, group=topic, topics=[topic], **{"stop_at": "latest", **options})


def committed(url: str, group: str) -> dict[int, int]:
    with Admin(url) as admin:
        return {at.partition: offset for at, offset in admin.group_offsets(group).items()}


def dead(url: str, topic: str) -> list[tuple[int, dict[str, str]]]:
    """The dead letters of a topic: the number each was, and what is said about it."""
    at = [TopicPartition(f"{topic}.dlq", partition) for partition in range(PARTITIONS)]
    with Consumer(url, assign=at, stop_at="latest") as consumer:
        return sorted(
            (number(record), {name: (value or b"").decode() for name, value in record.headers}) for record in consumer
        )


@pytest.mark.parametrize("workers", [1, 3])
def test_every_record_is_handled_in_order_and_committed(url: str, topic: str, workers: int) -> None:
    publish(url, topic, 3_000)
    seen: dict[int, list[int]] = defaultdict(list)
    with consumer_of(url, topic) as consumer:
        consumer.run(lambda record: seen[record.partition].append(number(record)), workers=workers)
        assert seen == {p: list(range(p, 3_000, PARTITIONS)) for p in range(PARTITIONS)}
        assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 750)
        # And goes on where it was.
        publish(url, topic, 4)
        consumer.run(lambda record: seen[record.partition].append(number(record)), workers=workers)
    assert [handled[750:] for _, handled in sorted(seen.items())] == [[0], [1], [2], [3]]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_record_that_fails_is_tried_again_then_given_up_alone(url: str, topic: str, workers: int) -> None:
    publish(url, topic, 400)
    seen: Counter[int] = Counter()
    order: dict[int, list[int]] = defaultdict(list)

    def handle(record: ConsumerRecord) -> None:
        seen[number(record)] += 1
        if number(record) == 101 or (number(record) == 202 and seen[202] < 3):
            raise ValueError(f"no {number(record)}")
        order[record.partition].append(number(record))

    with consumer_of(url, topic) as consumer:
        consumer.run(handle, max_attempts=4, workers=workers, **QUICK)
    assert {i: times for i, times in seen.items() if times > 1} == {101: 4, 202: 3}
    assert len(seen) == 400
    assert {p: [i for i in range(p, 400, PARTITIONS) if i != 101] for p in range(PARTITIONS)} == order
    [(which, said)] = dead(url, topic)
    assert which == 101
    assert said["silt.error"] == "ValueError: no 101"
    assert (said["silt.attempts"], said["silt.partition"], said["silt.offset"]) == ("4", "1", "25")
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 100)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_whatever_a_handler_raises_is_said(url: str, topic: str) -> None:
    publish(url, topic, 4)
    errors_of = [ValueError("\ud800"), Unprintable(), KeyError("k"), ValueError("x" * 5_000)]

    def handle(record: ConsumerRecord) -> None:
        raise errors_of[number(record)]

    with consumer_of(url, topic) as consumer:
        consumer.run(handle, max_attempts=1)
    said = [headers["silt.error"] for _, headers in dead(url, topic)]
    assert said[0] == "ValueError: ?"
    assert "Unprintable" in said[1]
    assert said[2] == "KeyError: 'k'"
    assert said[3].startswith("ValueError: xxx") and len(said[3]) == 1_000


def test_a_partition_whose_record_rests_does_not_hold_up_others(url: str, topic: str) -> None:
    publish(url, topic, 400)
    seen: Counter[int] = Counter()
    consumer = consumer_of(url, topic, stop_at=None)

    def handle(record: ConsumerRecord) -> None:
        if number(record) == 0:
            raise ValueError("not yet")
        seen[record.partition] += 1
        if sum(seen.values()) == 300:
            consumer.wakeup()

    with consumer:
        # For an hour, if it has to be.
        consumer.run(handle, backoff_ms=3_600_000, backoff_ms_max=3_600_000)
    assert seen == {1: 100, 2: 100, 3: 100}
    assert committed(url, topic) == {0: 0, 1: 100, 2: 100, 3: 100}
    assert dead_topic(url, topic) is False


def dead_topic(url: str, topic: str) -> bool:
    with Admin(url) as admin:
        return any(one["name"] == f"{topic}.dlq" for one in admin.topics())


def test_attempts_go_on_being_counted_by_the_next_consumer(url: str, topic: str) -> None:
    publish(url, topic, 1)
    tried = 0

    def handle(record: ConsumerRecord) -> None:
        nonlocal tried
        tried += 1
        consumer.wakeup()
        raise ValueError("no")

    for _ in range(3):
        with consumer_of(url, topic, stop_at=None) as consumer:
            consumer.run(handle, max_attempts=3, backoff_ms=0)
    assert tried == 3
    with consumer_of(url, topic) as consumer:
        consumer.run(handle, max_attempts=3, backoff_ms=0)
    assert len(dead(url, topic)) == 1
    assert tried <= 4


def test_what_is_no_exception_ends_the_run_and_leaves_the_record(url: str, topic: str) -> None:
    publish(url, topic, 8)
    for workers in (1, 2):
        with consumer_of(url, topic) as consumer, pytest.raises(KeyboardInterrupt):
            consumer.run(_interrupt, workers=workers)
    assert committed(url, topic).get(0, 0) == 0
    seen: list[int] = []
    with consumer_of(url, topic) as consumer:
        consumer.run(lambda record: seen.append(number(record)))
    assert sorted(seen) == list(range(8))


def _interrupt(record: ConsumerRecord) -> None:
    raise KeyboardInterrupt


def test_what_is_done_is_committed_when_several_workers_raise_what_is_no_exception(url: str, topic: str) -> None:
    publish(url, topic, 80)
    seen: Counter[int] = Counter()
    both = threading.Barrier(2)

    def handle(record: ConsumerRecord) -> None:
        if seen[record.partition] == 7:
            both.wait(30)
            raise KeyboardInterrupt
        seen[record.partition] += 1

    with consumer_of(url, topic) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.run(handle, workers=2)
        assert len(seen) == 2
        assert {partition: offset for partition, offset in committed(url, topic).items() if offset} == seen


def commit_and_die(url: str, topic: str) -> None:
    """Commits at each record before it is done, and is killed in the middle of what was handed out."""
    consumer = consumer_of(url, topic, auto_commit=False)

    def handle(record: ConsumerRecord) -> None:
        consumer.commit()
        if number(record) == 20:
            os.kill(os.getpid(), signal.SIGKILL)

    consumer.run(handle)


@pytest.mark.rule("D1")
def test_a_commit_of_a_handler_is_of_what_is_done(url: str, topic: str) -> None:
    publish(url, topic, 400)
    worker = started.process(commit_and_die, url, topic)
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    assert committed(url, topic)[0] == 5


@pytest.mark.rule("D1", "D8")
def test_a_position_within_a_handler_is_behind_its_record(url: str, topic: str) -> None:
    publish(url, topic, 40)
    told: list[tuple[int, int]] = []
    behind: list[tuple[int, int]] = []

    def handle(record: ConsumerRecord) -> None:
        told.append((record.offset + 1, consumer.position(topic, record.partition)))
        if record.offset in (3, 9):
            lag = consumer.lag()[TopicPartition(topic, record.partition)]
            behind.append((9 - record.offset, lag.records))
            assert (lag.seconds > 0) == (record.offset == 3)

    with consumer_of(url, topic) as consumer:
        consumer.run(handle, max_attempts=1)
    assert len(told) == 40 and all(expected == position for expected, position in told)
    assert len(behind) == 8 and all(expected == records for expected, records in behind)


def test_a_handler_in_a_thread_of_its_own_may_only_wake_and_close(url: str, topic: str) -> None:
    publish(url, topic, 40)
    said: set[str] = set()

    def handle(record: ConsumerRecord) -> None:
        with pytest.raises(errors.Refused) as refused:
            consumer.pause(TopicPartition(topic, record.partition))
        said.add(str(refused.value))

    with consumer_of(url, topic) as consumer:
        consumer.run(handle, workers=2)
    [text] = said
    assert "thread of its own may only call wakeup() and close()" in text
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 10)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("to", [2, 8])
def test_a_handler_that_seeks_is_handed_no_more_of_what_was_read(url: str, topic: str, to: int, fails: bool) -> None:
    publish(url, topic, 40)
    seen: list[int] = []
    positions: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        if record.partition != 0:
            return
        seen.append(record.offset)
        if len(seen) == 6:
            consumer.seek(topic, 0, to)
            positions.append(consumer.position(topic, 0))
            if fails:
                raise ValueError("in the middle of it")

    with consumer_of(url, topic) as consumer:
        consumer.run(handle, **QUICK)
    assert seen == [*range(6), *range(to, 10)]
    assert positions == [to]
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 10)


def test_a_commit_before_partitions_go_is_of_what_is_done_in_the_others(url: str, topic: str) -> None:
    publish(url, topic, 400)
    seen: Counter[int] = Counter()
    told: list[dict[int, int]] = []
    joined = threading.Event()

    def revoked(_: list[TopicPartition]) -> None:
        first.commit()
        told.append(committed(url, topic))
        first.wakeup()

    def handle(record: ConsumerRecord) -> None:
        seen[record.partition] += 1
        if seen.total() > 8:
            joined.wait(0.01)

    first = consumer_of(url, topic, stop_at=None, auto_commit=False, on_revoked=revoked)
    running = threading.Thread(target=first.run, args=(handle,))
    running.start()
    try:
        until(lambda: seen.total() > 8)
        with consumer_of(url, topic, stop_at=None) as second:
            until(lambda: second.poll(1, timeout_ms=10) or told)
    finally:
        joined.set()
        first.wakeup()
        running.join(60)
        first.close()
    assert all(offset <= seen[partition] < 100 for partition, offset in told[0].items())


def test_a_handler_that_pauses_its_partition_is_handed_no_more_of_it(url: str, topic: str) -> None:
    publish(url, topic, 4_000)
    seen: Counter[int] = Counter()
    # In the middle of what is taken at a time, and at its end.
    pauses = {0: 1, 1: 500}

    def handle(record: ConsumerRecord) -> None:
        seen[record.partition] += 1
        if seen[record.partition] == pauses.get(record.partition):
            consumer.pause(TopicPartition(topic, record.partition))

    with consumer_of(url, topic, stop_at=None, idle_timeout_ms=500) as consumer:
        consumer.run(handle)
        assert seen == {0: 1, 1: 500, 2: 1_000, 3: 1_000}
        assert [consumer.position(topic, partition) for partition in range(PARTITIONS)] == [1, 500, 1_000, 1_000]
        consumer.resume(TopicPartition(topic, 0))
        pauses.clear()
        consumer.run(handle)
    assert seen == {0: 1_000, 1: 500, 2: 1_000, 3: 1_000}
    assert committed(url, topic) == seen


def test_a_handler_that_pauses_the_other_partitions_resumes_them(url: str, topic: str) -> None:
    publish(url, topic, 400)
    order: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        others = [at for at in consumer.assignment() if at.partition != record.partition]
        if not order:
            consumer.pause(*others)
        order.append(record.partition)
        if len(order) == 100:
            consumer.resume(*others)

    with consumer_of(url, topic) as consumer:
        consumer.run(handle)
    assert len(set(order[:100])) == 1
    assert Counter(order) == dict.fromkeys(range(PARTITIONS), 100)


@pytest.mark.parametrize("end", ["wakeup", "close"])
def test_another_thread_ends_it_after_the_record_under_way(url: str, topic: str, end: str) -> None:
    publish(url, topic, 40)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def handle(record: ConsumerRecord) -> None:
        begun.set()
        assert go_on.wait(30)
        seen.append(number(record))

    consumer = consumer_of(url, topic, stop_at=None)
    running = threading.Thread(target=consumer.run, args=(handle,), kwargs={"workers": 2})
    running.start()
    try:
        assert begun.wait(30)
        ending = threading.Thread(target=getattr(consumer, end))
        ending.start()
        until(lambda: not ending.is_alive() or consumer._inbox.closing)
    finally:
        go_on.set()
        running.join(30)
    assert not running.is_alive()
    ending.join(30)
    consumer.close()
    done = committed(url, topic)
    assert sum(done.values()) == len(seen) < 40
    again: list[int] = []
    with consumer_of(url, topic) as rest:
        rest.run(lambda record: again.append(number(record)))
    assert sorted(seen + again) == list(range(40))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_closes_ends_the_run_after_its_record(url: str, topic: str, workers: int) -> None:
    publish(url, topic, 400)
    seen: Counter[int] = Counter()
    consumer = consumer_of(url, topic, stop_at=None)

    def handle(record: ConsumerRecord) -> None:
        seen[record.partition] += 1
        if seen[record.partition] == 5:
            consumer.close()

    running = threading.Thread(target=consumer.run, args=(handle,), kwargs={"workers": workers}, daemon=True)
    running.start()
    running.join(30)
    assert not running.is_alive()
    assert max(seen.values()) == 5
    assert {partition: offset for partition, offset in committed(url, topic).items() if offset} == seen
    assert nobody_is_left(url, topic)
    with pytest.raises(errors.Refused, match="closed"):
        consumer.poll()


@pytest.mark.rule("D8")
def test_a_rebalance_in_the_middle(url: str, topic: str) -> None:
    publish(url, topic, 2_000)
    lock = threading.Lock()
    seen: Counter[int] = Counter()
    by: dict[str, Counter[int]] = {"a": Counter(), "b": Counter()}
    members: list[Consumer] = []

    def consume(name: str, workers: int) -> None:
        def handle(record: ConsumerRecord) -> None:
            # The first one leaves something to the second, however long that one takes to join.
            time.sleep(0.001 if by["b"] or sum(by["a"].values()) <= 100 else 0.05)
            with lock:
                seen[number(record)] += 1
                by[name][record.partition] += 1
                if seen.total() == 2_000:
                    for each in members:
                        each.wakeup()

        with consumer_of(url, topic, stop_at=None) as consumer:
            members.append(consumer)
            consumer.run(handle, workers=workers)

    first = threading.Thread(target=consume, args=("a", 2))
    first.start()
    until(lambda: sum(by["a"].values()) > 100)
    second = threading.Thread(target=consume, args=("b", 1))
    second.start()
    for one in (first, second):
        one.join(60)
        assert not one.is_alive()
    # Handed over cleanly: nothing is skipped, and nothing comes twice.
    assert seen == Counter(range(2_000))
    assert len(by["b"]) == 2
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 500)


def test_only_a_group_has_retries(url: str, topic: str) -> None:
    with Consumer(url, assign=[TopicPartition(topic, 0)]) as consumer, pytest.raises(errors.Refused, match="group="):
        consumer.run(print)
    with consumer_of(url, topic) as consumer, pytest.raises(errors.ConfigError, match="workers"):
        consumer.run(print, workers=0)


def work(url: str, topic: str, seen: Path, kind: str, how: dict[str, Any], fails_first: str, comes_back: str) -> None:
    """Handles what comes until a record ends the process; or, the first time, only fails."""
    own: dict[str, Any] = {"group": topic, "topics": [topic], "stop_at": "latest"}
    own |= {"instance_id": "one"} if comes_back == "soon" else {"session_timeout_ms": 6_000}

    def handle(record: ConsumerRecord) -> None:
        with seen.open("a") as out:
            out.write(f"{record.partition} {number(record)}\n")
        if number(record) == 251:
            if fails_first == "yes" and seen.read_text().count(" 251\n") == 1:
                raise ValueError("this time it only fails")
            os.kill(os.getpid(), signal.SIGKILL)

    async def handle_soon(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        handle(record)

    async def run() -> None:
        async with AsyncConsumer(url, **own) as consumer:
            await consumer.run(handle_soon, **how)

    if kind == "async":
        asyncio.run(run())
    else:
        with Consumer(url, **own) as consumer:
            consumer.run(handle, **how)


def nobody_is_left(url: str, group: str) -> bool:
    with Admin(url) as admin:
        return not admin.group(group)["members"]


@pytest.mark.rule("D1", "D2")
@pytest.mark.parametrize(
    ("kind", "workers", "max_attempts", "fails_first", "comes_back"),
    [
        ("sync", 1, 1, "no", "later"),
        ("sync", 1, 3, "no", "soon"),
        ("sync", 3, 2, "no", "soon"),
        ("sync", 1, 2, "yes", "soon"),
        more("async", 1, 1, "no", "soon"),
        ("async", 3, 2, "no", "soon"),
    ],
)
def test_a_poison_record_that_kills_its_consumer_is_given_up_alone(
    url: str, topic: str, tmp_path: Path, kind: str, workers: int, max_attempts: int, fails_first: str, comes_back: str
) -> None:
    """`comes_back`: by an instance_id, or when the session of the one that was killed is over."""
    publish(url, topic, 500)
    seen = tmp_path / "seen"
    how = {"workers": workers, "max_attempts": max_attempts, "backoff_ms": 1}
    ends: list[int | None] = []
    while len(ends) < 8 and ends[-1:] in ([], [-signal.SIGKILL]):
        worker = started.process(work, url, topic, seen, kind, how, fails_first, comes_back)
        worker.start()
        worker.join(60)
        ends.append(worker.exitcode)
        if comes_back == "later":
            until(lambda: nobody_is_left(url, topic))
    handled = Counter(int(line.split()[1]) for line in seen.read_text().splitlines())
    kills = max_attempts - (fails_first == "yes")
    assert ends == [-signal.SIGKILL] * kills + [0]
    [(which, said)] = dead(url, topic)
    assert (which, said["silt.attempts"]) == (251, str(max_attempts))
    assert said["silt.error"].startswith("its consumer ended")
    assert handled.keys() == set(range(500))
    assert handled[251] == max_attempts
    # What was handled and not committed in the first life comes once more; no other is ever suspected twice.
    assert max(times for i, times in handled.items() if i != 251) <= 2
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 125)


@pytest.mark.rule("D9")
def test_a_stuck_worker_loses_its_partitions_and_comes_back(url: str, topic: str) -> None:
    publish(url, topic, 40)
    stuck, go_on = threading.Event(), threading.Event()
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def handle_a(record: ConsumerRecord) -> None:
        if number(record) == 0 and not stuck.is_set():
            stuck.set()
            assert go_on.wait(60)
        seen["a"].append(number(record))

    # Longer than a busy machine keeps one from asking that is not stuck.
    a = consumer_of(url, topic, stop_at=None, max_poll_interval_ms=3_000)
    running = threading.Thread(target=a.run, args=(handle_a,), kwargs={"workers": 2})
    running.start()
    try:
        assert stuck.wait(30)
        with consumer_of(url, topic, stop_at=None) as b:

            def handle_b(record: ConsumerRecord) -> None:
                seen["b"].append(number(record))
                if number(record) == 36:
                    b.wakeup()

            b.run(handle_b)
        assert committed(url, topic)[0] == 10
        assert 0 in seen["b"] and 0 not in seen["a"]
        go_on.set()
        publish(url, topic, 4)
        until(lambda: sum(committed(url, topic).values()) >= 44)
    finally:
        go_on.set()
        a.wakeup()
        running.join(60)
        a.close()
    assert not running.is_alive()
    assert seen["a"].count(0) == 2, "what was given up, and the new one"
    assert set(seen["a"]) | set(seen["b"]) == set(range(40))
    assert committed(url, topic) == dict.fromkeys(range(PARTITIONS), 11)
    assert not dead_topic(url, topic)


@pytest.mark.slow
def test_nothing_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    seen: Counter[int] = Counter()
    with running_server(flush_ms=50, data_dir=tmp_path / "data") as server:
        with Admin(server.url) as admin:
            admin.create_topic("kill", partitions=PARTITIONS)
        publish(server.url, "kill", 800)
        with consumer_of(server.url, "kill", stop_at=None) as consumer:

            def handle(record: ConsumerRecord) -> None:
                time.sleep(0.002)
                seen[number(record)] += 1
                if number(record) % 100 == 99:
                    raise ValueError("not this one")
                if len(seen) == 800:
                    consumer.wakeup()

            running = threading.Thread(target=consumer.run, args=(handle,), kwargs={"max_attempts": 2, "workers": 2})
            running.start()
            try:
                until(lambda: len(seen) > 250)
                server.kill()
                server.restart()
                until(lambda: not running.is_alive() or len(seen) == 800)
                until(lambda: len(dead(server.url, "kill")) == 8)
            finally:
                consumer.wakeup()
                running.join(60)
            assert not running.is_alive()
        assert set(seen) == set(range(800))
        assert [which for which, _ in dead(server.url, "kill")] == list(range(99, 800, 100))
