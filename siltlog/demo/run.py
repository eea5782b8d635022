"""The demo, act by act."""

import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from siltlog.demo.data import Flights, flights
from siltlog.demo.ledger import Ledger, compare, out_of_order
from siltlog.demo.publishing import Programme, Publisher, Single
from siltlog.demo.reading import Member, TableWatch
from siltlog.demo.result import Kill, Quantiles, Result
from siltlog.demo.spark import examine
from siltlog.demo.stage import Counts, Stage
from siltlog.infra import names
from siltlog.infra.client.admin import Admin
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, SiltlogError
from siltlog.ingest.data_dir import holder_of
from siltlog.server_process import ServerProcess

TOPIC = "flights"
GROUP = "demo"
PARTITIONS = 6
MEMBERS = ("reader-1", "reader-2")
STEADY_SHARE = 0.6
STEADY_S = 10.0
KILL_SHARE = 0.3
"""The server is killed once this much is acknowledged: in the middle of the steady stream."""
WAIT_S_MAX = 90.0
"""How long is waited for anything that takes a second when all is well."""
LOOK_S = 0.02
KILL_LOOK_S = 0.0005
"""Records are on their way for milliseconds."""
SWITCH_INTERVAL_S = 0.0005
"""Publishers, readers and a watch share this process: with the default of 5 ms the acks would wait for each other."""


@dataclass(frozen=True, slots=True)
class Plan:
    data_dir: Path
    records: int
    port: int = 0
    steady_s: float = STEADY_S


@dataclass(frozen=True, slots=True)
class Outage:
    """Monotonic seconds, and the flights acknowledged before."""

    acknowledged: list[int]
    sent: int
    began: float
    ended: float
    restart_s: float

    def touches(self, single: Single) -> bool:
        return single.sent < self.ended and single.acknowledged > self.began


