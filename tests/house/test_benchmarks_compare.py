"""What `make compare` speaks to other systems, and how it looks at who syncs."""

import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.compare.__main__ import Comparison
from benchmarks.compare.installing import nats_server
from benchmarks.compare.nats import Nats
from benchmarks.compare.syncs import calls
from benchmarks.compare.system import Missing
from benchmarks.loads.load import Plan, run_load
from benchmarks.wires import amqp, kafka, nats


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.integers(0, 3))
def test_a_batch_of_kafka_has_all_its_records(values: list[bytes], cut: int) -> None:
    whole = kafka.batch(values)
    assert list(kafka.counts(whole)) == [(len(values), len(values))]
    assert list(kafka.counts(whole + whole[: len(whole) - 1 - cut])) == [(len(values), len(values))]
    # The checksum is over what follows it, and the length over what follows that.
    assert struct.unpack_from(">i", whole, 8) == (len(whole) - 12,)
    assert all(value in whole for value in values)


@given(st.integers(1, 30), st.data())
def test_confirms_may_come_in_any_order_and_several_at_once(count: int, data: st.DataObject) -> None:
    is_whole = amqp.WIRE.replies(count)
    for turn in range(2):
        first = 1 + turn * count
        tags = data.draw(st.permutations(range(first, first + count)))
        confirmed, several, said = set[int](), False, b""
        for tag in tags:
            assert not is_whole(said)
            several = data.draw(st.booleans())
            confirmed |= set(range(first, tag + 1)) if several else {tag}
            said += _method(60, 80, struct.pack(">QB", tag, several))
            if len(confirmed) == count:
                break
        assert not is_whole(said[:-1])
        assert is_whole(said)


def test_a_channel_that_is_closed_is_a_refusal() -> None:
    with pytest.raises(ValueError, match="NOT_FOUND"):
        amqp.WIRE.replies(1)(_method(20, 40, struct.pack(">H", 404) + b"\x09NOT_FOUND" + struct.pack(">HH", 60, 40)))


def test_deliveries_are_counted_once_wherever_they_are_cut() -> None:
    said = _method(60, 60, b"\x01a" + b"\0" * 12) + amqp.publishes(b"value", 1)
    for cut in range(len(said)):
        first, left = amqp.deliveries(said[:cut])
        then, rest = amqp.deliveries(left + said[cut:])
        assert (first + then, rest) == (1, b"")


def _method(kind: int, number: int, arguments: bytes) -> bytes:
    payload = struct.pack(">HH", kind, number) + arguments
    return struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"


def test_a_load_opens_its_connections_as_the_protocol_wants_it() -> None:
    inboxes = set()

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            connection.sendall(b'INFO {"headers":true}\r\n')
            for line in lines:
                words = line.split()
                if words[0] == b"PING":
                    connection.sendall(b"PONG\r\n")
                elif words[0] == b"SUB":
                    inboxes.add(words[1])
                elif words[0] == b"PUB":
                    assert words[2] in inboxes
                    lines.readline()
                    connection.sendall(b'MSG %s 1 10\r\n{"seq": 1}\r\n' % words[2])

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        plan = Plan("nats", listener.getsockname()[1], 3, seconds=0.2, warmup_seconds=0.05, replies=2)
        assert run_load(plan, [nats.publishes(b"value", 2)]).replies > 0
    assert len(inboxes) == 3


def test_syncs_are_found_among_system_calls() -> None:
    lines = [
        '11 100.000100 write(5, ""..., 12) = 12 <0.000010>',
        "11 100.000200 fdatasync(5) = 0 <0.001000>",
        "12 100.000300 fsync(6 <unfinished ...>",
        '13 100.000350 write(9, ""..., 12) = 12 <0.000200>',
        "12 100.002000 <... fsync resumed>) = 0 <0.001700>",
        '14 100.003000 pwritev2(4, [{iov_base=""..., iov_len=12}], 1, 0, RWF_DSYNC) = 12 <0.000100>',
        "strace: Process 15 attached",
    ]
    found = [(call.name, round(call.began - 100, 6), round(call.ended - 100, 6)) for call in calls(lines, {9})]
    assert found == [
        ("fdatasync", 0.0002, 0.0012),
        ("write", 0.00035, 0.00055),
        ("fsync", 0.0003, 0.002),
        ("pwritev2", 0.003, 0.0031),
    ]


def test_what_cannot_be_had_is_left_out_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="install Go"):
        nats_server(tmp_path / "cache")
    comparison = Comparison(tmp_path, tmp_path / "cache", seconds=0.1)
    comparison.run(Nats())
    assert list(comparison.skipped) == ["NATS JetStream"]
    assert not comparison.failed
