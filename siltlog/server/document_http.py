"""`/openapi.json` and `/docs`: made when first asked for, as most servers never are and a start would wait for it."""

import asyncio
from collections.abc import Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.http.operations import (
    ANY_CALLER,
    ANYTHING,
    TEXT,
    Content,
    Operation,
    Reply,
    json_answer,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.openapi.document import document, encoded
from siltlog.openapi.page import page

OPENAPI_PATH = "/openapi.json"
DOCS_PATH = "/docs"
_HEADERS = {"Cache-Control": "no-cache"}
_PAGE_HEADERS = {**_HEADERS, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


class DocumentHttp:
    def __init__(self, operations: Sequence[Operation]) -> None:
        """Describes `operations`, its own among them."""
        self._operations = operations

    @cached_property
    def _json(self) -> bytes:
        return encoded(document(self._operations))

    @cached_property
    def _page(self) -> bytes:
        return page(document(self._operations)).encode()

    @operation(
        "GET",
        "/openapi.json",
        "openapi",
        "Node",
        "This document",
        "OpenAPI 3.1.",
        access=ANY_CALLER,
        replies={200: json_answer("The document.", ANYTHING)},
    )
    async def openapi(self, request: Request) -> Response:
        Query(request, ())
        content = await asyncio.to_thread(lambda: self._json)
        return Response(content, headers=_HEADERS, media_type=names.MEDIA_JSON)

    @operation(
        "GET",
        "/docs",
        "docs",
        "Node",
        "This document as a page",
        "It needs no script and no network.",
        access=ANY_CALLER,
        replies={200: Reply("The page.", {"text/html": Content(TEXT)})},
    )
    async def docs(self, request: Request) -> Response:
        Query(request, ())
        content = await asyncio.to_thread(lambda: self._page)
        return Response(content, headers=_PAGE_HEADERS, media_type="text/html")
