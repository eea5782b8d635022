"""The size of the log's segments changes from one start to the next, and nothing else does."""

import pytest
from evidence import check, read_api, read_table
from failure_rig import MIB, NEVER_FLUSHED, NO_REDIS, StartServer, refused
from publishers import FILLER, Ledger, Wire
from waiting import until

REQUESTS = 12
RECORDS = 60


def publish(wire: Wire, ledger: Ledger, name: str) -> None:
    for request in range(REQUESTS):
        values = [f"{name}:{request * RECORDS + number} {FILLER}" for number in range(RECORDS)]
        reply = wire.call("POST", "/v1/topics/t/records", {"records": [{"value": value} for value in values]})
        assert reply.status == 200, reply
        ledger.acked.update(zip(values, map(tuple, reply.document["records"]), strict=True))


def test_a_log_opens_with_segments_of_another_size(make_server: StartServer) -> None:
    ledger = Ledger()
    for segment_bytes in (MIB, 4 * MIB, 2 * MIB):
        server = make_server(**NEVER_FLUSHED | NO_REDIS, wal_segment_bytes=segment_bytes, default_partitions=3)
        server.start()
        wire = Wire(server.url)
        if not ledger.acked:
            made = wire.call("PUT", "/v1/topics/t")
            assert (made.status, made.document["partitions"]) == (201, 3)
        publish(wire, ledger, f"at-{segment_bytes}")
        check(read_api(wire, "t", 3), ledger)
        sizes = {path.stat().st_size for path in (server.data_dir / "wal").glob("*.wal")}
        assert segment_bytes in sizes
        server.kill()
    server = make_server(**NEVER_FLUSHED | NO_REDIS, wal_segment_bytes=17 * MIB)
    assert "SILT_WAL_SEGMENT_BYTES is 17825792: it is from 1048576 to 16777216" in refused(server)
    server = make_server(**NO_REDIS)
    server.start()
    found = read_api(Wire(server.url), "t", 3)
    check(found, ledger)
    assert server.stop() == 0
    assert read_table(server.root, "t") == sorted(found)


@pytest.mark.rule("W12")
@pytest.mark.parametrize("stopped", [True, False])
def test_a_log_may_take_less_than_one_of_its_files_had(make_server: StartServer, stopped: bool) -> None:
    """What is in tables is let go of although nothing is flushed: publishes wait for that, and go on."""
    server = make_server(**NO_REDIS, wal_bytes_max=64 * MIB)
    server.start()
    wire, ledger = Wire(server.url), Ledger()
    wire.create("t", 1)
    for time in range(3):
        publish(wire, ledger, f"before-{time}")
    until(lambda: wire.offsets("t")[0]["table_offset"] == len(ledger.acked))
    if stopped:
        assert server.stop() == 0
    else:
        server.kill()
    assert max(path.stat().st_size for path in (server.data_dir / "wal").glob("*.wal")) == 16 * MIB

    server = make_server(**NO_REDIS, wal_bytes_max=4 * MIB)
    server.start()
    wire = Wire(server.url)
    until(lambda: wire.ready().status == 200)
    publish(wire, ledger, "after")
    check(read_api(wire, "t", 1), ledger)
    assert server.stop() == 0
