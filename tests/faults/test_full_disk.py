"""Disks that are full, read-only or broken, under the tables and under the write-ahead log, beneath real servers."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from evidence import check, read_api, read_table
from failure_rig import MIB, NEVER_FLUSHED, StartServer
from http_rig import Http
from kafka_rig import free_port, read
from kafka_tools import KafkaTools
from publishers import ARROW, FILLER, LOST, Ledger, Reply, Wire, arrow_body
from small_disk import SmallDisk

from siltlog.server_process import ServerProcess

PATIENCE_S = 150
REFUSED = "NOT_ENOUGH_REPLICAS"
EXIT_FATAL = 70
BREAKABLE = """
import errno, pathlib
from siltlog.ingest.wal.disk import Disk
real = Disk.{operation}
def breaking(self, *arguments):
    if pathlib.Path({breaks!r}).exists():
        raise OSError(errno.EIO, "Input/output error")
    return real(self, *arguments)
Disk.{operation} = breaking
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk", 80 * MIB)
    yield disk
    disk.remove()


def publish_until_refused(wire: Wire, ledger: Ledger) -> Reply:
    """Whole requests into partition 0 until one is refused."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        first = len(ledger.acked)
        values = [f"filler:{first + n} {FILLER}" for n in range(60)]
        reply = wire.call("POST", "/v1/topics/logs/records", arrow_body(values), **ARROW)
        if reply.status != 200:
            ledger.refused.update(values)
            return reply
        at = reply.document["partitions"][0]["first_offset"]
        ledger.acked.update({value: (0, at + n) for n, value in enumerate(values)})
        assert time.monotonic() < deadline, "the budget is never used"


def publish_again(wire: Wire, ledger: Ledger) -> None:
    """Comes back when it is told to, until it is taken."""
    deadline = time.monotonic() + PATIENCE_S
    value = f"again:{len(ledger.acked)} x"
    while True:
        reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": value}]})
        if reply.status == 200:
            break
        assert reply.document["retryable"] == "yes", reply
        assert 0 < reply.document["retry_after_ms"] <= 15_000, reply
        assert time.monotonic() < deadline, reply
        time.sleep(min(reply.document["retry_after_ms"] / 1000, 1.0))
    ledger.acked[value] = (0, reply.document["records"][0][1])


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "remedy"), [("size=20m", "size=400m"), ("ro", "rw,size=400m")])
def test_the_tables_disk_is_full_or_read_only(
    make_server: StartServer, small_disk: SmallDisk, trouble: str, remedy: str
) -> None:
    """Publishing goes on until the log's budget is used; then it says when to come back, and goes on by itself."""
    server = make_server(root=small_disk.path.as_uri(), wal_bytes_max=48 * MIB, flush_ms=50, head_bytes_max=8 * MIB)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1, compression="none")
    ledger = Ledger()
    small_disk.change(trouble)
    reply = publish_until_refused(wire, ledger)
    assert (reply.status, reply.error_code) == (503, "wal_full"), reply
    assert 0 < reply.document["retry_after_ms"] <= 15_000
    # As large as the one that was refused: a little less might just fit.
    values = [f"filler:{len(ledger.acked) + n} {FILLER}" for n in range(60)]
    raw = wire.raw("POST", "/v1/topics/logs/records", arrow_body(values), **ARROW)
    assert raw.status == 503
    assert int(raw.headers["Retry-After"]) > 0
    # Most of the budget was really given out before that.
    assert len(ledger.acked) * len(FILLER) > 24 * MIB
    ready = wire.ready()
    assert any("logs" in warning for warning in ready.document["warnings"]), ready
    assert (ready.status, ready.document["reasons"]) in ((503, ["wal_full"]), (200, []))
    check(read_api(wire, "logs", 1), ledger)

    small_disk.change(remedy)
    publish_again(wire, ledger)
    deadline = time.monotonic() + PATIENCE_S
    while wire.offsets("logs")[0]["table_offset"] < len(ledger.acked):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # The log shrinks only after the table's commit was synced.
    while (warnings := wire.ready().document["warnings"]) != ["groups: Redis does not answer"]:
        assert time.monotonic() < deadline, warnings
        time.sleep(0.1)
    assert server.stop() == 0
    check(read_table(server.root, "logs"), ledger)


@pytest.mark.rule("P9")
@pytest.mark.slow
def test_the_logs_own_disk_is_full(make_server: StartServer, small_disk: SmallDisk, tmp_path: Path) -> None:
    """What does not fit is not acknowledged; with more room it goes on, and after a kill everything is there."""
    server = make_server(
        "disk/data", **{**NEVER_FLUSHED, "wal_bytes_max": 160 * MIB}, root=(tmp_path / "lake").as_uri()
    )
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    ledger = Ledger()
    reply = publish_until_refused(wire, ledger)
    assert (reply.status, reply.error_code, reply.document["retryable"]) == (507, "disk_full", "yes")
    assert reply.document["retry_after_ms"] > 0
    assert wire.ready().status in (200, 503)
    check(read_api(wire, "logs", 1), ledger)
    small_disk.change("size=120m")
    publish_again(wire, ledger)
    server.kill()
    small_disk.change("size=400m")
    server.start()
    check(read_api(Wire(server.url), "logs", 1), ledger)


