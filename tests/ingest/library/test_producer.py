import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from fake_server import FakeServer, Fault, fake_server

from siltlog.infra import errors
from siltlog.infra.arrow.partitioner import partition_of
from siltlog.infra.client.record import PartitionMetadata
from siltlog.ingest.library.producer import Producer

ROOT = Path(__file__).parents[3]
FAULTS: list[Fault] = [
    "drop_before",
    "drop_after",
    "408",
    "429",
    "500_before",
    "500_after",
    "503",
    "504_before",
    "504_after",
]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        yield server


def faults_of(seed: int, share: float) -> Any:
    chosen = random.Random(seed)
    return lambda: chosen.choice(FAULTS) if chosen.random() < share else None


def test_an_acknowledgement_says_where_the_record_is(server: FakeServer) -> None:
    topic = server.topic("t", 4)
    moment = datetime(2026, 11, 21, 7, 36, 0, 123456, tzinfo=UTC)
    with Producer(server.url) as producer:
        producer.send("t", b"before", key="UA")
        delivery = producer.send("t", {"a": [1, None]}, key="UA", headers={"h": "text", "n": None}, timestamp=moment)
        metadata = delivery.result(60)
    partition = partition_of(b"UA", 4)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == ("t", partition, 1, moment)
    stored = topic.partitions[partition][1]
    assert (stored.value, stored.key, stored.timestamp) == (b'{"a":[1,null]}', b"UA", moment)
    assert stored.headers == [{"key": "h", "value": b"text"}, {"key": "n", "value": None}]
    assert server.publishes[0]["Silt-Partition-Count"] == "4"
    assert server.publishes[0]["Silt-Producer-Epoch"] == "0"


