"""`Subscribe`: a member of a group, by the session that a WebSocket has, over a stream of gRPC."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc.aio import EOF

from siltlog.consumers.push.feed import Found
from siltlog.consumers.push.messages import JsonWording, Kind, Said
from siltlog.consumers.push.sockets import WORDING
from siltlog.consumers.reading.view import Key
from siltlog.infra.errors import SiltlogError, problem, problem_document
from siltlog.infra.grpc.calls import Answer, Asked, Calls, checked, segment
from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.infra.grpc.records import add_records
from siltlog.infra.grpc.status import Context, problem_of
from siltlog.infra.http.connection.hang_up import HangUp
from siltlog.infra.http.connection.web_socket import AWAY, MESSAGES_WAITING_MAX, UPGRADE
from siltlog.infra.http.requests import encode_json
from siltlog.server.grpc.asking import committed_offset, member_settings, parsed

CUT_SECONDS = 0.25
"""Within that gRPC has said that a stream which ended was cut off, if it was."""
START_SECONDS = 10.0
"""How long a stream may be there without saying what it is for."""


class ProtoWording:
    """Messages in protobuf."""

    def __init__(self) -> None:
        self._json = JsonWording("text")

    def said(self, message: bytes, *, in_group: bool) -> Said:
        """What a client may say is checked where it is written down for all: as JSON."""
        return self._json.said(encode_json(_said(parsed(pb.SubscribeRequest, message))), in_group=in_group)

    def records(self, found: Sequence[Found], *, cursor: str | None = None) -> bytes:
        told = pb.SubscribeResponse()
        told.records.SetInParent()
        for part in found:
            add_records(told.records.records, part.batches, part.key.topic)
        return _written(told)

    def partitions(self, kind: Kind, member: str, generation: int, offsets: Sequence[tuple[Key, int]]) -> bytes:
        held = pb.SubscribeResponse.HeldPartitions(member_id=member, generation=generation)
        for key, offset in offsets:
            held.partitions.add(topic=key.topic, partition=key.partition, offset=offset)
        return _written(pb.SubscribeResponse(**{kind: held}))

    def committed(self, offsets: Sequence[tuple[str, int, int]], *, dead_lettered: bool = False) -> bytes:
        told = pb.SubscribeResponse.Committed(dead_lettered=dead_lettered)
        for topic, partition, offset in offsets:
            told.offsets.add(topic=topic, partition=partition, offset=offset)
        return _written(pb.SubscribeResponse(committed=told))

    def problem(self, error: SiltlogError, request_id: str) -> bytes:
        return _written(pb.SubscribeResponse(problem=problem_of(problem_document(error, request_id))))


def _written(message: pb.SubscribeResponse) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _said(message: pb.SubscribeRequest) -> dict[str, Any]:
    match which := message.WhichOneof("message"):
        case "credit":
            return {"type": which, "records": message.credit.records}
        case "commit":
            offsets = [committed_offset(at) | _generation(at) for at in message.commit.offsets]
            return {"type": which, "offsets": offsets}
        case "nack":
            records = [
                {"topic": at.topic, "partition": at.partition, "offset": at.offset} | _generation(at)
                for at in message.nack.records
            ]
            return {"type": which, "offsets": records, "error": message.nack.error}
        case "release":
            partitions = [{"topic": at.topic, "partition": at.partition} for at in message.release.partitions]
            return {"type": which, "partitions": partitions}
        case "start":
            raise problem("invalid_request", "the stream has begun: start is its first message alone")
        case _:
            raise problem("invalid_request", "the message says nothing: it has credit, commit, nack or release")


def _generation(at: pb.CommittedOffset | pb.SubscribeRequest.NackedRecord) -> dict[str, int]:
    return {"generation": at.generation} if at.HasField("generation") else {}


class GrpcChannel:
    """The stream as a session speaks over it. It buffers a few messages of the client, and one that is being sent."""

    def __init__(self, calls: Calls, context: Context, stall_seconds: float) -> None:
        self.request_id = ""
        self.is_slow = False
        self.left = False
        self.error: SiltlogError | None = None
        """Why it was closed."""
        self._connection = calls.connection(context)
        self._context = context
        self._stall_seconds = stall_seconds
        self._wake: Callable[[], None] = lambda: None
        self._messages: deque[bytes] = deque()
        self._read_on = asyncio.Event()
        self._outgoing: deque[bytes] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._lost = False
        self._closed = False

    def accepted(self) -> list[tuple[bytes, bytes]]:
        return []

    def begin(self, request_id: str, wake: Callable[[], None]) -> None:
        self.request_id = request_id
        self._wake = wake

    def open(self) -> None:
        self._reading = asyncio.create_task(self._read())

    @property
    def ended(self) -> bool:
        # What was said before the client closed its side is still heard.
        return self._lost or self._closed or (self.left and not self._messages)

    @property
    def takes(self) -> bool:
        return self._sending is None

    def message(self) -> bytes | None:
        if not self._messages:
            return None
        self._read_on.set()
        return self._messages.popleft()

    def send(self, text: bytes) -> None:
        if self._lost or self._closed:
            return
        self._outgoing.append(text)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    def beat(self) -> None:
        """gRPC itself looks after connections that have become silent."""

    def close(self, code: int, error: SiltlogError | None = None) -> None:
        if self._lost or self._closed:
            return
        if error is None and code == AWAY:
            error = problem("shutting_down", "the server is shutting down; connect again in a moment")
        self.error = error
        self._closed = True

    def lose(self) -> None:
        """The client is gone."""
        self._lost = True
        if self._reading is not None:
            self._reading.cancel()
        self._wake()

    async def end(self) -> None:
        """Returns once what was sent is taken, or nobody takes it."""
        if self._reading is not None:
            self._reading.cancel()
        if self._sending is not None:
            await self._sending

    async def _read(self) -> None:
        while (data := await self._context.read()) is not EOF:
            self._connection.told(len(data))
            self._messages.append(data)
            self._wake()
            while len(self._messages) >= MESSAGES_WAITING_MAX:
                self._read_on.clear()
                await self._read_on.wait()
        # A stream that was cut off ends as one that its client has closed, and is told to be gone a moment later.
        await asyncio.sleep(CUT_SECONDS)
        self.left = True
        self._wake()

    async def _send(self) -> None:
        try:
            while self._outgoing and not self._lost:
                await asyncio.wait_for(self._context.write(self._outgoing.popleft()), self._stall_seconds)
        except TimeoutError:
            self.is_slow = True
            self.close(
                AWAY,
                problem(
                    "overloaded",
                    "what was sent was not taken for too long; come back as the same member, and give less credit",
                ),
            )
        except grpc.aio.InternalError:
            # The client has gone while it was written; that it is gone is told a moment later.
            self._lost = True
        finally:
            self._sending = None
            self._wake()


async def subscribe(calls: Calls, context: Context, stall_seconds: float) -> None:
    """One stream, from its first message on. Raises SiltlogError that ends it."""
    channel = GrpcChannel(calls, context, stall_seconds)
    asked = _opening(await _start(calls, context), channel)
    answer = Answer()
    session = calls.begin(context, asked, answer, gone := HangUp())
    try:
        await asyncio.shield(session)
    except asyncio.CancelledError:
        channel.lose()
        gone.told()
        raise
    checked(answer)
    await channel.end()
    if channel.error is not None:
        channel.error.request_id = answer.request_id
        raise channel.error


async def _start(calls: Calls, context: Context) -> pb.SubscribeRequest.Start:
    try:
        data = await asyncio.wait_for(context.read(), START_SECONDS)
    except TimeoutError:
        raise problem("request_timeout", "the first message of the stream, start, did not come in time") from None
    message = pb.SubscribeRequest() if data is EOF else parsed(pb.SubscribeRequest, data)
    if message.WhichOneof("message") != "start":
        raise problem("invalid_request", "the first message of the stream is start, which names the group")
    calls.taken(context, len(data))
    return message.start


def _opening(start: pb.SubscribeRequest.Start, channel: GrpcChannel) -> Asked:
    settings = member_settings(start.settings)
    if "topic_pattern" in settings:
        raise problem("invalid_request", "a stream names the topics that it reads; Join takes a topic_pattern")
    topics: list[str] = settings.pop("topics", [])
    query: dict[str, Any] = {"topics": ",".join(topics), **settings} if topics else settings
    if start.HasField("member_id"):
        query["member"] = start.member_id
    if start.HasField("max_attempts"):
        query["max_attempts"] = start.max_attempts
    return Asked(
        method="GET",
        path=f"/v1/groups/{segment('group', start.group)}/ws",
        query=query,
        extensions={UPGRADE: {"socket": channel, WORDING: ProtoWording()}},
    )
