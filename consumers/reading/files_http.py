"""`POST /v1/files`: where in a table's files the records of partitions are."""

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.http import EACH_READ, ReadLimits
from siltlog.consumers.reading.requests import FETCH_PARTITIONS_MAX, check_once
from siltlog.infra import names
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.operations import IN_BODY, json_answer, json_body, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import body_of, decode, waits_for
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX
from siltlog.infra.listing.file_list import FileLists
from siltlog.infra.security.grant import grant_of

FILES_DEFAULT = 100
FILES_MAX = 1_000

_Whole = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_JSON = msgspec.json.Encoder()


class FilesPartition(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=PARTITION_MAX)]
    offset: _Whole
    topic_id: str | None = None


class FilesRequest(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[FilesPartition], msgspec.Meta(min_length=1, max_length=FETCH_PARTITIONS_MAX)]
    max_files: Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)] = FILES_DEFAULT
    wait_ms: _Whole = 0


_decoder = msgspec.json.Decoder(FilesRequest)


class FilesHttp:
    def __init__(self, lister: FileLister, limits: ReadLimits) -> None:
        self._lister = lister
        self._limits = limits

    def reconfigure(self, limits: ReadLimits) -> None:
        """The next read may ask for so much."""
        self._limits = limits

    @operation(
        "POST",
        "/v1/files",
        "listFiles",
        "Read",
        "Where in the table's files records are",
        "For readers far behind that read the Delta table's Parquet files by themselves: the files, of one version of "
        "the table, that hold every record in [`offset`, `next_offset`). A file that is gone was replaced: ask again "
        "from where you are, also every few seconds. With `wait_ms` it waits until the table holds something at or "
        f"above one of the offsets. `max_files` is for all partitions together; more than {FILES_MAX:,} is cut.",
        access=IN_BODY,
        needs=EACH_READ,
        replies={200: json_answer("The files.", FileLists)},
        body=json_body(FilesRequest, {"partitions": [{"topic": "flights", "partition": 0, "offset": 0}]}),
        errors=("malformed_body", "request_timeout", "not_acceptable", "request_too_large", "invalid_request"),
    )
    async def files(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        body = decode(await body_of(request, self._limits.request_bytes), _decoder)
        check_once(body.partitions)
        wait_ms = waits_for(request, min(body.wait_ms, self._limits.wait_ms))
        lists = await self._lister.list(
            [FetchPosition(at.topic, at.partition, at.offset, topic_id=at.topic_id) for at in body.partitions],
            max_files=min(body.max_files, FILES_MAX),
            wait_ms=wait_ms,
            grant=grant_of(request),
        )
        return await read_reply(request, [_JSON.encode(lists)], names.MEDIA_JSON, {})
