"""`/v1/drain`: has the node that is asked take no publishes, before it is upgraded or its machine goes."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.groups.groups import Groups
from siltlog.infra import names
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.http.answers import Whole
from siltlog.infra.http.operations import begin_change, json_answer, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.http.streams import Streams
from siltlog.infra.node import Node
from siltlog.infra.security.access import CLUSTER
from siltlog.ingest.log.log import Log

FLUSH_SECONDS_MAX = 600.0
"""How long what is left is asked to be flushed at once; after that it is flushed as it always is."""
GROUPS_MAX = 1_000
_AWAY = ("ack_timeout", "invalid_request")
"""Errors of what is asked of the controller."""


class DrainState(msgspec.Struct):
    draining: Annotated[
        bool, Meta(description="Whether the node takes no publishes, or hands over its topics to other nodes")
    ]
    in_flight: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests that are under way, beside this one; without streams and WebSockets, which go on "
            "until the server stops",
        ),
    ]
    unflushed_bytes: Annotated[
        int, Meta(ge=0, description="Acknowledged here and in no table; without what the server itself writes")
    ]
    topics_to_move: Annotated[int, Meta(ge=0, description="Topics that are still to go to other nodes of a cluster")]
    groups: Annotated[
        Whole | None, Meta(description="Groups with members, up to 1,000; null where they cannot be told now")
    ]


class DrainHttp:
    def __init__(self, node: Node, log: Log, groups: Groups, streams: Streams, membership: Membership | None) -> None:
        self._node = node
        self._log = log
        self._groups = groups
        self._streams = streams
        self._membership = membership
        self._flushing: set[asyncio.Task[None]] = set()

    @property
    def draining(self) -> bool:
        """Also while the server stops."""
        if self._node.draining.stops:
            return True
        if self._membership is None:
            return False
        own = self._membership.view.nodes.get(self._membership.node)
        return own is not None and own.state == "draining"

    @operation(
        "GET",
        "/v1/drain",
        "describeDrain",
        "Node",
        "How far a drain is",
        "Once all but `groups` are 0 nothing is lost, and nobody waits, when the node stops.",
        access=on_cluster("describe"),
        replies={200: json_answer("How it is.", DrainState)},
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        return json_reply(await self._state())

    @operation(
        "POST",
        "/v1/drain",
        "beginDrain",
        "Node",
        "Have this node take no publishes",
        "It flushes what it has. Publishes are refused with 503 `shutting_down`, and `/readyz` says `draining`, until "
        "`DELETE /v1/drain` or the next start; who reads, groups and what the server itself writes go on. In a cluster "
        "it is `POST /v1/nodes/{id}/drain` of the node that is asked: its topics go to others, and it goes on taking "
        "publishes for them. Again it changes nothing.",
        access=on_cluster("alter"),
        replies={200: json_answer("It drains.", DrainState)},
        errors=_AWAY,
        changes="in_body",
    )
    async def drain(self, request: Request) -> Response:
        Query(request, ())
        await begin_change(request, "cluster", CLUSTER, "drain")
        if self._membership is not None:
            await self._membership.ask("drain", node=self._membership.node)
        elif not self._node.draining.paused:
            self._node.draining.pause()
            self._node.logger.warning("publishes are refused: an operator drains the server")
            self._flush()
        return json_reply(await self._state())

    @operation(
        "DELETE",
        "/v1/drain",
        "endDrain",
        "Node",
        "Have this node take publishes again",
        "Refused in a cluster: there a node gets topics again by its next start.",
        access=on_cluster("alter"),
        replies={200: json_answer("It takes them.", DrainState)},
        errors=("invalid_request",),
        changes="in_body",
    )
    async def end(self, request: Request) -> Response:
        Query(request, ())
        await begin_change(request, "cluster", CLUSTER, "end of drain")
        if self._membership is not None:
            raise problem(
                "invalid_request",
                "a node of a cluster that was drained gets topics again by its next start: start it again, then "
                "`silt cluster balance`",
            )
        if self._node.draining.paused:
            self._node.draining.resume()
            self._node.logger.info("publishes are taken again")
        return json_reply(await self._state())

    async def _state(self) -> DrainState:
        return DrainState(
            draining=self.draining,
            in_flight=max(self._node.draining.requests() - 1 - self._streams.lasting(), 0),
            unflushed_bytes=sum(
                partition.head.unflushed_bytes
                for topic in self._log.topics()
                if not names.is_system_topic(topic.name)
                for partition in topic.partitions
            ),
            topics_to_move=self._to_move(),
            groups=await self._members(),
        )

    def _to_move(self) -> int:
        if self._membership is None or not self.draining:
            return 0
        owners = (topic.owner for topic in self._membership.view.topics.values())
        return sum(1 for owner in owners if owner is not None and owner.journal == self._membership.journal)

    async def _members(self) -> int | None:
        try:
            groups, _ = await self._groups.list_groups("", "", GROUPS_MAX)
        except SiltlogError:
            return None
        return sum(1 for row in groups if row.members)

    def _flush(self) -> None:
        for topic in self._log.topics():
            if not names.is_system_topic(topic.name):
                task = asyncio.create_task(self._log.in_table(topic, FLUSH_SECONDS_MAX))
                self._flushing.add(task)
                task.add_done_callback(self._flushed)

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        self._flushing.discard(task)
        if not task.cancelled():
            # What a table does not take is told by the flush, and tried again by it.
            task.exception()
