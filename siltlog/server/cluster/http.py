"""`/v1/nodes`, and what operators have nodes and topics do: asked of any node, done by the controller."""

from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.clock import format_us
from siltlog.infra.cluster.addresses import Addresses
from siltlog.infra.cluster.beat import Beat
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.cluster.planning.draft import awaited_topics
from siltlog.infra.cluster.planning.placement import balance, unit_of
from siltlog.infra.cluster.view import ClusterView, NodeEntry
from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Time, Whole
from siltlog.infra.http.operations import (
    NO_CONTENT,
    TOPIC,
    begin_change,
    choice,
    in_path,
    in_query,
    json_answer,
    json_body,
    on_cluster,
    on_topic,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.node import Node
from siltlog.infra.security.access import CLUSTER

BODY_BYTES_MAX = 64 * 1024
_NODE = in_path("id", "The node's name.", example="node-1")
_ASKED = ("cluster_off", "invalid_request", "ack_timeout")
"""Errors of what is asked of the controller."""


class NodeDescription(msgspec.Struct):
    id: str
    url: Annotated[str, Meta(description="Empty where nothing proves that it said so itself")]
    zone: str
    state: Annotated[str, Meta(extra_json_schema={"x-extensible-enum": ["up", "draining", "away"]})]
    reason: Annotated[
        str,
        Meta(
            description="Why it drains, or did when it went; empty where it does not",
            extra_json_schema={"x-extensible-enum": ["", "operator", "unready", "stop"]},
        ),
    ]
    since: Annotated[Time | None, Meta(description="Since when its state is this one")]
    controller: Annotated[bool, Meta(description="Whether it writes the views")]
    topics: Annotated[int, Meta(ge=0, description="How many it owns, or is to own")]
    unflushed_records: Annotated[int, Meta(ge=0, description="Acknowledged and in no table at its last beat")]
    awaited_by: Annotated[list[str], Meta(description="Topics that wait for records which only its disk has")]
    version: Annotated[str | None, Meta(description="Of its software, as its last beat says")]
    number: Annotated[
        Whole | None, Meta(description="By which Kafka's clients know it; null where the cluster is off")
    ] = None
    kafka: Annotated[
        str,
        Meta(
            description="Where Kafka's clients call it, as `host:port`; empty where it does not speak their protocol, "
            "where nothing proves that it said so itself, and where the cluster is off"
        ),
    ] = ""


class NodeList(msgspec.Struct):
    """`view` is null where the cluster is off."""

    view: Whole | None
    nodes: list[NodeDescription]


class MoveRequest(msgspec.Struct, forbid_unknown_fields=True):
    node: Annotated[str, Meta(description="Where to; left out: the node with the fewest topics, of the others")] = ""


class Moving(msgspec.Struct):
    topic: str
    to: Annotated[str, Meta(description="The node that it goes to, or is at")]


class Abandoned(msgspec.Struct):
    topic: str
    node: Annotated[str, Meta(description="Who owns it next")]


class Move(msgspec.Struct):
    topic: str
    origin: str = msgspec.field(name="from")
    to: str


class Balance(msgspec.Struct):
    moves: Annotated[list[Move], Meta(description="What is to move, as far as it can be told now")]


_move_decoder = msgspec.json.Decoder(MoveRequest)


class NodesHttp:
    def __init__(self, node: Node, url: str, membership: Membership | None) -> None:
        self._node = node
        self._url = node.settings.advertise_url or url
        self._membership = membership

    @operation(
        "GET",
        "/v1/nodes",
        "listNodes",
        "Node",
        "List the nodes that share the root",
        "As the newest view has them that the node knows which is asked, and as they say of themselves.",
        access=on_cluster("describe"),
        replies={200: json_answer("The nodes.", NodeList)},
        errors=("topic_unavailable", "store_denied"),
    )
    async def list(self, request: Request) -> Response:
        Query(request, ())
        if self._membership is None:
            alone = NodeDescription(
                self._node.settings.node_id, self._url, "", "up", "", None, True, 0, 0, [], None
            )  # what it has is told by /metrics
            return json_reply(NodeList(None, [alone]))
        view, beats = self._membership.view, await self._membership.beats()
        counts = dict.fromkeys(view.nodes, 0)
        for topic in view.topics.values():
            counts[(topic.to or topic.owner).node] = counts.get((topic.to or topic.owner).node, 0) + 1
        awaited = awaited_topics(view, beats)
        found = [
            _described(
                view,
                name,
                _proven(self._membership.addresses, name, entry),
                beats.get(name),
                counts[name],
                awaited.get(entry.data_dir, []),
            )
            for name, entry in view.nodes.items()
        ]
        return json_reply(NodeList(view.number, sorted(found, key=lambda one: one.id)))

    @operation(
        "POST",
        "/v1/nodes/{id}/drain",
        "drainNode",
        "Node",
        "Have a node hand over its topics",
        "It gets no others until its next start. Answered once a view says so; the topics go one after the other.",
        access=on_cluster("alter"),
        replies=NO_CONTENT,
        parameters=(_NODE,),
        errors=("not_found", *_ASKED),
        changes="in_path",
    )
    async def drain(self, request: Request) -> Response:
        Query(request, ())
        await self._known(request).ask("drain", node=request.path_params["id"])
        return Response(status_code=204)

    @operation(
        "DELETE",
        "/v1/nodes/{id}",
        "removeNode",
        "Node",
        "Take a node that is away out of the list",
        "It may come back. Refused while its data directory has acknowledged records that no table has and that "
        "topics wait for.",
        access=on_cluster("admin"),
        replies=NO_CONTENT,
        parameters=(_NODE,),
        errors=("not_found", *_ASKED),
        changes="in_path",
    )
    async def remove(self, request: Request) -> Response:
        Query(request, ())
        await self._known(request).ask("remove", node=request.path_params["id"])
        return Response(status_code=204)

    @operation(
        "POST",
        "/v1/topics/{topic}/move",
        "moveTopic",
        "Topics",
        "Have another node own a topic",
        "Its dead letters go with it. Answered once a view says so; the hand-over follows, and no caller notices.",
        access=on_topic("alter"),
        replies={200: json_answer("Where it goes.", Moving)},
        parameters=(TOPIC,),
        body=json_body(MoveRequest, {"node": "node-2"}),
        errors=("malformed_body", "request_timeout", "request_too_large", "unknown_topic", *_ASKED),
        changes="in_path",
    )
    async def move(self, request: Request) -> Response:
        Query(request, ())
        wanted = decode(await body_of(request, BODY_BYTES_MAX), _move_decoder)
        membership, topic = self._on(), request.path_params["topic"]
        if topic not in membership.view.topics:
            raise problem("unknown_topic", f"there is no topic {topic[:200]}", topic=topic)
        await membership.ask("move", topic=topic, node=wanted.node)
        entry = membership.view.topics.get(topic)
        return json_reply(Moving(topic, (entry.to or entry.owner).node if entry else wanted.node))

    @operation(
        "POST",
        "/v1/topics/{topic}/abandon",
        "abandonTopic",
        "Topics",
        "Give up what only a lost disk has of a topic",
        "For a topic that waits (`owner_away`) for a node that never comes back, or whose last owner is unknown: it "
        "goes on elsewhere with what its table and journals have, at the next multiple of 2^32. Refused for any other. "
        "Answered once a view says so. Stop that node first; revived, it sets its records aside.",
        access=on_cluster("admin"),
        replies={200: json_answer("Who owns it next.", Abandoned)},
        parameters=(TOPIC,),
        errors=("unknown_topic", *_ASKED),
        changes="in_path",
    )
    async def abandon(self, request: Request) -> Response:
        Query(request, ())
        membership, topic = self._on(), request.path_params["topic"]
        if topic not in membership.view.topics:
            raise problem("unknown_topic", f"there is no topic {topic[:200]}", topic=topic)
        await membership.ask("abandon", topic=topic)
        entry = membership.view.topics.get(topic)
        return json_reply(Abandoned(topic, (entry.to or entry.owner).node if entry else ""))

    @operation(
        "POST",
        "/v1/cluster/balance",
        "balanceCluster",
        "Node",
        "Have all nodes own as many topics",
        "Topics move until no node has two more than another. With `dry_run=true` only what would move is told.",
        access=on_cluster("alter"),
        replies={200: json_answer("What moves.", Balance)},
        parameters=(in_query("dry_run", "Move nothing.", choice("true", "false", default="false")),),
        errors=_ASKED,
        changes="in_body",
    )
    async def balance(self, request: Request) -> Response:
        query = Query(request, ("dry_run",))
        dry_run = query.choice("dry_run", ("true", "false"), "false") == "true"
        membership = self._on()
        moves = _moves(membership.view)
        await begin_change(request, "cluster", CLUSTER)
        if not dry_run:
            await membership.ask("balance")
        return json_reply(Balance(moves))

    def _on(self) -> Membership:
        if self._membership is None:
            raise problem("cluster_off", "no other node shares the root of this server; see SILT_CLUSTER")
        return self._membership

    def _known(self, request: Request) -> Membership:
        membership, node = self._on(), request.path_params["id"]
        if node not in membership.view.nodes:
            raise problem("not_found", f"there is no node {node[:200]}; GET /v1/nodes lists them")
        return membership


def _proven(addresses: Addresses, name: str, entry: NodeEntry) -> NodeEntry:
    """The entry without what nothing proves that the node said itself."""
    return replace(entry, url=entry.url if addresses.counts(name, entry) else "", kafka=addresses.kafka(name, entry))


def _described(
    view: ClusterView, name: str, entry: NodeEntry, beat: Beat | None, topics: int, awaited_by: list[str]
) -> NodeDescription:
    own = beat if beat is not None and beat.journal == entry.journal else None
    here = own is not None and entry.state != "away"
    return NodeDescription(
        id=name,
        url=entry.url,
        zone=entry.zone,
        state=entry.state,
        reason=entry.drain,
        since=format_us(entry.since_us) if entry.since_us else None,
        controller=name == view.controller,
        topics=topics,
        unflushed_records=own.report.unflushed_records if own is not None and here else entry.unflushed_records,
        awaited_by=awaited_by,
        version=own.version if own is not None else None,
        number=entry.number or None,
        kafka=entry.kafka,
    )


def _moves(view: ClusterView) -> list[Move]:
    up = [name for name, entry in view.nodes.items() if entry.state == "up"]
    places = {name: (topic.to or topic.owner).node for name, topic in view.topics.items()}
    movable = [name for name, topic in view.topics.items() if topic.to is None]
    moves = balance(up, places, movable)
    with_them = {name: moves[unit_of(name)] for name in places if unit_of(name) in moves}
    return [Move(name, places[name], node) for name, node in sorted(with_them.items()) if places[name] != node]
