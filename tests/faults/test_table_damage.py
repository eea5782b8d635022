"""Tables and data dirs that were cut short, rolled back, lost: opened all the same, or refused by name."""

import random
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from evidence import check, read_api, read_table
from failure_rig import NEVER_FLUSHED, StartServer, refused
from publishers import ARROW, FILLER, Ledger, Wire, arrow_body

from siltlog.infra import names
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.audit.audit import audit_topics
from siltlog.server_process import ServerProcess


def log_folder(server: ServerProcess, topic: str = "logs") -> Path:
    return server.data_dir / names.LAKE_FOLDER / names.topic_path(topic) / names.DELTA_LOG_FOLDER


def entries(server: ServerProcess, topic: str = "logs") -> list[Path]:
    return sorted(log_folder(server, topic).glob("*.json"))


def write(wire: Wire, ledger: Ledger, commits: int, *, acks: str = "table") -> None:
    """So many requests, each in the table before the next."""
    for number in range(len(ledger.acked), len(ledger.acked) + commits):
        value = f"writer:{number} x"
        reply = wire.call("POST", f"/v1/topics/logs/records?acks={acks}", {"records": [{"value": value}]})
        assert reply.status == 200, reply
        partition, offset = reply.document["records"][0]
        ledger.acked[value] = (partition, offset)


def assert_whole(server: ServerProcess, ledger: Ledger) -> None:
    """Reads it, publishes on, stops, and reads it again."""
    wire = Wire(server.url)
    check(read_api(wire, "logs", 1), ledger)
    write(wire, ledger, 2)
    found = read_api(wire, "logs", 1)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "logs") == sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["commit", "checkpoint", "last checkpoint"])
def test_half_written_log_files(make_server: StartServer, rng: random.Random, kind: str) -> None:
    """What a power cut leaves: the WAL has it still, because it shrinks only after the table was synced."""
    server = make_server(wal_bytes_max=64 * 1024 * 1024, flush_ms=1)
    server.start()
    ledger = Ledger()
    Wire(server.url).create("logs", 1)
    for cut in ("empty", "part", "zeros"):
        write(Wire(server.url), ledger, 5 if kind == "commit" else 22)
        server.kill()
        if kind == "commit":
            path = entries(server)[-1]
        elif kind == "checkpoint":
            path = sorted(log_folder(server).glob("*.checkpoint.parquet"))[-1]
        else:
            path = log_folder(server) / "_last_checkpoint"
        whole = path.read_bytes()
        kept = rng.randrange(1, len(whole))
        path.write_bytes({"empty": b"", "part": whole[:kept], "zeros": whole[:kept] + bytes(len(whole) - kept)}[cut])
        server.start()
        check(read_api(Wire(server.url), "logs", 1), ledger)
    assert_whole(server, ledger)


