"""`/ui/` and the files below it."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.operations import ANYBODY, TEXT, Content, Reply, in_path, operation
from siltlog.infra.http.query import Query
from siltlog.ui.files import PageFiles, Shown, read_files

PAGE_PATH = "ui/"
"""Relative to the root of the API, as a proxy may put a path before it."""
_FILE_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}
_DAY_SECONDS = 86_400
_FOR_EVER = f"public, max-age={365 * _DAY_SECONDS}, immutable"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_FILE = Reply(
    "The file.", {"text/javascript": Content(TEXT), "text/css": Content(TEXT), "image/svg+xml": Content(TEXT)}
)


class PageHttp:
    """Where it is not `shown` each path is answered as one that is not there."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._read: asyncio.Task[PageFiles] | None = None

    @operation(
        "GET",
        "/ui/",
        "page",
        "Node",
        "The page to look through",
        "One document, which asks the API for all that it shows. It needs no network but this server.",
        access=ANYBODY,
        replies={200: Reply("The document.", {"text/html": Content(TEXT)})},
        errors=("not_found",),
    )
    async def document(self, request: Request) -> Response:
        Query(request, ())
        return _answer(request, (await self._there()).document, "no-cache")

    @operation(
        "GET",
        "/ui/{version}/{folder}/{file}",
        "pageFile",
        "Node",
        "A file of the page",
        "The document names them. Each version of them has a path of its own, so that a browser never asks twice.",
        access=ANYBODY,
        replies={200: _FILE},
        parameters=(
            in_path("version", "Which version of the page.", _FILE_NAME),
            in_path("folder", "Which folder.", _FILE_NAME),
            in_path("file", "Which file.", _FILE_NAME),
        ),
        errors=("not_found",),
    )
    async def file(self, request: Request) -> Response:
        Query(request, ())
        page, path = await self._there(), request.path_params
        found = page.files.get((path["folder"], path["file"]))
        if found is None or path["version"] != page.version:
            raise problem("not_found", "the page has no such file; where the server was upgraded, load the page again")
        return _answer(request, found, _FOR_EVER)

    async def _there(self) -> PageFiles:
        """Gives the files, which are read and encoded once somebody asks: a start does not wait for that."""
        if not self._shown:
            raise problem("not_found", "this server shows no page: SILT_UI=off")
        if self._read is None:
            self._read = asyncio.create_task(asyncio.to_thread(read_files))
        return await asyncio.shield(self._read)


def _answer(request: Request, shown: Shown, caching: str) -> Response:
    coding, body = shown.chosen(request.headers.get("accept-encoding", ""))
    headers = {**_HEADERS, "Cache-Control": caching}
    if coding:
        headers["Content-Encoding"] = coding
    return Response(body, headers=headers, media_type=shown.media_type)
