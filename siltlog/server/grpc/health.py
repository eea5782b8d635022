"""grpc.health.v1: whether the server can acknowledge, for whoever asks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

LOOK_SECONDS = 1.0
_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    def __init__(
        self,
        ready: Callable[[], bool],
        services: frozenset[str],
        draining: asyncio.Event,
        taken: Callable[[Any, int], None],
    ) -> None:
        """`ready()` says whether it can acknowledge; the empty name stands for the whole server. `taken(context,
        bytes)` hears of each question."""
        self._ready = ready
        self._services = services | {""}
        self._draining = draining
        self._taken = taken

    async def Check(self, request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: N802
        self._taken(context, request.ByteSize())
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service[:200]!r} here")
        return _Status(status=self._status())

    async def List(self, request: Any, context: grpc.aio.ServicerContext) -> Any:  # noqa: N802
        self._taken(context, request.ByteSize())
        status = _Status(status=self._status())
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._services, status))

    async def Watch(  # noqa: N802
        self, request: Any, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        self._taken(context, request.ByteSize())
        told = None
        while True:
            # Asked before: a drain that begins while a status is sent is told, too.
            last = self._draining.is_set()
            status = self._status() if request.service in self._services else _Status.SERVICE_UNKNOWN
            if status != told:
                told = status
                yield _Status(status=status)
            if last:
                return
            try:
                await asyncio.wait_for(self._draining.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    def _status(self) -> int:
        serving = self._ready() and not self._draining.is_set()
        found: int = _Status.SERVING if serving else _Status.NOT_SERVING
        return found