def kafka_server(make_server: StartServer, tmp_path: Path) -> tuple[ServerProcess, str]:
    """One whose log is on the small disk and grows, and its address for clients of Kafka."""
    bootstrap = f"127.0.0.1:{free_port()}"
    settings = {**NEVER_FLUSHED, "wal_bytes_max": 160 * MIB, "kafka_listen": bootstrap}
    server = make_server("disk/data", **settings, root=(tmp_path / "lake").as_uri())
    server.start()
    Wire(server.url).create("logs", 1)
    return server, bootstrap


def is_refused(server: ServerProcess) -> bool:
    """Whether a producer of Kafka was told to come again."""
    found = Http(server.url).metrics()
    return any("Produce" in name and REFUSED in name and told for name, told in found.items())


@pytest.mark.rule("P9", "KF4")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_producer_of_kafka_waits_for_room_on_the_logs_disk(
    make_server: StartServer, small_disk: SmallDisk, tmp_path: Path
) -> None:
    """It hears of nothing; once there is room all lands, each once and in its order, and a kill takes none of it."""
    server, bootstrap = kafka_server(make_server, tmp_path)
    failed: list[str] = []
    landed: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            landed.append(message.offset())
        else:
            failed.append(str(error))

    own = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
    producer = Producer({**own, "queue.buffering.max.kbytes": 8 * 1024})
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while not is_refused(server):
        assert time.monotonic() < deadline, "the disk is never full"
        for _ in range(100):
            value = f"{len(values)} {10 * FILLER}".encode()
            try:
                producer.produce("logs", value, partition=0, on_delivery=delivered)
            except BufferError:
                # What waits fills what the client keeps.
                producer.poll(0.1)
                break
            values.append(value)
        producer.poll(0)
    assert len(landed) < len(values)
    small_disk.change("size=120m")
    assert producer.flush(PATIENCE_S) == 0
    assert not failed and landed == list(range(len(values)))
    server.kill()
    small_disk.change("size=400m")
    server.start()
    assert [message.value() for message in read(bootstrap, "logs", len(values))] == values
    assert Wire(server.url).offsets("logs")[0]["high_watermark"] == len(values)


@pytest.mark.client
@pytest.mark.timeout(300)
def test_javas_producer_waits_for_room_on_the_logs_disk(
    make_server: StartServer, small_disk: SmallDisk, tmp_path: Path
) -> None:
    server, bootstrap = kafka_server(make_server, tmp_path)
    count = 20_000
    sized = ("--num-records", str(count), "--record-size", str(len(FILLER)), "--throughput", "-1")
    with KafkaTools(bootstrap) as tools, ThreadPoolExecutor(1) as pool:
        props = ("--producer-props", f"bootstrap.servers={bootstrap}", "compression.type=none")
        running = pool.submit(tools.run, "kafka-producer-perf-test", "--topic", "logs", *sized, *props)
        deadline = time.monotonic() + PATIENCE_S
        while not is_refused(server):
            assert time.monotonic() < deadline and not running.done(), "the disk is never full"
            time.sleep(0.05)
        small_disk.change("size=400m")
        printed = running.result(PATIENCE_S)
    assert printed.status == 0 and f"{count} records sent" in printed.text, printed.text
    assert "Exception" not in printed.text
    assert Wire(server.url).offsets("logs")[0]["high_watermark"] == count


@pytest.mark.rule("W9")
@pytest.mark.slow
@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_log_that_cannot_be_written_ends_the_process(
    make_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Without an acknowledgement, with a line that says why, and with everything acknowledged before."""
    seam = tmp_path / "seam"
    seam.mkdir()
    breaks = tmp_path / "break"
    (seam / "sitecustomize.py").write_text(BREAKABLE.format(operation=operation, breaks=str(breaks)))
    monkeypatch.setenv("PYTHONPATH", f"{seam}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    server = make_server(flush_ms=60_000)
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    ledger = Ledger()
    for number in range(20):
        publish(wire, ledger, f"before:{number} x")
    breaks.touch()
    value = "never:0 x"
    with pytest.raises(LOST):
        # Its answer would be a lie: the connection ends with the process.
        wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": value}]})
    ledger.unknown.add(value)
    deadline = time.monotonic() + PATIENCE_S
    while server.running:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert server.stop() == EXIT_FATAL
    said = server.log_path.read_text()
    assert "the write-ahead log failed; stopping" in said
    assert "Input/output error" in said
    assert "Traceback" not in said
    breaks.unlink()
    server.start()
    publish(Wire(server.url), ledger, "after:0 x")
    check(read_api(Wire(server.url), "logs", 1), ledger)


def publish(wire: Wire, ledger: Ledger, value: str) -> None:
    reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": value}]})
    assert reply.status == 200, reply
    ledger.acked[value] = (0, reply.document["records"][0][1])