@pytest.mark.parametrize("seed", range(6))
def test_every_record_lands_once_and_in_order_whatever_breaks(server: FakeServer, seed: int) -> None:
    topic = server.topic("t", 3)
    server.topic("other", 2)
    server.faults = faults_of(seed, 0.5)
    deliveries: list[tuple[bytes, Any]] = []

    def publish(publisher: int) -> None:
        chosen = random.Random(seed * 100 + publisher)
        for number in range(300):
            value = b"%d:%d" % (publisher, number)
            key = None if chosen.random() < 0.3 else f"{publisher}-{chosen.randrange(5)}"
            deliveries.append((value, producer.send("t", value, key=key)))
            if chosen.random() < 0.02:
                time.sleep(0.01)
        producer.send("other", b"x")

    with Producer(server.url, batch_bytes=4_000, linger_ms=1) as producer:
        threads = [threading.Thread(target=publish, args=(publisher,)) for publisher in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        table = pa.table({"value": [f"b:{i}" for i in range(500)], "key": [f"k{i % 7}" for i in range(500)]})
        producer.send_batch("t", table)
    assert not server.overlapped
    expected = Counter(value for value, _ in deliveries) + Counter(b"b:%d" % i for i in range(500))
    assert Counter(topic.all_values()) == expected
    assert len(server.topics["other"].all_values()) == 3
    for partition in topic.partitions:
        last: dict[Any, int] = {}
        for stored in partition:
            publisher, _, number = stored.value.partition(b":")  # type: ignore[union-attr]
            assert last.get((publisher, stored.key), -1) < int(number)
            last[publisher, stored.key] = int(number)
    for value, delivery in deliveries:
        metadata = delivery.result(0)
        assert topic.partitions[metadata.partition][metadata.offset].value == value


def test_a_retry_is_sent_with_the_same_sequences_when_the_server_says(server: FakeServer) -> None:
    topic = server.topic("t")
    pending: list[Fault] = ["503", "drop_after", "504_after"]
    server.faults = lambda: pending.pop(0) if pending else None
    with Producer(server.url) as producer:
        assert producer.send("t", b"a").result(20).offset == 0
        assert producer.send("t", b"b").result(20).offset == 1
    assert topic.values(0) == [b"a", b"b"]
    assert [stored.sequence for stored in topic.partitions[0]] == [0, 1]
    sent = [moment for method, path, moment in server.requests if path.endswith("/records")]
    assert sent[1] - sent[0] >= 0.02


def test_a_bad_record_fails_alone(server: FakeServer) -> None:
    topic = server.topic("t", 3)
    server.limits["record_bytes"] = 1_000
    producer = Producer(server.url, linger_ms=200)
    deliveries = [
        producer.send("t", value, key=f"k{i % 11}")
        for i, value in enumerate([b"0", b"bad", b"2", b"x" * 2_000, *[b"%d" % n for n in range(4, 40)]])
    ]
    lost = producer.send("t", b"lost", partition=9)
    with pytest.raises(errors.DeliveryFailed) as failed:
        producer.close()
    assert len(failed.value.failures) == 3
    assert sorted(error.error_code for error in failed.value.failures) == [
        "invalid_record",
        "record_too_large",
        "unknown_partition",
    ]
    assert sorted(failed.value.records["t"]["value"].to_pylist()) == [b"bad", b"lost", b"x" * 2_000]
    assert isinstance(deliveries[3].exception(), errors.RecordTooLarge)
    with pytest.raises(errors.Refused, match="has no partition 9"):
        lost.result()
    assert Counter(topic.all_values()) == Counter([b"0", b"2", *[b"%d" % n for n in range(4, 40)]])
    for index in (0, 2, 20):
        metadata = deliveries[index].result()
        assert topic.partitions[metadata.partition][metadata.offset].value == (b"%d" % index)


def test_a_changed_partition_count_places_the_records_anew(server: FakeServer) -> None:
    topic = server.topic("t", 2)
    with Producer(server.url) as producer:
        keys = [f"k{i}" for i in range(50)]
        for key in keys:
            producer.send("t", b"1", key=key)
        producer.flush()
        topic.partitions += [[], [], []]
        for key in keys:
            producer.send("t", b"2", key=key)
    for number, partition in enumerate(topic.partitions):
        for stored in partition:
            assert stored.value == b"1" or partition_of(stored.key or b"", 5) == number
    assert Counter(topic.all_values()) == {b"1": 50, b"2": 50}


@pytest.mark.rule("X3")
@pytest.mark.parametrize("lost", ["drop_before", "drop_after"])
def test_a_changed_partition_count_after_a_lost_answer_moves_only_what_did_not_land(
    server: FakeServer, lost: Fault
) -> None:
    topic = server.topic("t", 2)

    def grow() -> Fault:
        server.faults = lambda: None
        if lost == "drop_before":
            topic.partitions += [[]]
        return lost

    with Producer(server.url, linger_ms=100) as producer:
        producer.send("t", b"0", partition=0).result(60)
        server.faults = grow
        deliveries = [producer.send("t", b"%d" % i, key=f"k{i}") for i in range(30)]
        places = [delivery.result(60).partition for delivery in deliveries]
    count = 3 if lost == "drop_before" else 2
    assert places == [partition_of(f"k{i}".encode(), count) for i in range(30)]
    assert len(topic.all_values()) == 31
    assert server.claims == (lost == "drop_before")


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_that_the_server_creates_when_published_to(server: FakeServer, partitions: int) -> None:
    server.auto_create_partitions = partitions
    with Producer(server.url) as producer:
        for i in range(40):
            producer.send("new", b"%d" % i, key=str(i))
        producer.send("named", b"x", partition=partitions - 1)
    topic = server.topics["new"]
    assert len(topic.partitions) == partitions and len(topic.all_values()) == 40
    for number, partition in enumerate(topic.partitions):
        assert all(partition_of(stored.key or b"", partitions) == number for stored in partition)
    assert server.topics["named"].values(partitions - 1) == [b"x"]


@pytest.mark.parametrize("offers_claims", [True, False])
def test_a_forgotten_producer_goes_on(server: FakeServer, offers_claims: bool) -> None:
    server.offers_claims = offers_claims
    topic = server.topic("t", 2)
    with Producer(server.url) as producer:
        producer.send("t", b"a", partition=0).result(60)
        producer.send("t", b"a", partition=1).result(60)
        del topic.producers[next(known for known in topic.producers if known[1] == 0)]
        assert producer.send("t", b"b", partition=0).result(60).offset == 1
        assert producer.send("t", b"c", partition=1).result(60).offset == 1
    assert topic.values(0) == [b"a", b"b"] and topic.values(1) == [b"a", b"c"]
    assert server.claims == offers_claims
    assert len({stored.producer_id for stored in topic.partitions[0]}) == 2 - offers_claims
    assert [stored.sequence for stored in topic.partitions[1]] == ([0, 1] if offers_claims else [0, 0])


def test_a_claim_says_that_nothing_arrived(server: FakeServer) -> None:
    topic = server.topic("t")

    def forget() -> Fault:
        topic.producers.clear()
        server.faults = lambda: None
        return "drop_before"

    with Producer(server.url) as producer:
        producer.send("t", b"a").result(60)
        server.faults = forget
        assert producer.send("t", b"b").result(60).offset == 1
    assert topic.values(0) == [b"a", b"b"] and server.claims == 1


@pytest.mark.rule("X3")
def test_a_refusal_after_a_lost_answer_is_settled_by_a_claim(server: FakeServer) -> None:
    """A topic may refuse today what it took yesterday: only the claim tells that it took nothing."""
    topic = server.topic("t")
    pending: list[Fault] = ["drop_before"]
    # They travel together, however long a busy machine lets the others wait.
    with Producer(server.url, linger_ms=600_000) as producer:
        producer.send("t", b"a")
        producer.flush()
        server.faults = lambda: pending.pop() if pending else None
        deliveries = [producer.send("t", value) for value in (b"b", b"bad", b"c")]
        with pytest.raises(errors.DeliveryFailed):
            producer.flush()
        assert [delivery.exception(10) is None for delivery in deliveries] == [True, False, True]
        with pytest.raises(errors.Refused):
            deliveries[1].result()
    assert topic.values(0) == [b"a", b"b", b"c"] and server.claims == 1


def test_a_fenced_producer_goes_no_further(server: FakeServer) -> None:
    topic = server.topic("t")
    with Producer(server.url) as producer:
        producer.send("t", b"a").result(60)
        server.claim("t", server.publishes[0]["Silt-Producer-Id"])
        for value in (b"b", b"c"):
            with pytest.raises(errors.Fenced):
                producer.send("t", value).result(60)
    assert topic.values(0) == [b"a"]


def test_without_claims_a_producer_whose_records_may_have_landed_is_told_so(server: FakeServer) -> None:
    server.offers_claims = False
    topic = server.topic("t")
    with Producer(server.url) as producer:
        producer.send("t", b"a").result(60)

        def forget() -> Fault:
            topic.producers.clear()
            server.faults = lambda: None
            return "drop_before"

        server.faults = forget
        with pytest.raises(errors.OutcomeUnknown, match="may have arrived"):
            producer.send("t", b"b").result(60)
        assert producer.send("t", b"c").result(60).offset == 1


def test_an_error_that_was_read_is_not_raised_again(server: FakeServer) -> None:
    with Producer(server.url) as producer:
        with pytest.raises(errors.UnknownTopic):
            producer.send("absent", b"a").result(60)
        seen: list[Any] = []
        producer.send("absent", b"b", on_delivery=lambda delivery: seen.append(delivery.exception()))
        producer.flush()
        assert isinstance(seen[0], errors.UnknownTopic)
        server.topic("absent")
        assert producer.send("absent", b"c").result(60).offset == 0
        del server.topics["absent"]
        producer.send("absent", b"d")
        with pytest.raises(errors.DeliveryFailed, match="1 record did not arrive"):
            producer.flush()
        producer.flush()


def test_failures_are_chained_to_what_left_the_block(server: FakeServer) -> None:
    with pytest.raises(errors.DeliveryFailed) as failed, Producer(server.url) as producer:
        producer.send("absent", b"a")
        raise KeyError("own")
    assert isinstance(failed.value.__cause__, KeyError)


@pytest.mark.rule("X4")
def test_what_cannot_be_delivered_in_time_fails(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"
    with Producer(server.url, delivery_timeout_ms=2_500) as producer:
        with pytest.raises(errors.Unavailable, match="nothing of it arrived"):
            producer.send("t", b"a").result(60)
        server.faults = lambda: "drop_after"
        with pytest.raises(errors.OutcomeUnknown):
            producer.send("t", b"b").result(60)
        server.faults = lambda: None
        producer.send("t", b"c").result(60)
    assert server.topics["t"].values(0) == [b"b", b"c"]


def test_a_producer_outlives_a_restart_and_fails_over(server: FakeServer) -> None:
    topic = server.topic("t")
    with fake_server() as second:
        second.topics = server.topics
        with Producer([server.url, second.url]) as producer:
            producer.send("t", b"a").result(60)
            server.stop()
            producer.send("t", b"b").result(60)
            second.stop()
            waiting = producer.send("t", b"c")
            server.start()
            waiting.result(60)
        second.start()
    assert topic.values(0) == [b"a", b"b", b"c"]


def test_a_full_buffer_blocks_and_then_refuses(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"
    producer = Producer(server.url, buffer_bytes=10_000, max_block_ms=50)
    with pytest.raises(errors.BufferFull):
        for _ in range(100):
            producer.send("t", b"x" * 1_000)
    server.faults = lambda: None
    producer._senders._options = replace(producer._senders._options, max_block_ms=60_000)
    for _ in range(100):
        producer.send("t", b"y" * 1_000)
    producer.close()
    assert server.topics["t"].values(0).count(b"y" * 1_000) == 100


def test_closing_with_less_time_fails_what_is_left(server: FakeServer) -> None:
    server.topic("t")
    server.faults = lambda: "503"
    producer = Producer(server.url)
    delivery = producer.send("t", b"a")
    with pytest.raises(TimeoutError):
        producer.flush(20)
    with pytest.raises(errors.DeliveryFailed, match="until the producer was closed"):
        producer.close(20)
    assert delivery.done()
    with pytest.raises(errors.Refused, match="closed"):
        producer.send("t", b"b")
    producer.close()


def test_a_callback_that_raises_or_flushes_stops_nothing(server: FakeServer) -> None:
    server.topic("t")
    raised: list[BaseException] = []

    def flush(_: Any) -> None:
        try:
            producer.flush()
        except errors.Refused as error:
            raised.append(error)
            raise

    with Producer(server.url) as producer:
        producer.send("t", b"a", on_delivery=flush)
        producer.send("t", b"b").result(60)
    assert len(raised) == 1


def test_a_defect_in_the_sender_fails_the_records_and_is_not_silent(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = server.topic("t")
    with Producer(server.url) as producer:
        with monkeypatch.context() as patched:
            patched.setattr("siltlog.ingest.library.batch.Batch._table", lambda batch: 1 / 0)
            producer.send("t", b"a")
            with pytest.raises(errors.DeliveryFailed, match="ZeroDivisionError"):
                producer.flush()
        producer.send("t", b"b").result(60)
    assert topic.values(0) == [b"b"]


# --- tables -----------------------------------------------------------------------------------------------
def test_a_batch_is_cut_to_what_the_server_takes(server: FakeServer) -> None:
    topic = server.topic("t", 3)
    server.limits["request_bytes"] = 20_000
    values = [b"%06d" % i + b"x" * (i % 300) for i in range(3_000)]
    with Producer(server.url) as producer:
        parts = producer.send_batch("t", pa.table({"value": pa.chunked_array([values[:999], values[999:]])})).result(30)
    assert sum(part.count for part in parts) == 3_000
    assert {part.partition for part in parts} == {0, 1, 2}
    assert all(isinstance(part, PartitionMetadata) for part in parts)
    assert Counter(topic.all_values()) == Counter(values)
    assert all(found == sorted(found) for found in map(topic.values, range(3)))


def test_a_table_in_crumbs_is_sent_in_one_piece(server: FakeServer) -> None:
    topic = server.topic("t")
    crumbs = pa.table({"value": pa.chunked_array([[b"%d" % i] for i in range(5_000)])})
    with Producer(server.url) as producer:
        producer.send_batch("t", crumbs)
    assert topic.values(0) == [b"%d" % i for i in range(5_000)]
    assert int(server.publishes[-1]["Content-Length"]) < 200_000


def test_a_batch_is_halved_when_the_server_takes_less_than_it_says(server: FakeServer) -> None:
    topic = server.topic("t")
    values = [b"%04d" % i + b"x" * 100 for i in range(1_000)]
    with Producer(server.url) as producer:
        producer.send_batch("t", pa.table({"value": values[:1]})).result(60)
        server.limits["request_bytes"] = 30_000
        producer.send_batch("t", pa.table({"value": values[1:]})).result(60)
    assert topic.values(0) == values


def test_keyed_rows_and_named_partitions_go_where_they_belong(server: FakeServer) -> None:
    topic = server.topic("t", 4)
    keys = [f"k{i % 13}" if i % 5 else None for i in range(400)]
    named = [i % 4 if i % 7 == 0 else None for i in range(400)]
    table = pa.table({"value": [str(i) for i in range(400)], "key": keys, "partition": pa.array(named, pa.int64())})
    with Producer(server.url, compression="zstd") as producer:
        producer.send_batch("t", table).result(60)
    found = {int(s.value or b""): number for number, part in enumerate(topic.partitions) for s in part}
    assert len(found) == 400
    for i in range(400):
        if named[i] is not None:
            assert found[i] == named[i]
        elif keys[i] is not None:
            assert found[i] == partition_of(str(keys[i]).encode(), 4)
    assert len({found[i] for i in range(400) if keys[i] is None and named[i] is None}) == 1
    assert all(v == sorted(v, key=int) for v in map(topic.values, range(4)))  # type: ignore[arg-type]


def test_frames_and_what_was_read_can_be_sent(server: FakeServer) -> None:
    topic = server.topic("t")
    frame = pd.DataFrame({"value": ["a", "b"], "key": ["k", None]})
    moment = pd.Timestamp("2026-11-21T07:36:00.123456Z")
    read = pa.table(
        {"topic": ["x"], "partition": pa.array([0], pa.int32()), "offset": [9], "timestamp": [moment], "value": [b"c"]}
    )
    with Producer(server.url) as producer:
        producer.send_batch("t", frame[frame["value"] != "none"])
        producer.send_batch("t", read)
        producer.send_batch("t", read.to_batches()[0])
        assert producer.send_batch("t", read.slice(0, 0)).result(60) == []
    assert topic.values(0) == [b"a", b"b", b"c", b"c"]
    assert topic.partitions[0][2].timestamp == moment


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.table({"value": [1]}), TypeError),
        (pa.table({"values": ["a"]}), ValueError),
        (pa.table({"value": ["a"], "extra": ["b"]}), ValueError),
        (pa.table({"value": pa.array([None], pa.binary())}), errors.Refused),
        (pa.table({"value": ["a"], "timestamp": [datetime(2026, 1, 1)]}), TypeError),  # noqa: DTZ001
        ([b"a"], TypeError),
    ],
)
def test_a_batch_that_cannot_be_sent_is_refused_at_the_call(
    server: FakeServer, given: Any, kind: type[Exception]
) -> None:
    with Producer(server.url) as producer, pytest.raises(kind):
        producer.send_batch("t", given)


# --- arguments and ends -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "options", "kind"),
    [
        (object(), {}, TypeError),
        ((1, 2), {}, TypeError),
        (float("nan"), {}, ValueError),
        ({"a": [float("inf")]}, {}, ValueError),
        (None, {}, errors.Refused),
        (b"a", {"key": 5}, TypeError),
        (b"a", {"headers": {"a": 5}}, TypeError),
        (b"a", {"timestamp": datetime(2026, 1, 1)}, ValueError),  # noqa: DTZ001
        (b"a", {"timestamp": True}, TypeError),
        (b"a", {"partition": -1}, ValueError),
        (b"a", {"partition": "1"}, TypeError),
        ("\ud800", {}, ValueError),
    ],
)
def test_what_cannot_be_sent_is_refused_at_the_call(
    server: FakeServer, value: Any, options: dict[str, Any], kind: type[Exception]
) -> None:
    with Producer(server.url) as producer, pytest.raises(kind):
        producer.send("t", value, **options)


