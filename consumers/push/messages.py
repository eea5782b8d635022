"""The messages of a WebSocket: JSON texts, each with a `type` (subprotocol `silt.v1`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import msgspec

from siltlog.consumers.groups.messages import CommittedOffset, PartitionName, PolledOffset, Whole
from siltlog.consumers.push.feed import Found
from siltlog.consumers.reading.render import Record, Values, records
from siltlog.consumers.reading.view import Key
from siltlog.infra.errors import Refused, SiltlogError, problem
from siltlog.infra.http.connection.web_socket import problem_message
from siltlog.infra.http.requests import decode
from siltlog.infra.limits import INTEGER_MAX

OFFSETS_MAX = 10_000
ERROR_CHARS_MAX = 10_000


class Credit(msgspec.Struct, tag="credit", forbid_unknown_fields=True):
    """Says how many records more may be sent."""

    records: Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]


class SaidOffset(CommittedOffset):
    generation: Whole | None = None
    """The generation that `assigned` gave; a message about an earlier assignment of the partition is refused."""


class SaidRecord(PolledOffset):
    generation: Whole | None = None


class Commit(msgspec.Struct, tag="commit", forbid_unknown_fields=True):
    offsets: Annotated[list[SaidOffset], msgspec.Meta(min_length=1, max_length=OFFSETS_MAX)]


class Nack(msgspec.Struct, tag="nack", forbid_unknown_fields=True):
    """These records could not be handled: each counts an attempt and comes again, or is dead-lettered."""

    offsets: Annotated[list[SaidRecord], msgspec.Meta(min_length=1, max_length=OFFSETS_MAX)]
    error: Annotated[str, msgspec.Meta(max_length=ERROR_CHARS_MAX)] = ""


class Release(msgspec.Struct, tag="release", forbid_unknown_fields=True):
    """These partitions are let go of."""

    partitions: Annotated[list[PartitionName], msgspec.Meta(min_length=1, max_length=OFFSETS_MAX)]


Said = Credit | Commit | Nack | Release
Kind = Literal["assigned", "revoked", "lost"]
_decoder: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_credit_decoder: msgspec.json.Decoder[Credit] = msgspec.json.Decoder(Credit)
_JSON = msgspec.json.Encoder()


class Records(msgspec.Struct, tag="records", omit_defaults=True):
    """`cursor`: where to come back to; a group has its committed offsets for that."""

    records: list[Record]
    cursor: str | msgspec.UnsetType = msgspec.UNSET


class Wording(Protocol):
    """How the messages of one connection are written and read."""

    def said(self, message: bytes, *, in_group: bool) -> Said:
        """Decodes a message of the client; without a group it has only credit to give.

        Raises Refused `malformed_body` or `invalid_request`.
        """

    def records(self, found: Sequence[Found], *, cursor: str | None = None) -> bytes:
        """`records`; with their topic where there is no cursor, which is of one."""

    def partitions(self, kind: Kind, member: str, generation: int, offsets: Sequence[tuple[Key, int]]) -> bytes:
        """`assigned`, `revoked` or `lost`."""

    def committed(self, offsets: Sequence[tuple[str, int, int]], *, dead_lettered: bool = False) -> bytes:
        """`committed`: the next offset to read of each (topic, partition)."""

    def problem(self, error: SiltlogError, request_id: str) -> bytes:
        """`problem`: what was said is not taken."""


@dataclass(frozen=True, slots=True)
class JsonWording:
    """JSON texts, with values as the client wants them."""

    values: Values

    def said(self, message: bytes, *, in_group: bool) -> Said:
        try:
            return decode(message, _decoder) if in_group else decode(message, _credit_decoder)
        except Refused as error:
            raise problem(error.error_code, f"the message is not taken: {error.detail}", **error.members) from None

    def records(self, found: Sequence[Found], *, cursor: str | None = None) -> bytes:
        rows: list[Record] = []
        for part in found:
            rows += records(part.batches, self.values, part.key.topic if cursor is None else msgspec.UNSET)
        return _JSON.encode(Records(rows, msgspec.UNSET if cursor is None else cursor))

    def partitions(self, kind: Kind, member: str, generation: int, offsets: Sequence[tuple[Key, int]]) -> bytes:
        partitions = [
            {"topic": key.topic, "partition": key.partition, "offset": offset, "generation": generation}
            for key, offset in offsets
        ]
        return _JSON.encode({"type": kind, "member_id": member, "generation": generation, "partitions": partitions})

    def committed(self, offsets: Sequence[tuple[str, int, int]], *, dead_lettered: bool = False) -> bytes:
        rows = [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in offsets]
        return _JSON.encode({"type": "committed", "offsets": rows, "dead_lettered": dead_lettered})

    def problem(self, error: SiltlogError, request_id: str) -> bytes:
        return problem_message(error, request_id)
