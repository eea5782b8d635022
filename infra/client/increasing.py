"""A producer whose sequences rise, with gaps (`Silt-Sequence-Mode: increasing`): one request under way at a time.

What it says again is dropped by the server as a duplicate, so who knows from where on it may not have arrived may say
it all again.
"""

import msgspec
import pyarrow as pa

from siltlog.infra import names
from siltlog.infra.arrow.partitioner import PlacedBy
from siltlog.infra.arrow.pieces import Pieces, joined
from siltlog.infra.client.answers import Claimed, Published
from siltlog.infra.client.bodies.arrow_body import PIECE_BYTES_MIN, Compression, placed_headers
from siltlog.infra.client.calls import path_part
from siltlog.infra.client.core import Buffer, Request, json_request
from siltlog.infra.client.transport import Caller

TIMEOUT_MS = 15_000
GRACE_MS = 5_000

_claimed = msgspec.json.Decoder(Claimed)
_published = msgspec.json.Decoder(Published)


class IncreasingProducer:
    def __init__(
        self,
        caller: Caller,
        topic: str,
        producer_id: str,
        *,
        compression: Compression,
        acks: str | None = None,
        stored: bool = False,
    ) -> None:
        """`stored`: its records were stored before, and keep their times however old these are."""
        self._caller = caller
        self._topic = path_part(topic)
        self._producer_id = producer_id
        self._path = f"/v1/topics/{self._topic}/producers/{producer_id}"
        self._compression: Compression = compression
        self._acks = f"&acks={acks}" if acks else ""
        self._stored = {names.HEADER_TIMESTAMPS: names.TIMESTAMPS_STORED} if stored else {}
        self._epoch = 0

    def claim(self) -> dict[int, int]:
        """Fences who published as this producer before; returns the last sequence of each partition that has one."""
        claimed = _claimed.decode(self._caller.call(json_request("POST", self._path, repeatable=True)).body)
        self._epoch = claimed.producer_epoch
        return {part.partition: part.next_sequence - 1 for part in claimed.partitions if part.next_sequence}

    def overtaken(self) -> bool:
        """Whether another has claimed since."""
        return _claimed.decode(self._caller.call(json_request("GET", self._path)).body).producer_epoch > self._epoch

    def send(self, records: pa.Table, placed_by: PlacedBy | None = None) -> list[Published.Part]:
        """One request; the records have a partition and a sequence each. Raises the SiltlogError of the last attempt.

        With `placed_by` it is refused where the topic places keys otherwise by now (`partition_count_changed`).
        """
        headers = {
            "Content-Type": names.MEDIA_ARROW,
            "Accept": names.MEDIA_JSON,
            names.HEADER_PRODUCER_ID: self._producer_id,
            names.HEADER_PRODUCER_EPOCH: str(self._epoch),
            names.HEADER_SEQUENCE_MODE: "increasing",
            **self._stored,
        }
        if placed_by is not None:
            headers |= placed_headers(placed_by)
        path = f"/v1/topics/{self._topic}/records?timeout_ms={TIMEOUT_MS}{self._acks}"
        body = stream_of(records, self._compression)
        reply = self._caller.call(Request("POST", path, headers, body, TIMEOUT_MS + GRACE_MS, repeatable=True))
        return _published.decode(reply.body).partitions


def fitting(records: pa.Table, start: int, *, bytes_max: int, records_max: int) -> int:
    """How many records from `start` on fit in one request; at least one."""
    rows: int = min(records.num_rows - start, records_max)
    while rows > 1 and (size := records.slice(start, rows).nbytes) > bytes_max:
        rows = max(1, min(rows - 1, rows * bytes_max // size))
    return rows


def stream_of(records: pa.Table, compression: Compression) -> list[Buffer]:
    """The records as an Arrow stream, in pieces that refer to their memory."""
    sink = Pieces()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.PythonFile(sink, mode="w") as file, pa.ipc.new_stream(file, records.schema, options=options) as writer:
        writer.write_table(records)
    return joined(sink.pieces, PIECE_BYTES_MIN - 1)
