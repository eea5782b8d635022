"""The Arrow stream that a publish carries, taken out of the encoded message before protobuf reads the rest of it.

Protobuf would copy the stream into the message, and once more out of it, while nobody else runs. Encodings are those of
"Protocol Buffers: Encoding". Pure.
"""

from typing import NamedTuple

from siltlog.infra.grpc.made.silt_pb2 import PublishRequest

FIELDS_MAX = 16
"""A message of more fields has records, or is odd."""
_VARINT, _LENGTH = 0, 2
_NUMBER_BITS, _VARINT_MORE = 3, 0x80
_BYTES_MAX = {_VARINT: 10, _LENGTH: 5}
"""The most that a number takes: one below 0 is written as if it had 64 bits."""
_STREAM = PublishRequest.DESCRIPTOR.fields_by_name["arrow_stream"].number << _NUMBER_BITS | _LENGTH


class Carried(NamedTuple):
    rest: bytes
    """The message without its stream."""
    stream: bytes


def carried(data: bytes) -> Carried | None:
    """Splits an encoded PublishRequest; None where protobuf has to say what it is, or it carries no stream."""
    at, found = 0, None
    try:
        for _ in range(FIELDS_MAX):
            begin, tag = at, data[at]
            if tag & _VARINT_MORE or tag & 0b111 not in (_VARINT, _LENGTH):
                return None
            number, at = _varint(data, at + 1, _BYTES_MAX[tag & 0b111])
            if tag == _STREAM:
                if found is not None:
                    return None
                found = begin, at, at + number
            if tag & 0b111 == _LENGTH:
                at += number
            if at >= len(data):
                break
    except (IndexError, ValueError):
        return None
    if found is None or at != len(data):
        return None
    begin, first, end = found
    return Carried(data[:begin] + data[end:], data[first:end])


def _varint(data: bytes, at: int, bytes_max: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends. Raises IndexError where it does not, ValueError where it takes
    more than `bytes_max`."""
    number = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _VARINT_MORE:
            return number, at
    raise ValueError