def run(plan: Plan, stage: Stage, clock: Clock) -> Result:
    """Runs the whole demo in a fresh `plan.data_dir`.

    Raises SiltlogError where it could not go on; what went on and was wrong is a failed check of the result.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    began = clock.monotonic()
    empty(plan.data_dir)
    server = ServerProcess(plan.data_dir, {"port": plan.port})
    stage.act("A server, and a year of flights")
    data = _load_while_starting(plan, stage, server)
    result = Result(len(data), PARTITIONS, server.url, plan.data_dir)
    try:
        stage.say(f"{server.url}   {len(data):,} flights, {data.value_bytes / 1e6:,.0f} MB as JSON")
        with Admin(server.url) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        _publish_and_read(plan, stage, clock, server, data, result)
        _settle(server.url, stage, clock)
        _use_spark(server, stage, clock, result)
        result.seconds = clock.monotonic() - began
        status = server.stop()
        result.check("clean stop", status == 0, f"SIGTERM: flushed and ended with status {status}")
    finally:
        server.stop()
    return result


def empty(data_dir: Path) -> None:
    """Makes `data_dir` an empty folder; only one that the demo made is emptied, and only while nothing runs in it.

    Raises ConfigError.
    """
    marker = data_dir / names.DEMO_MARKER_FILE
    try:
        if data_dir.exists() and any(data_dir.iterdir()):
            if not marker.exists():
                raise ConfigError(f"{data_dir} has other things in it; name an empty or a new folder by --data-dir")
            for used in (data_dir, *(inner for inner in data_dir.iterdir() if inner.is_dir())):
                holder = holder_of(used)
                if holder is not None:
                    raise ConfigError(
                        f"{used} is in use by process {holder.pid}; stop it first, or name another folder by --data-dir"
                    )
            shutil.rmtree(data_dir)
        data_dir.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise ConfigError(f"{data_dir} cannot be used: {error.strerror}; name another folder by --data-dir") from None


def _load_while_starting(plan: Plan, stage: Stage, server: ServerProcess) -> Flights:
    """Reads the flights on this thread while the server starts on another."""
    failed: list[BaseException] = []

    def start() -> None:
        try:
            server.start()
        except BaseException as error:
            failed.append(error)

    starting = threading.Thread(target=start, name="demo-start")
    starting.start()
    try:
        with stage.waiting("starting a server, reading the flights"):
            data = flights(plan.records)
    except BaseException:
        starting.join()
        server.stop()
        raise
    starting.join()
    if failed:
        raise failed[0]
    return data


def _publish_and_read(
    plan: Plan, stage: Stage, clock: Clock, server: ServerProcess, data: Flights, result: Result
) -> None:
    programme = Programme.of(len(data), steady_share=STEADY_SHARE, steady_s=plan.steady_s)
    publisher = Publisher(server.url, TOPIC, data, programme, clock)
    watch = TableWatch(server.url, TOPIC, clock)
    members = [Member(name, server.url, GROUP, {TOPIC: 0}, clock) for name in MEMBERS]

    def look() -> Counts:
        return Counts(publisher.published, publisher.acknowledged_in_a_row, sum(member.count for member in members))

    stage.act("Publishing over HTTP while a group of two reads")
    watch.start()
    for member in members:
        member.start()
    publisher.start()
    try:
        with stage.alone(), stage.counting(look, len(data)):
            outage = _kill_in_the_middle(stage, clock, server, publisher, len(data))
            publisher.join()
            stage.say(f"everything is acknowledged; the last {len(data) - programme.steady:,} went flat out")
            await_readers(members, len(data), clock)
            _await_table(watch, publisher.singles, clock)
    finally:
        publisher.abandon()
        for member in members:
            member.stop()
        watch.stop()
    _account(data, programme, publisher, members, watch, outage, result)


def _kill_in_the_middle(stage: Stage, clock: Clock, server: ServerProcess, publisher: Publisher, total: int) -> Outage:
    """Waits for its moment, when records are on their way; kills the server by its pid, and starts it again."""
    on_their_way = publisher.slice_records // 2

    def due() -> bool:
        acknowledged = publisher.acknowledged_in_a_row
        in_the_middle = acknowledged >= total * KILL_SHARE and publisher.published - acknowledged > on_their_way
        return in_the_middle or publisher.failed

    wait(clock, due, "the moment of the kill", look_s=KILL_LOOK_S)
    if publisher.failed:
        publisher.join()
    pid = server.pid
    acknowledged = publisher.acknowledged()
    sent, began = publisher.published, clock.monotonic()
    server.kill()
    stage.say(f"kill -9 {pid}: {len(acknowledged):,} acknowledged, {sent - len(acknowledged):,} on their way", "red")
    restarting = clock.monotonic()
    server.start()
    ended = clock.monotonic()
    stage.say(f"the server is back after {ended - restarting:.2f} s; publishers and readers go on", "green")
    return Outage(acknowledged, sent, began, ended, ended - restarting)


def await_readers(members: list[Member], total: int, clock: Clock) -> None:
    """Waits until every record was read once; gives up, for the checks to say so, when nothing comes any more."""
    last_total, last_change = -1, clock.monotonic()
    while clock.monotonic() - last_change < WAIT_S_MAX and not all(member.error for member in members):
        now_total = sum(member.count for member in members)
        if now_total != last_total:
            last_total, last_change = now_total, clock.monotonic()
            if last_total >= total and Ledger.concat([member.ledger() for member in members]).distinct >= total:
                return
        clock.sleep(LOOK_S)


def _await_table(watch: TableWatch, singles: list[Single], clock: Clock) -> None:
    """Waits until the table has every record whose freshness is measured."""
    deadline = clock.monotonic() + WAIT_S_MAX
    while len(watch.ages_ms(singles)) < len(singles) and clock.monotonic() < deadline:
        clock.sleep(LOOK_S)


def _account(
    data: Flights,
    programme: Programme,
    publisher: Publisher,
    members: list[Member],
    watch: TableWatch,
    outage: Outage,
    result: Result,
) -> None:
    """Compares what was published, acknowledged and read, record by record, and notes the measurements."""
    written = publisher.ledger()
    read = Ledger.concat([member.ledger() for member in members])
    difference = compare(written, read)
    before = compare(publisher.ledger(outage.acknowledged), read)
    undisturbed = [single for single in publisher.singles if not outage.touches(single)]
    waits_ms = [(single.acknowledged - single.sent) * 1000 for single in publisher.singles]

    result.published = sum(delivery is not None for delivery in publisher.deliveries)
    result.acknowledged = len(written)
    result.read, result.repeated = read.distinct, difference.repeated
    result.members = {member.name: member.count for member in members}
    result.steady_records_per_s = programme.steady_per_s
    result.burst_records, result.burst_s = len(data) - programme.steady, publisher.burst_s
    result.burst_bytes = sum(map(len, data.values[programme.steady :]))
    result.ack_ms = Quantiles.of([(single.acknowledged - single.sent) * 1000 for single in undisturbed])
    result.freshness_ms = Quantiles.of(watch.ages_ms(publisher.singles))
    result.kill = Kill(
        acknowledged=len(outage.acknowledged),
        unanswered=outage.sent - len(outage.acknowledged),
        recovered=len(outage.acknowledged) - before.missing - before.altered,
        restart_s=outage.restart_s,
        longest_ack_ms=max(waits_ms, default=0.0),
    )
    result.hash_sum = written.hash_sum
    errors = "; ".join(f"{member.name}: {member.error}" for member in members if member.error)
    result.check(
        "published = acknowledged = read",
        result.published == result.acknowledged == result.read == len(data) and not errors,
        f"{result.published:,} = {result.acknowledged:,} = {result.read:,} distinct (topic, partition, offset)"
        + (f"; {errors}" if errors else ""),
    )
    result.check(
        "once",
        written.distinct == len(data) and not difference.unknown,
        f"each has an offset of its own; {difference.unknown:,} read that nobody published",
    )
    result.check(
        "unchanged",
        not difference.altered and not difference.missing,
        f"{difference.altered:,} read with other bytes, {difference.missing:,} never read",
    )
    misplaced = out_of_order(publisher.ledger(publisher.stream))
    result.check("in order", not misplaced, f"{misplaced:,} of the stream stand before an earlier one")
    lost = len(outage.acknowledged) - result.kill.recovered
    result.check(
        "nothing lost",
        not lost,
        f"{result.kill.recovered:,} of {len(outage.acknowledged):,} acknowledged before the kill are there",
    )


def _settle(url: str, stage: Stage, clock: Clock) -> None:
    """Waits until the table has everything: Spark reads the table alone."""

    def settled() -> bool:
        return all(entry["table_offset"] == entry["high_watermark"] for entry in admin.offsets(TOPIC))

    with Admin(url) as admin, stage.waiting("the last records settle into the table"):
        wait(clock, settled, "the last records to reach the table")


def _use_spark(server: ServerProcess, stage: Stage, clock: Clock, result: Result) -> None:
    stage.act("The same records as a table")
    try:
        table = result.table = examine(server.root, TOPIC, stage, clock)
    except ConfigError as error:  # no Java, no jars: all else stands without them
        result.without_spark = error.detail
        stage.say(error.detail, "yellow")
        return
    result.check(
        "table",
        table.rows == table.distinct == result.records and table.hash_sum == result.hash_sum,
        f"Spark counts {table.rows:,} rows, {table.distinct:,} distinct, of the same content",
    )
    result.check(
        "compaction",
        table.rows_after == table.rows and table.files_after < max(table.files_before, PARTITIONS + 1),
        f"{table.files_before:,} files became {table.files_after:,}, still {table.rows_after:,} rows",
    )


def wait(clock: Clock, ready: Callable[[], bool], what: str, look_s: float = LOOK_S) -> None:
    """Raises SiltlogError when `ready` stays False."""
    deadline = clock.monotonic() + WAIT_S_MAX
    while not ready():
        if clock.monotonic() > deadline:
            raise SiltlogError(f"the demo waited {WAIT_S_MAX:.0f} s in vain for {what}")
        clock.sleep(look_s)
