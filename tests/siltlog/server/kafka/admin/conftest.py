"""A server with groups that speaks Kafka's protocol, and clients that administer it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from http_rig import Http
from kafka import KafkaAdminClient
from kafka_rig import WAIT_SECONDS, bootstrap_of, free_port

from siltlog.testing import running_server


@pytest.fixture(scope="package")
def grouped() -> Iterator[tuple[Http, str]]:
    """A client of HTTP, and the address for clients of Kafka."""
    with running_server(kafka_listen=f"127.0.0.1:{free_port()}", auto_create_partitions=1, flush_ms=200) as server:
        http = Http(server.url)
        http.create("first")
        offsets = {"offsets": [{"topic": "first", "partition": 0, "offset": 0}]}
        assert http.json("PUT", "/v1/groups/first/offsets", offsets).status == 204
        # The server's own topic is there then, or soon.
        end = time.monotonic() + WAIT_SECONDS
        while http.get("/v1/topics/_offsets").status != 200:
            assert time.monotonic() < end
            time.sleep(0.02)
        yield http, bootstrap_of(server)


@pytest.fixture
def http(grouped: tuple[Http, str]) -> Http:
    return grouped[0]


@pytest.fixture
def bootstrap(grouped: tuple[Http, str]) -> str:
    return grouped[1]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()
