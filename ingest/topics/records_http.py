"""`DELETE /v1/topics/{topic}/partitions/{p}/records`: the log start moves."""

from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.operations import (
    PARTITION,
    TOPIC,
    TOPIC_ID,
    choice,
    in_query,
    json_answer,
    on_topic,
    operation,
    whole,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.limits import whole_number
from siltlog.ingest.log.log import Log
from siltlog.ingest.topics.answers import DeletedRecords
from siltlog.ingest.topics.deletion import LogStarts

ALL = "latest"


_WRITE_ERRORS = ("topic_unavailable", "store_denied", "disk_full", "corrupt_data", "internal")


class RecordsHttp:
    def __init__(self, log: Log, log_starts: LogStarts) -> None:
        self._log = log
        self._log_starts = log_starts

    @operation(
        "DELETE",
        "/v1/topics/{topic}/partitions/{partition}/records",
        "deleteRecords",
        "Read",
        "Delete the records below an offset",
        "Moves the log start, for good. What is below `before_offset` and not in the table yet is flushed first. A log "
        "start that is there already stays, so a repeat changes nothing. Groups below it follow their reset policy.",
        access=on_topic("delete"),
        at_owner="yes",
        changes="in_path",
        replies={200: json_answer("The bounds, as they are now.", DeletedRecords)},
        parameters=(
            TOPIC,
            PARTITION,
            in_query(
                "before_offset",
                "The first offset to keep, at most the high watermark; `latest`: delete all there is.",
                {"anyOf": [whole(), choice("latest")]},
                required=True,
            ),
            TOPIC_ID,
        ),
        errors=("unknown_topic", "unknown_partition", "forbidden", "offset_out_of_range", *_WRITE_ERRORS),
    )
    async def delete(self, request: Request) -> Response:
        query = Query(request, ("before_offset", "topic_id"))
        topic = self._log.topic(request.path_params["topic"])
        if query.text("topic_id", topic.topic_id) != topic.topic_id:
            raise problem(
                "unknown_topic",
                f"the topic {topic.name} was deleted and created again: its id is {topic.topic_id}",
                topic=topic.name,
                topic_id=topic.topic_id,
            )
        partition = whole_number(request.path_params["partition"])
        if partition is None:
            raise problem("unknown_partition", "the path names no number of a partition", topic=topic.name)
        if "before_offset" not in query:
            raise problem(
                "invalid_parameter",
                f"before_offset is missing: the first offset to keep, or {ALL!r} to delete all there is",
                parameter="before_offset",
            )
        before = None if query.text("before_offset") == ALL else query.integer("before_offset", 0)
        bounds = await self._log_starts.delete_records(topic, partition, before)
        return json_reply({"topic": topic.name, "partition": partition, **bounds._asdict()})
