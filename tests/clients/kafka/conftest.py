"""A broker of Kafka and a server of this repository, for all that a worker plays with them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from kafka_rig import served
from kafka_tools import kafka_broker

from siltlog.infra.errors import ConfigError

SESSION_MS = 30_000
"""A ninth of it is between heartbeats, where the server says how often; kafkajs asks for as much to reset a group."""
LIKE_OURS = (
    "auto.create.topics.enable=false",
    "group.consumer.min.heartbeat.interval.ms=1000",
    "group.consumer.heartbeat.interval.ms=1000",
)


@pytest.fixture(scope="session")
def address_of(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Gives the address of a server, which is there for all clients once one has asked for it."""
    with ExitStack() as stack:

        @cache
        def address(name: str) -> str:
            if name == "kafka":
                folder = tmp_path_factory.mktemp("kafka")
                return stack.enter_context(kafka_broker(folder, *LIKE_OURS))
            settings = {"session_timeout_ms_max": SESSION_MS, "group_initial_rebalance_delay_ms": 0}
            return stack.enter_context(served(redis_url=valkey_url, flush_ms=200, **settings))[1]

        yield address


@pytest.fixture(scope="module", params=["kafka", "siltlog"])
def bootstrap(request: pytest.FixtureRequest, address_of: Callable[[str], str]) -> str:
    try:
        return address_of(request.param)
    except ConfigError as error:
        pytest.skip(f"there is no broker of Kafka: {error}")
