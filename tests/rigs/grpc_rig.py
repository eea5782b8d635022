"""Servers that speak gRPC, and a client as plain as it can be: methods by their names, messages as they are made."""

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RequestInfo, RetryInfo
from google.rpc.status_pb2 import Status
from http_rig import Http
from ports import free_port as free_port

from siltlog.infra.grpc.made import silt_pb2 as pb
from siltlog.testing import running_server

SERVICE = pb.DESCRIPTOR.services_by_name["Silt"]
TIMEOUT_S = 60.0


class Problem(Exception):
    """What a call ended with, as the details of its status say it."""

    def __init__(self, error: grpc.RpcError) -> None:
        super().__init__(error.details())
        self.code: grpc.StatusCode = error.code()
        self.detail: str = error.details()
        self.reason, self.request_id, self.retry_ms = "", "", None
        self.members: dict[str, str] = {}
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-status-details-bin":
                self._read(Status.FromString(value))

    def _read(self, status: Status) -> None:
        assert (status.code, status.message) == (self.code.value[0], self.detail)
        for packed in status.details:
            for kind in (ErrorInfo, RequestInfo, RetryInfo):
                detail: Any = kind()
                if not packed.Unpack(detail):
                    continue
                if kind is ErrorInfo:
                    assert detail.domain == "siltlog"
                    self.reason, self.members = detail.reason, dict(detail.metadata)
                elif kind is RequestInfo:
                    self.request_id = detail.request_id
                else:
                    self.retry_ms = detail.retry_delay.ToMilliseconds()


class Client:
    """Calls by name: `client.Publish(topic=..., records=[...])`. Raises Problem."""

    def __init__(self, channel: grpc.Channel, **metadata: str) -> None:
        self.channel = channel
        self._metadata = [(name.replace("_", "-"), value) for name, value in metadata.items()]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = SERVICE.methods_by_name[name]
        request, answer = (getattr(pb, kind.name) for kind in (method.input_type, method.output_type))
        call = self.channel.unary_unary(f"/{SERVICE.full_name}/{name}", request.SerializeToString, answer.FromString)

        def called(message: Any = None, **fields: Any) -> Any:
            try:
                return call(message or request(**fields), timeout=TIMEOUT_S, metadata=self._metadata)
            except grpc.RpcError as error:
                raise Problem(error) from None

        return called

    def stream(self, name: str, messages: Iterator[Any], timeout: float = TIMEOUT_S) -> Any:
        method = SERVICE.methods_by_name[name]
        request, answer = (getattr(pb, kind.name) for kind in (method.input_type, method.output_type))
        call = self.channel.stream_stream(f"/{SERVICE.full_name}/{name}", request.SerializeToString, answer.FromString)
        return call(messages, timeout=timeout, metadata=self._metadata)


@contextmanager
def client_at(
    port: int, credentials: Any = None, host: str = "localhost", options: Any = (), **metadata: str
) -> Iterator[Client]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0), *options]
    address = f"{host}:{port}"
    if credentials is None:
        channel = grpc.insecure_channel(address, options)
    else:
        channel = grpc.secure_channel(address, credentials, options)
    with channel:
        yield Client(channel, **metadata)


NO_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
"""Options of a client that takes in no more than it reads."""


def port_of(server: Any) -> int:
    return int(server._settings["grpc_listen"].rpartition(":")[2])


@contextmanager
def served(**settings: Any) -> Iterator[tuple[Http, Client, Any]]:
    """A server that speaks both: a client of each, and the server."""
    port = free_port()
    with running_server(grpc_listen=f"127.0.0.1:{port}", **settings) as server, client_at(port) as client:
        yield Http(server.url), client, server


class Said:
    """The messages of a stream, as somebody goes on to say them; None is the last."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def say(self, *messages: Any) -> None:
        for message in messages:
            self._queue.put(message)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._queue.get, None)


class Member:
    """A member of a group over a stream."""

    def __init__(self, client: Client, group: str, *topics: str, credit: int = 0, **start: Any) -> None:
        self.said = Said()
        settings = pb.MemberSettings(topics=topics, **start.pop("settings", {}))
        self.say(start=pb.SubscribeRequest.Start(group=group, settings=settings, **start))
        if credit:
            self.credit(credit)
        self.call = client.stream("Subscribe", iter(self.said), timeout=120)

    def say(self, **message: Any) -> None:
        self.said.say(pb.SubscribeRequest(**message))

    def credit(self, records: int) -> None:
        self.say(credit=pb.SubscribeRequest.Credit(records=records))

    def commit(self, *offsets: Any) -> None:
        self.say(commit=pb.SubscribeRequest.CommitOffsets(offsets=offsets))

    def next(self, kind: str) -> Any:
        """The next message of that kind; others before it are passed over, unless they say that something is wrong."""
        while True:
            message = next(self.call)
            which = message.WhichOneof("message")
            if which == kind:
                return getattr(message, which)
            assert which not in ("problem", "lost"), message

    def records(self, count: int) -> list[pb.Record]:
        found: list[pb.Record] = []
        while len(found) < count:
            found += self.next("records").records
        return found

    def leave(self) -> None:
        """Closes its side, in words, and hears the other's end."""
        self.said.say(None)
        for _ in self.call:
            pass

    def problem(self) -> Problem:
        """What the stream ends with."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return Problem(error)
        raise AssertionError("the stream ended well")
