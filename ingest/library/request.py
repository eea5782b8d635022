"""One publish request: the rows it has, where they go and with which sequences, and what its answer must say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self
from uuid import uuid4

import msgspec

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.client.answers import Claimed, Published
from siltlog.infra.client.bodies.arrow_body import Compression, Placement, body_of, placed_headers
from siltlog.infra.client.core import Buffer, Request
from siltlog.infra.client.record import PartitionMetadata
from siltlog.infra.errors import OutcomeUnknown, SiltlogError
from siltlog.ingest.library.batch import Batch, Landed
from siltlog.ingest.library.options import PublishOptions
from siltlog.ingest.library.placer import Placed

GRACE_MS = 5_000
"""How much longer the client waits for a reply than the server was told to take."""
READ_TIMEOUT_MS_MIN = 1_000
OWNER_TIMEOUT_MS = 5_000
"""How long the owner of a topic may say nothing: who was stopped or cut off closes no connection, and another node
knows who has the topic by then. The same records land once, whichever way they come."""
OWNER_TIMEOUT_BYTES_MAX = 1024 * 1024
"""What is larger may be long on its way."""
_PUBLISHED = msgspec.json.Decoder(Published)
Lookup = Literal["topic", "limits", "claim"]


@dataclass(slots=True)
class Identity:
    """The identity that publishes to a topic: a producer id, its epoch, and each partition's next sequence."""

    producer_id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)

    def claim_path(self, topic: str) -> str:
        return f"/v1/topics/{topic}/producers/{self.producer_id}"


@dataclass(slots=True, eq=False)
class PublishRequest:
    """Rows [start, stop) of a batch on their way. A retry is the same body with the same sequences."""

    batch: Batch
    start: int
    stop: int
    placement: Placement
    placed_by: PlacedBy
    """How the rows were placed."""
    identity: Identity
    epoch: int
    sequences: dict[int, int]
    body: list[Buffer]
    under_way: bool = False
    not_before: float = 0.0
    attempts: int = 0
    maybe_landed: bool = False
    refusal: SiltlogError | None = None
    """Why it is not sent again before a claim has told how to go on."""

    @classmethod
    def of(cls, placed: Placed, by: PlacedBy, identity: Identity, compression: Compression) -> Self:
        """The request for rows that are placed."""
        batch, start, stop, placement = placed
        sequences = {number: identity.sequences.get(number, 0) for number in placement.counts}
        body = body_of(batch.slice(start, stop), placement, sequences, compression)
        return cls(batch, start, stop, placement, by, identity, identity.epoch, sequences, body)

    def http(self, options: PublishOptions, remaining_ms: float) -> Request:
        path = f"/v1/topics/{self.batch.topic}/records?timeout_ms={options.request_timeout_ms}"
        if options.acks:
            path += f"&acks={options.acks}"
        headers = {
            "Content-Type": names.MEDIA_ARROW,
            "Accept": names.MEDIA_JSON,
            names.HEADER_PRODUCER_ID: self.identity.producer_id,
            names.HEADER_PRODUCER_EPOCH: str(self.epoch),
            **placed_headers(self.placed_by),
            **self.batch.trace,
        }
        if self.placement.partition is None:
            path += f"&partition={self.placement.single}"
            headers[names.HEADER_SEQUENCE] = str(self.sequences[self.placement.single])
        timeout_ms = int(min(options.request_timeout_ms + GRACE_MS, max(remaining_ms, READ_TIMEOUT_MS_MIN)))
        is_small = sum(memoryview(part).nbytes for part in self.body) <= OWNER_TIMEOUT_BYTES_MAX
        owner_timeout_ms = OWNER_TIMEOUT_MS if is_small else None
        return Request("POST", path, headers, self.body, timeout_ms, True, owner_timeout_ms=owner_timeout_ms)

    def landed(self, reply: bytes | bytearray) -> Landed:
        """Reads a good answer. Raises OutcomeUnknown, or msgspec's errors, where it does not fit the request."""
        parts = _PUBLISHED.decode(reply).partitions
        if {part.partition: part.count for part in parts} != self.placement.counts:
            raise OutcomeUnknown("it counts other records than were sent", error_code="internal")
        return self._landed(
            tuple(
                PartitionMetadata(
                    self.batch.topic, part.partition, part.first_offset, part.last_offset, part.count, part.duplicate
                )
                for part in parts
            )
        )

    def found(self, claimed: Mapping[int, Claimed.Part]) -> Landed | None:
        """Whether it arrived, by where the server says that its producer stopped; None when nothing of it did.

        Raises OutcomeUnknown when some of its partitions have it and others do not.
        """
        parts = []
        for number, count in self.placement.counts.items():
            stopped = claimed.get(number)
            end = self.sequences[number] + count
            if stopped is None or stopped.next_sequence < end:
                continue
            last = stopped.last_offset if stopped.next_sequence == end else None
            first = None if last is None else last - count + 1
            parts.append(PartitionMetadata(self.batch.topic, number, first, last, count, True))
        if not parts:
            return None
        if len(parts) < len(self.placement.counts):
            raise OutcomeUnknown("the server has it in some partitions and not in others", error_code="ack_timeout")
        return self._landed(tuple(parts))

    def _landed(self, parts: tuple[PartitionMetadata, ...]) -> Landed:
        return Landed(self.start, self.stop, parts, self.placement.partition, self.placement.rank)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What to send now: a publish request, or a question."""

    request: Request
    publish: PublishRequest | None = None
    lookup: Lookup | None = None
    identity: Identity | None = None
    """The identity that is claimed."""
