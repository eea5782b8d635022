"""`POST /v1/files`: where in a table's files the records of partitions are."""

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.consumers.reading.fetch import FetchPosition
from siltlog.consumers.reading.files import FileLister
from siltlog.consumers.reading.http import FETCH_PARTITIONS_MAX, PARTITION_MAX, ReadLimits, check_once
from siltlog.infra import names
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import INTEGER_MAX, Query, body_of, decode

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

    def routes(self) -> list[Route]:
        return [Route("/v1/files", self.files, methods=["POST"])]

    async def files(self, request: Request) -> Response:
        Query(request, ())
        chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
        body = decode(await body_of(request, self._limits.request_bytes), _decoder)
        check_once(body.partitions)
        lists = await self._lister.list(
            [FetchPosition(at.topic, at.partition, at.offset, topic_id=at.topic_id) for at in body.partitions],
            max_files=min(body.max_files, FILES_MAX),
            wait_ms=min(body.wait_ms, self._limits.wait_ms),
        )
        return await read_reply(request, [_JSON.encode(lists)], names.MEDIA_JSON, {})
