"""A server that speaks Kafka's protocol, for the tests of a module whose topics are their own."""

from collections.abc import Iterator
from typing import Any

import pytest
from http_rig import Http
from kafka_rig import served


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Http, str, Any]]:
    """A client of HTTP, the address for clients of Kafka, and the server."""
    with served(auto_create_partitions=1, flush_ms=200) as (http, bootstrap, server):
        yield http, bootstrap, server
