"""`/v1/debug/profile`: what a server is at, asked of it while it runs."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.operations import ANYTHING, begin_change, json_answer, json_body, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import WAIT_MS, body_of, decode, json_reply
from siltlog.infra.node import Node
from siltlog.infra.security.access import CLUSTER
from siltlog.server.control.profiles import Kind, grown, sampled, waiting

BODY_BYTES_MAX = 4 * 1024
SECONDS_MAX = 60.0
LOOK_SECONDS = 0.1
"""How soon it ends once the server stops."""


class ProfileRequest(msgspec.Struct, forbid_unknown_fields=True):
    kind: Kind
    seconds: Annotated[float, Meta(gt=0, le=SECONDS_MAX, description="How long; `tasks` looks once")] = 10.0


_decoder = msgspec.json.Decoder(ProfileRequest)


class ProfileHttp:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._running = False

    @operation(
        "POST",
        "/v1/debug/profile",
        "profile",
        "Node",
        "What the server is at",
        "`cpu` tells where its threads are, a hundred times a second, in [speedscope's format](https://github.com/"
        "jlfwong/speedscope/wiki/Importing-from-custom-sources); `memory` the places of Python that took the most "
        "meanwhile, which slows the server while it lasts; `tasks` where its tasks wait. One at a time, of a server "
        "with `SILT_DEBUG=on`. It tells names of files and functions, and no value of any variable.",
        access=on_cluster("admin"),
        replies={200: json_answer("The profile.", ANYTHING)},
        body=json_body(ProfileRequest, {"kind": "cpu", "seconds": 5}),
        errors=("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_found", "overloaded"),
        changes="in_body",
    )
    async def profile(self, request: Request) -> Response:
        Query(request, ())
        asked = decode(await body_of(request, BODY_BYTES_MAX), _decoder)
        if self._node.settings.debug != "on":
            raise problem("not_found", "this server is not to be profiled; start it with SILT_DEBUG=on")
        if self._running:
            raise problem("overloaded", "another profile is being made, and one at a time may be", retry_after_ms=1_000)
        self._running = True
        try:
            await begin_change(request, "cluster", CLUSTER, f"profile {asked.kind} {asked.seconds:g} s")
            request.scope["state"][WAIT_MS] = int(asked.seconds * 1000)
            self._node.logger.warning("the server is profiled", kind=asked.kind, seconds=asked.seconds)
            if asked.kind == "tasks":
                return json_reply(waiting(asyncio.all_tasks()))
            if asked.kind == "memory":
                return json_reply(await grown(lambda: self._rest(asked.seconds)))
            name = f"siltlog {self._node.settings.node_id}"
            found = await sampled(name, self._node.clock.monotonic, lambda: self._rest(asked.seconds))
            return json_reply(found)
        finally:
            self._running = False

    async def _rest(self, seconds: float) -> None:
        """Waits, or until the server stops."""
        end = self._node.clock.monotonic() + seconds
        # A stop begins once in the life of a server: an event for it would cost more than these looks.
        while not self._node.draining.begun and (left := end - self._node.clock.monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, LOOK_SECONDS))
