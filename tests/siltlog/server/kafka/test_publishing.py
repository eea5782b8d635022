"""A publish of several topics waits for the quotas of all of them within the time that its client waits."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from siltlog.infra.errors import problem
from siltlog.infra.kafka.errors import KafkaError
from siltlog.server.kafka.call import Call
from siltlog.server.kafka.leaders import LeadsAlone
from siltlog.server.kafka.publishing import Publishes

TIMEOUT_MS = 30_000


class Taken:
    """In place of what takes records: it does nothing with them."""

    async def read(self, batches: Any, bytes_max: int) -> int:
        return 0

    async def append(self, batches: Any, acks: Any) -> None:
        pass


@pytest.mark.rule("KF12")
def test_what_one_topic_has_waited_is_not_waited_again_for_the_next() -> None:
    left: list[float] = []

    async def charged_publish(topic: str, nbytes: int, seconds_max: float) -> None:
        left.append(seconds_max)
        # The loop's time is a multiple of a millisecond.
        until = asyncio.get_running_loop().time() + 0.012
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0)

    session = SimpleNamespace(refusal=lambda *_: None, charged_publish=charged_publish)
    held = SimpleNamespace(take=lambda nbytes: None, release=lambda: None)
    data = [{"name": name, "partition_data": [{"index": 0, "records": b"x"}]} for name in ("a", "b", "c")]
    body = {"acks": 1, "timeout_ms": TIMEOUT_MS, "transactional_id": None, "topic_data": data}
    publishes = Publishes(cast(Any, Taken()), cast(Any, None), LeadsAlone(lambda topic: 0, None), lambda: 1)
    waited = asyncio.run(cast(Any, publishes.produce(Call(9, body, cast(Any, session), cast(Any, held)))))
    waited.fields.close()
    first, second, third = left
    assert first <= TIMEOUT_MS / 1000
    assert (second <= first - 0.01, third <= second - 0.01) == (True, True)


@pytest.mark.rule("KF12")
def test_who_loses_a_right_while_he_waits_for_another_topics_quota_publishes_to_none() -> None:
    taken: list[tuple[str, bytes | None, Any]] = []
    lost: list[str] = []

    class Noted(Taken):
        async def append(self, batches: Any, acks: Any) -> None:
            taken.extend((batch.topic, batch.records, getattr(batch.error, "code", None)) for batch in batches)

    async def charged_publish(topic: str, nbytes: int, seconds_max: float) -> None:
        if topic == "b":
            lost.append("a")

    def refusal(operation: str, right: str, topic: str) -> Any:
        return problem("forbidden", "no right to it") if topic in lost else None

    session = SimpleNamespace(refusal=refusal, charged_publish=charged_publish)
    held = SimpleNamespace(take=lambda nbytes: None, release=lambda: None)
    data = [{"name": name, "partition_data": [{"index": 0, "records": b"x"}]} for name in ("a", "b")]
    body = {"acks": 1, "timeout_ms": TIMEOUT_MS, "transactional_id": None, "topic_data": data}
    publishes = Publishes(cast(Any, Noted()), cast(Any, None), LeadsAlone(lambda topic: 0, None), lambda: 1)
    waited = asyncio.run(cast(Any, publishes.produce(Call(9, body, cast(Any, session), cast(Any, held)))))
    waited.fields.close()
    assert taken == [("a", None, KafkaError.TOPIC_AUTHORIZATION_FAILED), ("b", b"x", None)]