def test_a_table_that_was_rolled_back(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    ledger = Ledger()
    Wire(server.url).create("logs", 1)
    write(Wire(server.url), ledger, 5)
    server.stop()
    before = {path: path.read_bytes() for path in entries(server)}
    server.start()
    write(Wire(server.url), ledger, 5)
    server.stop()
    later = [path for path in entries(server) if path not in before]
    kept = {path: path.read_bytes() for path in later}
    for path in later:
        path.unlink()
    said = refused(server)
    assert "topic logs" in said and "rolled back" in said and "--accept-loss" in said

    for path, content in kept.items():
        path.write_bytes(content)
    server.start()
    assert_whole(server, ledger)


def test_what_the_log_still_has_is_not_lost_with_the_table(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    ledger = Ledger()
    Wire(server.url).create("logs", 1)
    write(Wire(server.url), ledger, 5)
    entries_then = entries(server)
    write(Wire(server.url), ledger, 5)
    server.stop()
    for path in set(entries(server)) - set(entries_then):
        path.unlink()
    refused(server)
    server.start("--accept-loss")
    assert_whole(server, ledger)


@pytest.mark.slow
def test_what_is_lost_can_be_accepted_and_no_offset_is_used_again(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    end = _write_much(wire, 2)
    kept = entries(server)
    lost_from = end
    end = _write_much(wire, 14)
    server.stop()
    for path in set(entries(server)) - set(kept):
        path.unlink()
    said = refused(server)
    assert "rolled back" in said and f"topic logs, partition 0: offsets {lost_from} to " in said
    lost_to = int(said.rpartition(f"offsets {lost_from} to ")[2].split()[0])
    assert lost_from < lost_to < end

    server.start("--accept-loss")
    wire = Wire(server.url)
    reply = wire.call("POST", "/v1/topics/logs/records?acks=table", {"records": [{"value": "new"}]})
    assert reply.document["records"] == [[0, end]]
    expected = [*range(lost_from), *range(lost_to + 1, end + 1)]
    for _ in range(2):
        found = read_api(Wire(server.url), "logs", 1)
        assert [row.offset for row in found] == expected
        server.stop()
        assert read_table(server.root, "logs") == sorted(found)
        server.start()


def _write_much(wire: Wire, requests: int) -> int:
    """Enough of them turns the write-ahead log over; the offset after the last record."""
    end = 0
    for number in range(requests):
        body = arrow_body([f"{number} {FILLER}"] * 75)
        reply = wire.call("POST", "/v1/topics/logs/records?acks=table", body, **ARROW)
        assert reply.status == 200, reply
        end = reply.document["partitions"][0]["last_offset"] + 1
    return end


def test_unflushed_records_lie_above_a_table_that_was_rolled_back(make_server: StartServer) -> None:
    server = make_server(**NEVER_FLUSHED)
    server.start()
    ledger = Ledger()
    Wire(server.url).create("logs", 1)
    write(Wire(server.url), ledger, 4, acks="wal")
    server.stop()
    server.start()
    write(Wire(server.url), ledger, 3, acks="wal")
    server.kill()
    for path in entries(server)[2:]:
        path.unlink()
    said = refused(server)
    assert "topic logs" in said and "--accept-loss" in said
    server.start("--accept-loss")
    lost = {value for value, place in ledger.acked.items() if place[1] < 4}
    values = {row.value: row.offset for row in read_api(Wire(server.url), "logs", 1)}
    assert {value: place[1] for value, place in ledger.acked.items() if value not in lost} == {
        value: offset for value, offset in values.items() if value not in lost
    }


def test_a_table_folder_that_is_gone(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    wire.create("others", 1)
    write(wire, Ledger(), 3)
    server.kill()
    shutil.rmtree(log_folder(server).parent)
    said = refused(server)
    assert "topic logs" in said and "table is gone" in said and "others" not in said
    server.start("--accept-loss")
    wire = Wire(server.url)
    assert [topic["name"] for topic in wire.call("GET", "/v1/topics").document["topics"]] == ["others"]
    wire.create("logs", 1)
    ledger = Ledger()
    write(wire, ledger, 3)
    server.kill()
    server.start()
    assert_whole(server, ledger)


@pytest.mark.parametrize("first_commit", [None, b"", b'{"protocol":{"minRea'])
def test_a_creation_that_was_cut_short(make_server: StartServer, first_commit: bytes | None) -> None:
    """It was never answered, so there is no such topic; and nothing is in the way of making it."""
    server = make_server()
    log_folder(server).mkdir(parents=True)
    if first_commit is not None:
        (log_folder(server) / f"{0:020}.json").write_bytes(first_commit)
    server.start()
    wire = Wire(server.url)
    assert wire.call("GET", "/v1/topics").document["topics"] == []
    wire.create("logs", 1)
    ledger = Ledger()
    write(wire, ledger, 2)
    server.kill()
    server.start()
    assert_whole(server, ledger)


def test_a_log_without_entries_is_not_an_empty_topic(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    write(wire, Ledger(), 3)
    server.kill()
    for path in log_folder(server).iterdir():
        path.unlink()
    said = refused(server)
    assert "topic logs" in said and "table is gone" in said


def test_a_data_file_that_is_gone_is_named(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    wire = Wire(server.url)
    wire.create("logs", 1)
    write(wire, Ledger(), 3)
    server.stop()
    lost = sorted(log_folder(server).parent.glob("partition=0/*.parquet"))[0]
    lost.unlink()
    said = refused(server)
    assert lost.name in said and "topic logs, partition 0" in said and "missing" in said


def test_a_table_that_another_program_optimized(make_server: StartServer) -> None:
    """Its rows are not in the order of offsets any more."""
    server = make_server()
    server.start()
    wire, ledger = Wire(server.url), Ledger()
    wire.create("logs", 1)
    write(wire, ledger, 4)
    assert server.stop() == 0
    DeltaTable(log_folder(server).parent).optimize.compact()
    server.start()
    wire = Wire(server.url)
    for offset in range(5):
        reply = wire.call("GET", f"/v1/topics/logs/partitions/0/records?offset={offset}")
        assert reply.status == 200, reply
        assert [record["offset"] for record in reply.document["records"]] == [*range(offset, 4)]
    assert_whole(server, ledger)


def test_a_data_dir_that_is_lost(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    root = f"file://{server.data_dir.parent}/shared"
    server.stop()
    first = make_server("first", root=root, **NEVER_FLUSHED)
    first.start()
    wire = Wire(first.url)
    wire.create("logs", 1)
    ledger = Ledger()
    write(wire, ledger, 3, acks="wal")
    first.stop()
    first.start()
    write(wire, ledger, 3, acks="wal")
    first.kill()
    shutil.rmtree(first.data_dir / "wal")
    said = refused(first)
    assert "topic logs, partitions 0" in said and "--take-over" in said
    first.start("--take-over")
    wire = Wire(first.url)
    assert [row.offset for row in read_api(wire, "logs", 1)] == [0, 1, 2]
    reply = wire.call("POST", "/v1/topics/logs/records", {"records": [{"value": "x"}]})
    assert reply.document["records"] == [[0, 1 << 32]]


def test_a_data_dir_of_another_root_is_refused(make_server: StartServer) -> None:
    server = make_server()
    server.start()
    server.stop()
    moved = make_server(root=f"file://{server.data_dir.parent}/elsewhere")
    said = refused(moved)
    assert "belongs to another root" in said and "SILT_ROOT" in said


@pytest.mark.rule("E8")
def test_producer_state_that_was_removed(make_server: StartServer) -> None:
    """Audit says so; the server that knows the producers writes it anew."""

    def published(key: str) -> str:
        body = {"records": [{"value": key}]}
        reply = Wire(server.url).call("POST", "/v1/topics/logs/records?acks=table", body, Idempotency_Key=key)
        assert reply.status == 200, reply
        assert server.stop() == 0
        [report] = audit_topics(ServerSettings(data_dir=server.data_dir, root=server.root), ["logs"])
        return " ".join(finding.kind for finding in report.findings)

    server = make_server()
    server.start()
    Wire(server.url).create("logs", 2)
    assert published("a") == ""
    state = server.data_dir / names.LAKE_FOLDER / names.topic_path("logs") / names.STATE_FOLDER
    shutil.rmtree(state)
    [report] = audit_topics(ServerSettings(data_dir=server.data_dir, root=server.root), ["logs"])
    [finding] = report.findings
    assert finding.kind == "lost_state" and "up to offset 1 was beside the table, and none is there" in finding.detail
    server.start()
    assert published("b") == "" and state.is_dir()
