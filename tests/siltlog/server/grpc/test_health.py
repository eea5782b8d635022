"""The service of health by itself."""

import asyncio

from grpc_health.v1 import health_pb2

from siltlog.server.grpc.health import Health

_Status = health_pb2.HealthCheckResponse


def test_a_drain_that_begins_while_a_status_is_sent_is_told() -> None:
    async def told() -> list[int]:
        draining = asyncio.Event()
        health = Health(lambda: True, frozenset(("",)), draining, lambda context, nbytes: None)
        watch = health.Watch(health_pb2.HealthCheckRequest(), None)  # type: ignore[arg-type]
        first = await anext(watch)
        draining.set()
        return [first.status, *[one.status async for one in watch]]

    assert asyncio.run(told()) == [_Status.SERVING, _Status.NOT_SERVING]