def test_values_are_stored_as_documented(server: FakeServer) -> None:
    topic = server.topic("t")
    with Producer(server.url) as producer:
        for value in (b"\xff", bytearray(b"ab"), "é", True, 1.5, 2**70, [1, None], {"a": "é"}, ""):
            producer.send("t", value)
        producer.send("t", None, key=b"k")
    assert topic.values(0) == [
        b"\xff", b"ab", "é".encode(), b"true", b"1.5", b"1180591620717411303424", b"[1,null]",
        '{"a":"é"}'.encode(), b"", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"acks": "none"}, {"compression": "gzip"}, {"linger_ms": -1}, {"batch_bytes": 0}, {"request_timeout_ms": 60_001}],
)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(options))):
        Producer("http://127.0.0.1:1", **options)


def test_a_producer_that_was_not_closed_is_flushed_at_exit(server: FakeServer) -> None:
    topic = server.topic("t")
    code = f"from siltlog.ingest.library.producer import Producer; p = Producer({server.url!r}); p.send('t', b'late')"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert topic.values(0) == [b"late"]
    assert "ResourceWarning" in done.stderr


def test_a_forked_child_is_refused(server: FakeServer) -> None:
    server.topic("t")
    with Producer(server.url) as producer:
        producer.send("t", b"a").result(60)
        server.faults = lambda: "503"
        waiting = producer.send("t", b"c")
        for use in (lambda: producer.send("t", b"b"), producer.flush, producer.metrics, waiting.result):
            child = os.fork()
            if child == 0:
                try:
                    use()
                except errors.Refused as error:
                    os._exit(0 if "forked" in str(error) else 1)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
        server.faults = lambda: None
    assert server.topics["t"].values(0) == [b"a", b"c"]


