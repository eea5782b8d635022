"""A consumer with `assign=`, against a server in this process that can be cut off."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fake_server import FakeServer, Stored, fake_server

from siltlog.consumers.library.consumer import Consumer
from siltlog.infra import errors
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.records import Lag

MOMENT = datetime(2026, 11, 21, 7, 36, tzinfo=UTC)
ALL = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as server:
        topic = server.topic("t", 2)
        for partition in (0, 1):
            append(server, partition, 0, 1_200)
        assert len(topic.all_values()) == 2_400
        yield server


def append(server: FakeServer, partition: int, first: int, stop: int) -> None:
    with server.changed:
        server.topics["t"].partitions[partition] += [
            Stored(b"%d:%d" % (partition, i), None, None, MOMENT + timedelta(seconds=i)) for i in range(first, stop)
        ]
        server.changed.notify_all()


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"


def values_of(records: list[Any], partition: int) -> list[bytes]:
    return [record.value for record in records if record.partition == partition]


def expected(partition: int, first: int = 0, stop: int = 1_200) -> list[bytes]:
    return [b"%d:%d" % (partition, i) for i in range(first, stop)]


def test_polling_gives_every_record_once_in_order(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL) as consumer:
        seen: list[Any] = []
        while len(seen) < 2_400:
            records = consumer.poll(max_records=333, timeout_ms=60_000)
            assert len(records) <= 333
            seen += records
        assert values_of(seen, 0) == expected(0) and values_of(seen, 1) == expected(1)
        append(server, 0, 1_200, 1_203)
        assert [record.offset for record in consumer.poll(timeout_ms=60_000)] == [1_200, 1_201, 1_202]
        assert consumer.lag() == {ALL[0]: Lag(0, 0.0), ALL[1]: Lag(0, 0.0)}
        with pytest.raises(errors.Refused, match="group"):
            consumer.commit()


def test_arrow_and_records_and_iteration_go_on_where_the_other_was(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL[:1]) as consumer:
        table = consumer.poll_arrow(max_records=100, timeout_ms=60_000)
        assert table.column_names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert table["offset"].to_pylist() == list(range(100))
        assert table.to_pandas()["value"].tolist() == expected(0, stop=100)
        assert next(consumer).offset == 100
        assert next(consumer).offset == 101
        assert [record.offset for record in consumer.poll(max_records=3)] == [102, 103, 104]
        assert next(consumer).offset == 105
        assert consumer.position("t", 0) == 106
        assert consumer.poll_arrow(max_records=1)["offset"].to_pylist() == [106]


def test_iteration_ends_at_the_ends_it_saw(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL, stop_at="latest") as consumer:
        seen = []
        for record in consumer:
            if not seen:
                append(server, 0, 1_200, 1_300)
            seen.append(record)
        assert len(seen) == 2_400
        assert [record.offset for record in consumer] == list(range(1_200, 1_300))
        assert list(consumer) == []


def test_iteration_ends_when_nothing_comes(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL, idle_timeout_ms=1_000) as consumer:
        # An answer that takes so long counts as nothing: all but the last record is read before.
        seen: list[Any] = []
        while len(seen) < 2_399:
            seen += consumer.poll(max_records=2_399 - len(seen), timeout_ms=60_000)
        begun = time.monotonic()
        assert len([*seen, *consumer]) == 2_400
        assert time.monotonic() - begun >= 1


def test_seeking_and_pausing(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL) as consumer:
        next(consumer)
        consumer.seek("t", 0, offset=1_190)
        consumer.pause(ALL[1])
        assert [record.offset for record in consumer.poll(timeout_ms=60_000)] == list(range(1_190, 1_200))
        consumer.seek_to_timestamp("t", MOMENT + timedelta(seconds=1_195))
        assert [record.offset for record in consumer.poll(timeout_ms=60_000)] == list(range(1_195, 1_200))
        consumer.seek_to_beginning("t")
        assert consumer.poll(max_records=1, timeout_ms=60_000)[0].offset == 0
        consumer.seek_to_end("t")
        consumer.resume(ALL[1])
        assert consumer.poll(timeout_ms=100) == []
        append(server, 1, 1_200, 1_201)
        assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"1:1200"]
        with pytest.raises(errors.Refused, match="not assigned"):
            consumer.seek("t", 7, offset=0)


def test_a_position_below_the_log_goes_to_its_start(server: FakeServer) -> None:
    server.topics["t"].starts[0] = 40
    with Consumer(server.url, assign=ALL[:1]) as consumer:
        consumer.seek("t", 0, offset=5)
        assert consumer.poll(timeout_ms=60_000)[0].offset == 40


def test_with_latest_a_position_below_the_log_goes_to_its_end(server: FakeServer) -> None:
    server.topics["t"].starts[0] = 40
    with Consumer(server.url, assign=ALL[:1], auto_offset_reset="latest") as consumer:
        consumer.seek("t", 0, offset=5)
        until(lambda: consumer.poll(timeout_ms=50) == [] and consumer.position("t", 0) == 1_200)
        append(server, 0, 1_200, 1_201)
        assert consumer.poll(timeout_ms=60_000)[0].offset == 1_200


def test_without_a_policy_a_position_is_needed_and_must_be_in_the_log(server: FakeServer) -> None:
    server.topics["t"].starts[0] = 40
    with Consumer(server.url, assign=ALL[:1], auto_offset_reset="error") as consumer:
        with pytest.raises(errors.OffsetOutOfRange, match="seek first"):
            consumer.poll()
        consumer.seek("t", 0, offset=50)
        assert consumer.poll(timeout_ms=60_000)[0].offset == 50
        consumer.seek("t", 0, offset=5)
        with pytest.raises(errors.OffsetOutOfRange):
            consumer.poll(timeout_ms=60_000)


def test_a_consumer_outlives_a_restart(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL, retry_timeout_ms=30_000) as consumer:
        seen = consumer.poll(max_records=700, timeout_ms=60_000)
        server.stop()
        seen += consumer.poll(max_records=10_000, timeout_ms=300)
        append(server, 0, 1_200, 1_250)
        server.start()
        until(lambda: len(seen.__iadd__(consumer.poll(timeout_ms=500))) >= 2_450)
    assert values_of(seen, 0) == expected(0, stop=1_250) and values_of(seen, 1) == expected(1)


def test_a_server_that_stays_away_is_an_error(server: FakeServer) -> None:
    with Consumer(server.url, assign=ALL, retry_timeout_ms=200) as consumer:
        consumer.poll(max_records=10_000, timeout_ms=60_000)
        server.stop()
        with pytest.raises(errors.SiltlogError) as failed:
            for _ in range(100):
                consumer.poll(timeout_ms=500)
        assert failed.value.error_code in ("unreachable", "connection_lost")
        server.start()


def test_what_is_not_there_is_an_error(server: FakeServer) -> None:
    with Consumer(server.url, assign=[TopicPartition("absent", 0)]) as consumer, pytest.raises(errors.UnknownTopic):
        consumer.poll()
    with (
        Consumer(server.url, assign=[TopicPartition("t", 9)]) as consumer,
        pytest.raises(errors.Refused, match="t has no"),
    ):
        next(consumer)


def test_waking_and_closing_from_another_thread(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer(server.url, assign=ALL, auto_offset_reset="latest")
    threading.Timer(0.1, consumer.wakeup).start()
    assert consumer.poll(timeout_ms=60_000) == []
    threading.Timer(0.1, consumer.wakeup).start()
    assert list(consumer) == []
    refused: list[BaseException] = []

    def intrude() -> None:
        assert waits.wait(60), "the iteration has begun"
        try:
            consumer.poll()
        except errors.Refused as error:
            refused.append(error)
        consumer.close()

    waits, wait = threading.Event(), consumer._threads.wait

    def waiting(*arguments: Any) -> None:
        waits.set()
        wait(*arguments)

    monkeypatch.setattr(consumer._threads, "wait", waiting)
    threading.Thread(target=intrude).start()
    assert list(consumer) == []
    assert "another thread" in str(refused[0])
    with pytest.raises(errors.Refused, match="closed"):
        consumer.poll()
    assert list(consumer) == []


def test_closing_ends_a_call_that_goes_on_trying(server: FakeServer) -> None:
    server.stop()
    consumer = Consumer(server.url, assign=ALL, retry_timeout_ms=600_000)
    threading.Timer(0.3, consumer.close).start()
    with pytest.raises(errors.SiltlogError):
        consumer.poll(timeout_ms=600_000)
    server.start()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"group": "g"},
        {"topics": ["t"]},
        {"group": "g", "topics": ["t"], "assign": ALL},
        {"group": "a/b", "topics": ["t"]},
        {"assign": [*ALL, ALL[0]]},
        {"assign": ALL, "auto_offset_reset": "newest"},
        {"assign": ALL, "isolation": "dirty"},
        {"assign": ALL, "stop_at": "end"},
        {"assign": ALL, "idle_timeout_ms": "1000"},
        {"assign": ["t"]},
        {"assign": [("t", 0)]},
        {"assign": [TopicPartition("a/b", 0)]},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        Consumer("http://127.0.0.1:1", **options)


def test_what_was_handed_out_is_freed_without_a_collection_of_garbage(server: FakeServer) -> None:
    def holders(record: Any) -> list[Any]:
        return [one for one in gc.get_referrers(record) if isinstance(one, list)]

    with Consumer(server.url, assign=ALL) as consumer:
        gc.disable()
        try:
            [record, *_] = consumer.poll(timeout_ms=60_000)
            assert not holders(record)
        finally:
            gc.enable()


def test_what_is_no_partition_is_refused_by_name(server: FakeServer) -> None:
    wrong: Any = ("t", 0)
    with Consumer(server.url, assign=ALL) as consumer:
        for call in (consumer.pause, consumer.resume):
            with pytest.raises(errors.ConfigError, match=r"TopicPartition\('flights', 0\), not \('t', 0\)"):
                call(wrong)


def test_a_server_that_is_not_there_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with (
        pytest.raises(errors.Unavailable),
        Consumer("http://127.0.0.1:1", assign=ALL, retry_timeout_ms=4_000) as consumer,
    ):
        consumer.poll()
    assert caplog.text.count("no connection to http://127.0.0.1:1") == 1


def test_a_group_that_cannot_be_joined_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> bool:
        assert consumer.poll(timeout_ms=100) == []
        return "no connection to http://127.0.0.1:1" in caplog.text

    consumer = Consumer("http://127.0.0.1:1", group="g", topics="t")
    try:
        until(told)
    finally:
        consumer.close()
