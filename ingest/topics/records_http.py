"""`DELETE /v1/topics/{topic}/partitions/{p}/records`: the log start moves."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.infra.errors import problem
from siltlog.infra.http.requests import Query, json_reply, whole_number
from siltlog.ingest.log.log import Log
from siltlog.ingest.topics.deletion import LogStarts

ALL = "latest"


class RecordsHttp:
    def __init__(self, log: Log, log_starts: LogStarts) -> None:
        self._log = log
        self._log_starts = log_starts

    def routes(self) -> list[Route]:
        return [Route("/v1/topics/{topic}/partitions/{partition}/records", self.delete, methods=["DELETE"])]

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
