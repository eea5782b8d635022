"""Asks the other nodes of a cluster for their parts of a snapshot, and is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.router import Member
from siltlog.infra.http.requests import EVENTS_HEADERS, body_of
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.server.live.answers import NodeState
from siltlog.server.live.part import NodePart, TopicPart

PATH = "/peers/live"
GATHER_SECONDS = 0.9
"""How long all nodes together are waited for: a snapshot is to be there within a second."""
TOPICS_OF_NODE = 2_000
"""A node tells another of so many topics, those that are busiest."""
WHOLE = b"whole"
"""What a node sends that wants to be told of all topics."""
BODY_BYTES_MAX = 1_024
MEDIA = "application/msgpack"
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(NodePart)


class OtherParts:
    """Used on one event loop."""

    def __init__(self, peers: Peers, member: Callable[[str], Member | None], membership: Membership) -> None:
        self._peers = peers
        self._member = member
        self._membership = membership

    async def parts(self, *, whole: bool = False) -> list[NodePart]:
        """Gives those of the nodes that answer in time, with the busiest of their topics or the `whole`."""
        others = [name for name in self._membership.view.nodes if name != self._membership.node]
        members = [member for name in others if (member := self._member(name)) is not None]
        found = await asyncio.gather(*(self._ask(member, whole) for member in members))
        return [part for part in found if part is not None]

    async def _ask(self, member: Member, whole: bool) -> NodePart | None:
        with suppress(ConnectionFailed, PeerRefused, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(GATHER_SECONDS):
                reply = await self._peers.ask(
                    member, "POST", PATH.encode(), (), WHOLE if whole else b"", identity=NODE, seconds=GATHER_SECONDS
                )
                if reply.status == 200:
                    return await asyncio.to_thread(_decoder.decode, reply.body)
        return None

    def states(self, parts: Sequence[NodePart]) -> list[NodeState]:
        """Lists the nodes as the newest view has them, with what those say that answered."""
        known = {part.node: part for part in parts}
        return [
            _state(name, entry.state, known.get(name), here=name == self._membership.node)
            for name, entry in sorted(self._membership.view.nodes.items())
        ]


def _state(name: str, state: str, part: NodePart | None, *, here: bool) -> NodeState:
    if part is None:
        return NodeState(name, state, here)
    return NodeState(name, state, here, not part.reasons, part.version, part.wal, part.disk)


def alone(part: NodePart) -> list[NodeState]:
    """Lists the one node that there is without a cluster."""
    return [_state(part.node, "up", part, here=True)]


def live_calls(part: Callable[[], Awaitable[NodePart]]) -> Mapping[str, PeerCall]:
    """Gives what answers other nodes."""

    async def told(request: Request) -> Response:
        whole = await body_of(request, BODY_BYTES_MAX) == WHOLE
        measured = await part()
        return Response(await asyncio.to_thread(_encode if whole else _encoded, measured), 200, EVENTS_HEADERS, MEDIA)

    return {PATH: told}


def _encoded(part: NodePart) -> bytes:
    def busy(topic: TopicPart) -> tuple[float, float, int]:
        return topic.busy

    return _encode(msgspec.structs.replace(part, topics=nlargest(TOPICS_OF_NODE, part.topics, key=busy)))
