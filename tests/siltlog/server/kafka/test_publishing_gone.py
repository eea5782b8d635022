"""A producer whose connection is gone is not waited for; what it sent stays in the log."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka_rig import batch, publish, the_part
from log_rig import running_log

from siltlog.infra.clock import SystemClock
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.infra.http.memory import InFlight
from siltlog.infra.kafka.errors import KafkaError
from siltlog.ingest.publish.kafka.produce import Produce
from siltlog.ingest.publish.publishing import Publishing
from siltlog.ingest.wal.disk import Disk
from siltlog.server.kafka.call import Call, Waited
from siltlog.server.kafka.connection import KafkaConnection
from siltlog.server.kafka.incoming import scratch
from siltlog.server.kafka.leaders import LeadsAlone
from siltlog.server.kafka.publishing import Publishes


async def uncharged(topic: str, nbytes: int, seconds_max: float) -> None:
    return


@pytest.mark.rule("P1")
def test_who_waits_for_the_table_is_waited_for_no_longer_once_its_connection_has_ended(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_log(tmp_path, Disk()) as (log, topics):
            # Nothing of it is ever flushed.
            topic = await topics.create("t", 1, {"acks": "table"})
            produce = Produce(Publishing(log, lambda: None, None), SystemClock().monotonic)
            publishes = Publishes(produce, cast(Any, None), LeadsAlone(lambda topic: 0, None), lambda: 1_000_000)
            connection = SimpleNamespace(hang_up=HangUp(), own_address=("", 0))
            session: Any = SimpleNamespace(refusal=lambda *_: None, charged_publish=uncharged, connection=connection)
            held = InFlight(1_000_000, SystemClock()).hold()
            body = {**publish("t", batch(b"v")), "timeout_ms": 60_000, "transactional_id": None}
            body["topic_data"][0]["topic_id"] = bytes(16)
            waited = await publishes.produce(Call(9, body, session, held))
            assert isinstance(waited, Waited)
            asked = asyncio.ensure_future(waited.fields)
            async with asyncio.timeout(30):
                while not topic.partition(0).awaited:
                    await asyncio.sleep(0.01)
                connection.hang_up.told()
                answer = await asked
            assert answer is not None
            assert the_part(cast(Any, answer))["error_code"] == KafkaError.REQUEST_TIMED_OUT
            assert not topic.partition(0).awaited

    asyncio.run(run())


@pytest.mark.rule("P1")
@pytest.mark.parametrize("how", ["said all", "lost"])
def test_a_connection_whose_client_has_gone_says_so_to_what_waits(how: str) -> None:
    async def run() -> None:
        served: Any = SimpleNamespace(
            crowd=SimpleNamespace(left=lambda *_, **__: None),
            in_flight=InFlight(1_000_000, SystemClock()),
            request_bytes=lambda: 1_000_000,
            scratch=scratch(),
        )
        connection = KafkaConnection(served)
        connection._intake.begin(cast(Any, SimpleNamespace()))
        heard: list[str] = []
        connection.hang_up.when(lambda: heard.append(how))
        if how == "lost":
            connection.connection_lost(None)
        else:
            # The connection stays, for what came whole is taken.
            assert connection.eof_received()
        assert heard == [how]

    asyncio.run(run())