def test_what_holds_threads_is_not_pickled_and_errors_are(server: FakeServer) -> None:
    with Producer(server.url) as producer:
        delivery = producer.send("absent", b"a")
        for held in (producer, delivery):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(held)
        with pytest.raises(errors.DeliveryFailed) as raised:
            producer.flush()
    copied = pickle.loads(pickle.dumps(raised.value))
    assert str(copied) == str(raised.value) and copied.records["absent"].equals(raised.value.records["absent"])
    assert [type(error) for error in copied.failures] == [errors.UnknownTopic]


def test_a_producer_counts_what_it_does(server: FakeServer) -> None:
    server.topic("t")
    pending: list[Fault] = ["503"]
    server.faults = lambda: pending.pop() if pending else None
    with Producer(server.url) as producer:
        producer.send("t", b"a").result(60)
        assert isinstance(producer.send("absent", b"b").exception(10), errors.UnknownTopic)
        metrics = producer.metrics()
    assert (metrics.records_acknowledged, metrics.records_failed) == (1, 1)
    assert metrics.requests == 1 and metrics.requests_failed == 2
    assert metrics.request_bytes > 0 and metrics.request_seconds > 0
    assert (metrics.requests_in_flight, metrics.records_buffered, metrics.bytes_buffered) == (0, 0, 0)


@pytest.mark.rule("X1")
def test_several_requests_are_in_flight_one_for_each_partition(server: FakeServer) -> None:
    server.topic("t", 4)
    together = threading.Barrier(3)

    def meet() -> Fault:
        with suppress(threading.BrokenBarrierError):
            together.wait(60)
        return None

    with Producer(server.url, linger_ms=0) as producer:
        producer.send("t", b"first").result(60)
        server.faults = meet
        for number in range(3):
            producer.send_batch("t", pa.table({"value": [b"%d" % number]}))
    assert not together.broken and server.most_in_flight == 3 and not server.overlapped
