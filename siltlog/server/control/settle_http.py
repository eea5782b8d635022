"""`/v1/settle`: has the node that is asked keep what it acknowledged in tables alone."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.operations import begin_change, in_query, json_answer, on_cluster, operation, whole
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import WAIT_MS, json_reply
from siltlog.infra.security.access import CLUSTER
from siltlog.ingest.flush.settling import Settling

WAIT_MS_DEFAULT = 60_000
WAIT_MS_MAX = 600_000


class Settled(msgspec.Struct):
    left: Annotated[list[str], Meta(description="What it could not let go of by now, and why; empty once it has")]


class SettleHttp:
    def __init__(self, settling: Settling, see_others: Callable[[], Awaitable[None]] | None) -> None:
        """`see_others()` looks at the tables of topics that other nodes own."""
        self._settling = settling
        self._see_others = see_others

    @operation(
        "POST",
        "/v1/settle",
        "settle",
        "Node",
        "Have this node keep what it acknowledged in tables alone",
        "It flushes what it has by now, begins another segment of its write-ahead log and deletes those before it, "
        "with files of segments that were used before and the objects of its journal; what tables hold leaves its "
        "memory, and it looks what others did to the tables. Publishes and reads go on. So `silt erase` has nothing "
        "of a key left here. Again it does the same for what came since.",
        access=on_cluster("alter"),
        replies={200: json_answer("It is done, but for `left`.", Settled)},
        parameters=(in_query("wait_ms", "How long it may take.", whole(0, WAIT_MS_MAX, default=WAIT_MS_DEFAULT)),),
        errors=("shutting_down",),
        changes="in_body",
    )
    async def settle(self, request: Request) -> Response:
        wait_ms = Query(request, ("wait_ms",)).integer("wait_ms", WAIT_MS_DEFAULT, maximum=WAIT_MS_MAX)
        request.scope["state"][WAIT_MS] = wait_ms
        await begin_change(request, "cluster", CLUSTER, "settle")
        left = await self._settling.settle(wait_ms / 1000)
        if self._see_others is not None:
            try:
                await self._see_others()
            except SiltlogError as error:
                left.append(f"the tables of other nodes' topics cannot be read: {error.detail}")
        return json_reply(Settled(left))
