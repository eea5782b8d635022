"""`/openapi.json` and `/docs`: made once, when the server starts."""

from collections.abc import Iterable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.infra import names
from siltlog.infra.http.requests import Query
from siltlog.openapi.document import document
from siltlog.openapi.page import page

OPENAPI_PATH = "/openapi.json"
DOCS_PATH = "/docs"
PUBLISH_ROUTE = ("POST", "/v1/topics/{topic}/records")
"""It is served past the router."""
_HEADERS = {"Cache-Control": "no-cache"}
_PAGE_HEADERS = {**_HEADERS, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def routes(others: Sequence[Route]) -> list[Route]:
    """The two routes, which describe `others`, publishing and themselves."""
    described = [*_pairs(others), PUBLISH_ROUTE, ("GET", OPENAPI_PATH), ("GET", DOCS_PATH)]
    whole = document(described)
    as_json, as_page = encoded(described), page(whole).encode()

    async def openapi(request: Request) -> Response:
        Query(request, ())
        return Response(as_json, headers=_HEADERS, media_type=names.MEDIA_JSON)

    async def docs(request: Request) -> Response:
        Query(request, ())
        return Response(as_page, headers=_PAGE_HEADERS, media_type="text/html")

    return [Route(OPENAPI_PATH, openapi, methods=["GET"]), Route(DOCS_PATH, docs, methods=["GET"])]


def encoded(described: Iterable[tuple[str, str]] | None = None) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document(described)), indent=1)


def _pairs(served: Sequence[Route]) -> list[tuple[str, str]]:
    return [(method, route.path) for route in served for method in sorted(route.methods or ()) if method != "HEAD"]
