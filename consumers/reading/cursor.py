"""Cursors: where the reader of a topic is in each partition, as one short text that a client sends back."""

import base64
import binascii
import uuid
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.settings.topic_config import PARTITIONS_MAX as TOPIC_PARTITIONS_MAX

PARTITIONS_MAX = 256
CURSOR_CHARS_MAX = 4096
_VERSION = 1
_ID_BYTES = 16
_CRC_BYTES = 4
_OFFSET_MAX = 2**63 - 1
_OFFSET_BYTES_MAX = 9
_STEP_BYTES_MAX = 2

assert TOPIC_PARTITIONS_MAX <= 1 << 7 * _STEP_BYTES_MAX, "the steps of a cursor are short"
assert (1 + _ID_BYTES + 2 + PARTITIONS_MAX * (_STEP_BYTES_MAX + _OFFSET_BYTES_MAX) + _CRC_BYTES) * 4 / 3 < (
    CURSOR_CHARS_MAX
), "a cursor of the most partitions fits"


class Cursor(NamedTuple):
    """`offsets` has the next offset to read of each partition."""

    topic_id: str
    offsets: Mapping[int, int]

    def text(self) -> str:
        """Encodes the cursor in at most CURSOR_CHARS_MAX of `[A-Za-z0-9_-]`."""
        out = bytearray((_VERSION,))
        out += uuid.UUID(self.topic_id).bytes
        _put(out, len(self.offsets))
        before = 0
        for partition in sorted(self.offsets):
            _put(out, partition - before)
            _put(out, self.offsets[partition])
            before = partition
        out += zlib.crc32(out).to_bytes(_CRC_BYTES, "big")
        return base64.urlsafe_b64encode(out).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Raises Refused `invalid_parameter` for anything that `text()` did not give."""
        if not text or len(text) > CURSOR_CHARS_MAX or not text.isascii():
            raise _damaged()
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _damaged() from None
        body = data[:-_CRC_BYTES]
        if len(body) < 1 + _ID_BYTES or body[0] != _VERSION:
            raise _damaged()
        cursor = cls(str(uuid.UUID(bytes=body[1 : 1 + _ID_BYTES])), _offsets(body, 1 + _ID_BYTES))
        # The checksum among the rest, and only the one spelling of bytes that have several.
        if cursor.text() != text:
            raise _damaged()
        return cursor


def _offsets(body: bytes, at: int) -> dict[int, int]:
    offsets: dict[int, int] = {}
    count, at = _take(body, at)
    partition = 0
    for _ in range(min(count, PARTITIONS_MAX + 1)):
        step, at = _take(body, at)
        partition += step
        offset, at = _take(body, at)
        if partition >= TOPIC_PARTITIONS_MAX or offset > _OFFSET_MAX:
            raise _damaged()
        offsets[partition] = offset
    if not 0 < len(offsets) == count <= PARTITIONS_MAX or at != len(body):
        raise _damaged()
    return offsets


def _put(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _take(body: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_OFFSET_BYTES_MAX):
        if at + place == len(body):
            raise _damaged()
        byte = body[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise _damaged()


def _damaged() -> SiltlogError:
    return problem(
        "invalid_parameter",
        "the cursor is damaged, or none of this server's; use it as it came, or begin with an offset or a timestamp",
        parameter="cursor",
    )
