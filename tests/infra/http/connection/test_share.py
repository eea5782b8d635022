"""Who sends very many small pieces has a part of the loop, and others have the rest."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.clock import SystemClock
from siltlog.infra.grpc.arrivals import DATA, HEADERS, PREFACE_BYTES
from siltlog.infra.grpc.relay import Relay, Relayed
from siltlog.infra.http.connection.connection import Connection
from siltlog.infra.http.connection.crowd import Crowd
from siltlog.infra.http.connection.share import REST_TIMES, STEPS_MAX, Share
from siltlog.infra.http.memory import InFlight

NONE = cast(Any, None)
READ_S = 0.01


class Transport:
    def __init__(self) -> None:
        self.reads = True
        self.changed = asyncio.Event()

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True
        self.changed.set()

    def is_closing(self) -> bool:
        return False


@pytest.mark.rule("P12")
def test_reads_of_many_steps_rest_one_behind_the_other() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        share, order, ended = Share(), [], asyncio.Event()
        began = loop.time() - READ_S
        share.took(STEPS_MAX, began, NONE, NONE)
        paused: list[str] = []

        def resume(name: str) -> None:
            order.append((name, loop.time() - began))
            if len(order) == 2:
                ended.set()

        for name in ("first", "second"):
            share.took(STEPS_MAX + 1, began, lambda name=name: paused.append(name), lambda name=name: resume(name))
        assert paused == ["first", "second"] and not order
        await ended.wait()
        assert [name for name, _ in order] == ["first", "second"]
        # Not before: of the time that passed both together have had a fifth.
        assert order[0][1] >= READ_S * REST_TIMES and order[1][1] >= 2 * READ_S * REST_TIMES

    asyncio.run(test())


@pytest.mark.rule("P12")
@pytest.mark.parametrize("flow_paused", [False, True])
def test_a_body_in_chunks_of_a_byte_rests_and_goes_on(flow_paused: bool) -> None:
    async def test() -> None:
        transport = Transport()
        connection: Any = Connection.__new__(Connection)

        def feed(data: bytes) -> None:
            for at in range(len(data)):
                connection.on_body(data[at : at + 1])

        connection.__dict__ |= {
            "_deaf": False,
            "_head_bytes": 0,
            "_served": SimpleNamespace(crowd=Crowd(10, SystemClock())),
            "_taken": None,
            "_upgrade": None,
            "cycle": SimpleNamespace(body=b"", response_complete=True, more_body=True, scope=None),
            "flow": SimpleNamespace(read_paused=False),
            "loop": asyncio.get_running_loop(),
            "parser": SimpleNamespace(feed_data=feed, should_upgrade=lambda: False),
            "scope": None,
            "transport": transport,
        }
        connection.data_received(b"x" * STEPS_MAX)
        assert transport.reads
        connection.data_received(b"x" * (STEPS_MAX + 1))
        assert not transport.reads
        if flow_paused:
            # Its body is more than was taken: the rest is not what keeps it from being read any more.
            connection.flow.read_paused = True
            turn = asyncio.Event()
            asyncio.get_running_loop().call_at(connection._served.crowd.share._free_at, turn.set)
            await turn.wait()
            assert not transport.reads
        else:
            await transport.changed.wait()
            assert transport.reads

    asyncio.run(test())


@pytest.mark.rule("P12")
@pytest.mark.parametrize("of_messages", [False, True])
def test_frames_without_end_rest_and_go_on(tmp_path: Path, of_messages: bool) -> None:
    async def test() -> None:
        clock = SystemClock()
        crowd, in_flight = Crowd(10, clock), InFlight(1_000_000, clock)
        relay = Relay(tmp_path, crowd=crowd, peers=NONE, handshakes=None, in_flight=in_flight, logger=NONE)
        made, transport = cast(Relayed, relay._made()), Transport()
        made.transport = transport
        made._intake.begin(cast(Any, transport))
        made.data_received(bytes(PREFACE_BYTES) + frame(HEADERS, b""))
        if of_messages:
            made.data_received(frame(DATA, bytes(5) * (STEPS_MAX + 1)))
        else:
            made.data_received(frame(0xFE, b"") * STEPS_MAX)
            assert transport.reads
            made.data_received(frame(0xFE, b"") * (STEPS_MAX + 1))
        assert not transport.reads
        await transport.changed.wait()
        assert transport.reads

    asyncio.run(test())


def frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, 0)) + (1).to_bytes(4) + payload
