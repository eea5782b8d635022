"""Requests and responses as frames, without the four bytes of length before them."""

import struct
from collections.abc import Mapping
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.kafka.messages import (
    acls,
    broker,
    configs,
    consumer_groups,
    fetching,
    groups,
    leading,
    producing,
    topics,
)
from siltlog.infra.kafka.messages.codec import MessageCodec
from siltlog.infra.kafka.messages.compiling import struct_reader
from siltlog.infra.kafka.messages.schema import Message
from siltlog.infra.kafka.wire import (
    ELEMENTS_MAX,
    Budget,
    Buffer,
    Frame,
    Malformed,
    bytes_reader,
    read_length16,
    text_of,
    text_writer,
    write_length16,
)

API_VERSIONS = 18
PRODUCE = 0
Body = dict[str, Any]
"""Fields by the names of Kafka's schemas (`topic_data`, `timeout_ms`): structs are dicts, arrays lists, text `str`,
UUIDs and bytes `bytes`, records a `memoryview`, nulls None. Decoding gives every field that any version here has; one
that the frame lacks has its default. Encoding takes any of them, and writes the default of what is not given."""

_MESSAGES: dict[int, Message] = {
    message.key: message
    for module in (broker, producing, fetching, topics, leading, configs, acls, groups, consumer_groups)
    for message in module.MESSAGES
}


class Api(NamedTuple):
    """`min_version` to `max_version` are what a server announces; below `decoded_from` nothing is decoded."""

    name: str
    key: int
    min_version: int
    max_version: int
    decoded_from: int


APIS: dict[int, Api] = {
    message.key: Api(
        message.name,
        message.key,
        # librdkafka compresses only for servers that announce Produce from version 0.
        0 if message.key == PRODUCE else message.min_version,
        message.max_version,
        message.min_version,
    )
    for message in sorted(_MESSAGES.values(), key=lambda message: message.key)
}


class Request(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Body


class Response(NamedTuple):
    correlation_id: int
    body: Body


class UnsupportedVersion(Exception):
    """A message of an API or of a version that is not in the tables; of a request's header this much was read."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} has no version {api_version} here")
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


_REQUEST_HEAD = Struct(">hhi")
_CORRELATION = Struct(">i")
_read_client_id = bytes_reader(read_length16, True, text_of)
_write_client_id = text_writer(write_length16, True)
_read_no_fields = struct_reader((), 0, True)


class _Codec(NamedTuple):
    """What reads and writes the request and the response of an API in one version."""

    flexible: bool
    flexible_response_header: bool
    request: MessageCodec
    response: MessageCodec


def decode_request(frame: Buffer, elements_max: int = ELEMENTS_MAX) -> Request:
    """Raises Malformed, TooMany among it, and UnsupportedVersion. `records` are views of `frame`, which they keep
    alive."""
    view = memoryview(frame).cast("B")
    try:
        key, version, correlation_id = _REQUEST_HEAD.unpack_from(view)
    except struct.error:
        raise Malformed(f"a frame of {len(view)} bytes has no header") from None
    codec = _codec(key, version, correlation_id)
    client_id, at = _header(codec.flexible, view)
    # Kafka passes over what follows the body, so some client may send it.
    body, _ = codec.request.read(view, at, elements_max)
    return Request(key, version, correlation_id, client_id, body)


def encode_response(api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """Raises UnsupportedVersion, and ValueError where `body` does not fit its schema, with the path of the field."""
    return b"".join(response_pieces(api_key, api_version, correlation_id, body))


def response_pieces(api_key: int, api_version: int, correlation_id: int, body: Mapping[str, Any]) -> list[Buffer]:
    """The frame of `encode_response` in pieces: records of PIECE_BYTES_MIN and more are not copied."""
    codec = _codec(api_key, api_version, correlation_id)
    head = _CORRELATION.pack(correlation_id)
    return codec.response.pieces(head + b"\0" if codec.flexible_response_header else head, body)


def encode_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any]
) -> bytes:
    """The client's side of `decode_request`; raises what `encode_response` does."""
    codec = _codec(api_key, api_version, correlation_id)
    head = [_REQUEST_HEAD.pack(api_key, api_version, correlation_id)]
    _write_client_id(client_id, head.append)
    if codec.flexible:
        head.append(b"\0")
    return b"".join(codec.request.pieces(b"".join(head), body))


def decode_response(api_key: int, api_version: int, frame: Buffer) -> Response:
    """The client's side of `encode_response`. Raises Malformed and UnsupportedVersion."""
    view = memoryview(frame).cast("B")
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view)
    except struct.error:
        raise Malformed(f"a frame of {len(view)} bytes has no header") from None
    codec = _codec(api_key, api_version, correlation_id)
    at = _CORRELATION.size
    if api_key == API_VERSIONS and view[at : at + 2] == KafkaError.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        # Whoever asked for too new a version gets the first one's answer, which every client can read.
        codec = _codec(api_key, 0, correlation_id)
    if codec.flexible_response_header:
        at = _tagged_fields(view, at)
    body, at = codec.response.read(view, at, ELEMENTS_MAX)
    if at != len(view):
        raise Malformed(f"{len(view) - at} bytes follow the message")
    return Response(correlation_id, body)


def _codec(key: int, version: int, correlation_id: int) -> _Codec:
    message = _MESSAGES.get(key)
    if message is None or not message.min_version <= version <= message.max_version:
        raise UnsupportedVersion(key, version, correlation_id)
    return _compiled(key, version)


@cache  # as many as there are versions in the tables
def _compiled(key: int, version: int) -> _Codec:
    message = _MESSAGES[key]
    flexible = version >= message.flexible_since
    return _Codec(
        flexible,
        # A client cannot know how to read the header of what tells it the versions.
        flexible and key != API_VERSIONS,
        MessageCodec(message.request, version, flexible),
        MessageCodec(message.response, version, flexible),
    )


def _header(flexible: bool, view: Frame) -> tuple[str | None, int]:
    """The client's id, and where the body begins. The id's length is never compact."""
    try:
        client_id, at = _read_client_id(view, _REQUEST_HEAD.size, Budget())
    except Malformed as error:
        raise error.within("client_id") from None
    except struct.error:
        raise Malformed("the bytes end within it", "client_id") from None
    return client_id, _tagged_fields(view, at) if flexible else at


def _tagged_fields(view: Frame, at: int) -> int:
    """Where the header ends; it has no tagged field that is known here."""
    try:
        if view[at] == 0:
            return at + 1
    except IndexError:
        raise Malformed("the bytes end within them", "tagged fields") from None
    return _read_no_fields(view, at, Budget())[1]
