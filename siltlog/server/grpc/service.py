"""The methods of silt.v1.Silt: bytes of gRPC in and out, and errors as its statuses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.grpc.calls import Asked, Calls
from siltlog.infra.grpc.carried import carried
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.infra.grpc.status import Context, end
from siltlog.infra.security.grant import Grant
from siltlog.infra.telemetry import Logger
from siltlog.server.grpc.asking import METHODS, Method, parsed
from siltlog.server.grpc.publishing import PublishStream
from siltlog.server.grpc.subscription import CUT_SECONDS, subscribe

NAME = pb.DESCRIPTOR.services_by_name["Silt"].full_name
THREAD_BYTES_MIN = 64 * 1024
"""Messages from this size on are read and written off the event loop."""


class Service:
    """Used on one event loop."""

    def __init__(
        self, calls: Calls, logger: Logger, draining: asyncio.Event, stall_seconds: Callable[[], float]
    ) -> None:
        """`draining` is set once the server goes away; `stall_seconds()` is how long a client may take nothing."""
        self._calls = calls
        self._logger = logger
        self._draining = draining
        self._stall_seconds = stall_seconds

    def handlers(self) -> Any:
        """What gRPC asks for the methods. Messages are read here, so that what is none of them has our words."""
        methods: Mapping[str, Any] = {
            **{name: grpc.unary_unary_rpc_method_handler(self._unary(method)) for name, method in METHODS.items()},
            "PublishStream": grpc.stream_stream_rpc_method_handler(self._streaming(self._publish_stream)),
            "Subscribe": grpc.stream_stream_rpc_method_handler(self._streaming(self._subscribe)),
        }
        assert methods.keys() == set(pb.DESCRIPTOR.services_by_name["Silt"].methods_by_name)
        return grpc.method_handlers_generic_handler(NAME, methods)

    def _unary(self, method: Method) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def called(data: bytes, context: Context) -> bytes:
            try:
                self._calls.taken(context, len(data))
                return await self._answer(method, data, context)
            except Exception as error:
                # gRPC keeps what ends a call, and what that came through, until the collector comes, which is rarely.
                del data
                await self._fail(context, error)
                raise AssertionError("a call that was ended goes on") from error

        return called

    def _streaming(self, run: Callable[[Context], Awaitable[None]]) -> Callable[[Any, Context], Awaitable[None]]:
        async def called(_: Any, context: Context) -> None:
            try:
                await run(context)
            except Exception as error:
                await self._fail(context, error)

        return called

    async def _publish_stream(self, context: Context) -> None:
        publishing = METHODS["Publish"]

        def publish(data: bytes, placed: Callable[[], None], granted: Callable[[Grant], None]) -> "asyncio.Task[bytes]":
            return asyncio.create_task(self._answer(publishing, data, context, placed, granted))

        await PublishStream(self._calls, context, publish, self._draining, self._stall_seconds()).run()

    async def _subscribe(self, context: Context) -> None:
        await subscribe(self._calls, context, self._stall_seconds())

    async def _answer(
        self,
        method: Method,
        data: bytes,
        context: Context,
        placed: Callable[[], None] | None = None,
        granted: Callable[[Grant], None] | None = None,
    ) -> bytes:
        def asked() -> tuple[Any, Asked]:
            message = parsed(method.request, data)
            return message, method.asked(message)

        def answered(message: Any, body: bytes) -> bytes:
            written: bytes = method.answered(message, body).SerializeToString()
            return written

        if len(data) < THREAD_BYTES_MIN:
            message, asking = asked()
        elif method.carrying and (split := carried(data)) is not None and len(split.rest) < THREAD_BYTES_MIN:
            # A copy holds up the others in a thread, too.
            message = parsed(method.request, split.rest)
            asking = method.carrying(message, split.stream)
        else:
            message, asking = await asyncio.to_thread(asked)
        answer = await self._calls.ask(context, asking, placed)
        if granted is not None:
            assert answer.grant is not None, "the door has let the call in"
            granted(answer.grant)
        if len(answer.body) < THREAD_BYTES_MIN:
            return answered(message, answer.body)
        return await asyncio.to_thread(answered, message, answer.body)

    async def _fail(self, context: Context, error: Exception) -> None:
        """Ends a call with what is wrong; raises what gRPC ends it by."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, grpc.aio.InternalError):
            await _gone(error)
        if isinstance(error, SiltlogError):
            told = error
        else:
            self._logger.error("a call of gRPC failed", exc_info=error)
            told = problem("internal", "the server failed; its log has the request id")
        # What it came through has the message, too.
        error.__traceback__ = None
        try:
            await end(context, told, told.request_id or "")
        except grpc.aio.InternalError as failed:
            await _gone(failed)


async def _gone(error: Exception) -> None:
    """The client has gone while something was written to it: gRPC ends the call a moment later, as it is told. Raises
    the error, which is nobody's failure by then."""
    await asyncio.sleep(CUT_SECONDS)
    raise error
