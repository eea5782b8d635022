"""DeleteRecords: the log start of partitions moves up."""

from collections.abc import Callable, Mapping
from typing import Any

from siltlog.infra.errors import SiltlogError
from siltlog.infra.kafka.errors import KafkaError, kafka_error
from siltlog.ingest.log.log import Log
from siltlog.ingest.topics.deletion import LogStarts
from siltlog.server.kafka.at_owner import AtOwner, Change
from siltlog.server.kafka.call import Answer, Call
from siltlog.server.kafka.turns import CHANGES_A_TURN, Turns

ALL = -1
"""In place of an offset: all that there is now."""
_LATEST = "latest"
"""The same by HTTP."""
NOTHING = -1
_DELETED = 200
"""The status by which HTTP answers it."""


class Deletions:
    """Used on one event loop."""

    def __init__(self, log: Log, log_starts: LogStarts, at_owner: AtOwner, now: Callable[[], float]) -> None:
        """`now` gives the seconds of a clock that never goes back."""
        self._log = log
        self._log_starts = log_starts
        self._at_owner = at_owner
        self._now = now

    async def delete(self, call: Call) -> Answer:
        """Goes through partitions one by one, and begins none any more once its client waits no longer."""
        until = self._now() + call.body["timeout_ms"] / 1000
        topics, turns = [], Turns(CHANGES_A_TURN)
        async for topic in turns.over(call.body["topics"]):
            name = topic["name"]
            refusal = call.session.refusal("deleteRecords", "delete", name)
            parts: list[dict[str, Any]] = []
            async for part in turns.over(topic["partitions"]):
                if refusal is not None:
                    found = {"low_watermark": NOTHING, "error_code": kafka_error(refusal)}
                elif parts and self._now() >= until:
                    found = {"low_watermark": NOTHING, "error_code": KafkaError.REQUEST_TIMED_OUT}
                else:
                    found = await self._deleted(call, name, part)
                parts.append({"partition_index": part["partition_index"], **found})
            topics.append({"name": name, "partitions": parts})
        return {"topics": topics}

    async def _deleted(self, call: Call, name: str, part: Mapping[str, Any]) -> dict[str, Any]:
        partition, offset = part["partition_index"], part["offset"]
        if offset < ALL:
            return {"low_watermark": NOTHING, "error_code": KafkaError.OFFSET_OUT_OF_RANGE}
        try:
            query = f"before_offset={_LATEST if offset == ALL else offset}"
            change = Change(name, "deleteRecords", "DELETE", _DELETED, partition, query)
            bounds = await self._at_owner.make(
                call.session, change, lambda: self._deleted_here(name, partition, offset)
            )
        except SiltlogError as error:
            return {"low_watermark": NOTHING, "error_code": kafka_error(error)}
        return {"low_watermark": bounds["log_start_offset"], "error_code": KafkaError.NONE}

    async def _deleted_here(self, name: str, partition: int, offset: int) -> Mapping[str, Any]:
        topic = self._log.topic(name)
        bounds = await self._log_starts.delete_records(topic, partition, None if offset == ALL else offset)
        return bounds._asdict()
