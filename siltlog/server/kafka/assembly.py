"""Builds Kafka's protocol on a node: the listener, and what answers each API that is served."""

import socket
from collections.abc import Callable, Mapping
from functools import partial

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.kafka.classic import ClassicGroups
from siltlog.consumers.kafka.consumer_members import ConsumerMembers
from siltlog.consumers.kafka.fetch import KafkaFetch
from siltlog.consumers.kafka.offsets import KafkaOffsets
from siltlog.consumers.kafka.sessions import FetchSessions, Room
from siltlog.consumers.reading.view import LogView
from siltlog.infra.http.assembly import Edge
from siltlog.infra.http.connection.handshakes import Handshakes
from siltlog.infra.http.connection.peer import Peers
from siltlog.infra.http.part import Part
from siltlog.infra.kafka.native import CODEC
from siltlog.infra.locations import listening_at
from siltlog.infra.metrics import catalogue
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.node import Node
from siltlog.infra.security.guard import Guard
from siltlog.infra.security.proxies import Proxies
from siltlog.ingest.assembly import Ingest
from siltlog.ingest.log.claim import term_of
from siltlog.ingest.publish.kafka.produce import Produce
from siltlog.server.access.security import Security
from siltlog.server.cluster.nodes import Nodes
from siltlog.server.kafka.admin import acls
from siltlog.server.kafka.admin.configs import Configs
from siltlog.server.kafka.admin.consumer_groups import ConsumerGroups
from siltlog.server.kafka.admin.groups import GroupsKept
from siltlog.server.kafka.admin.leading import Leading, Move
from siltlog.server.kafka.admin.log_dirs import LogDirs
from siltlog.server.kafka.admin.partitions import Partitions
from siltlog.server.kafka.admin.records import Deletions
from siltlog.server.kafka.apis import Apis, Counts
from siltlog.server.kafka.at_owner import AtOwner
from siltlog.server.kafka.call import Handler
from siltlog.server.kafka.connection import KafkaConnection, Served
from siltlog.server.kafka.groups.consumer_members import ConsumerHeartbeats
from siltlog.server.kafka.groups.members import Members
from siltlog.server.kafka.groups.offsets import GroupOffsets
from siltlog.server.kafka.incoming import scratch
from siltlog.server.kafka.leaders import Leaders, LeadsAlone, OwnersLead
from siltlog.server.kafka.listener import KafkaListener
from siltlog.server.kafka.metadata import Described
from siltlog.server.kafka.publishing import Publishes
from siltlog.server.kafka.reading import Reads
from siltlog.server.kafka.sasl import Sasl
from siltlog.server.kafka.session import Session
from siltlog.server.kafka.topic_ids import TopicIds
from siltlog.server.kafka.topics import TopicsKept

NO_API = "none"
"""The API of what is no request: a connection ended for it."""


async def open_kafka(
    node: Node,
    listener: socket.socket,
    handshakes: Handshakes | None,
    edge: Edge,
    ingest: Ingest,
    consumers: Consumers,
    nodes: Nodes | None,
    security: Security | None,
    guard: Guard | None,
) -> tuple[Part, Callable[[], int]]:
    """Serves on `listener` until the part drains.

    Gives what counts the requests that are under way, those of HTTP too.
    """
    counts = Counts()
    produce = Produce(ingest.publishing, node.clock.monotonic)
    handlers = _handlers(node, ingest, consumers, nodes, produce)
    room = Room()
    sasl = None if security is None else Sasl(security.identification, node.settings.oidc_issuer)

    def answering(connection: KafkaConnection) -> Apis:
        return Apis(Session(connection, sasl, guard, FetchSessions(room)), handlers, counts)

    served = Served(
        crowd=edge.crowd,
        # Nobody stands before it who says for whom: a proxy counts as whoever it is.
        peers=Peers(Proxies(()), needs_tls=False),
        in_flight=node.in_flight,
        logger=node.logger,
        scratch=scratch(),
        request_bytes=lambda: ingest.bodies.bytes_max,
        answering=answering,
        ended=partial(counts.failed, NO_API),
        is_open=lambda: not node.draining.begun,
    )
    connections = KafkaListener(served, handshakes)
    await connections.listen(listener)
    node.draining.counted(connections.requests)
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    node.logger.info("Kafka's protocol is served", address=address, codec=CODEC)

    def show(metrics: Metrics) -> None:
        metrics.totals(catalogue.KAFKA_REQUESTS, counts.requests.items)
        metrics.counts(catalogue.KAFKA_ERRORS, counts.errors.items)
        metrics.totals(catalogue.KAFKA_MISPLACED_BATCHES, produce.misplaced.items)
        metrics.gauge(catalogue.KAFKA_SESSION_PARTITIONS, room.taken)

    async def close(patient: bool) -> bool:
        connections.stop_listening()
        return True

    part = Part(gauges=show, drain=connections.end, close=close)
    return part, lambda: edge.requests() + connections.requests()


def _handlers(
    node: Node,
    ingest: Ingest,
    consumers: Consumers,
    nodes: Nodes | None,
    produce: Produce,
) -> Mapping[int, Handler]:
    def leader_epoch(topic: str) -> int:
        return term_of(ingest.system.epoch_of(topic))

    log: LogView = ingest.log if nodes is None else nodes.log
    leaders = _leaders(node, nodes, leader_epoch)
    at_owner = AtOwner(None if nodes is None else nodes.forwarding, ingest.bodies)
    ids = TopicIds(log)
    offsets = KafkaOffsets(log, consumers.fetcher, leader_epoch)
    fetch = KafkaFetch(log, consumers.fetcher, leader_epoch, partial(leaders.leads, reads=True))
    reads = Reads(ids, fetch, offsets, leaders, consumers.limits, lambda: node.draining.begun)
    publishes = Publishes(produce, ids, leaders, lambda: ingest.bodies.bytes_max)
    described = Described(log, ids, ingest.auto_create, leaders, cluster_id=node.cluster_id)
    group_offsets = GroupOffsets(consumers.groups.offsets, ids, offsets)
    delay_ms = node.settings.group_initial_rebalance_delay_ms
    members = Members(ClassicGroups(consumers.groups, delay_ms, lambda: node.draining.begun))
    topics = TopicsKept(log, ingest.topics, at_owner, ids, leaders, node.settings.auto_create_partitions)
    return {
        **_administration(node, ingest, consumers, log, at_owner, leaders, _move(nodes)),
        0: publishes.produce,
        1: reads.fetch,
        2: reads.list_offsets,
        3: described.metadata,
        8: group_offsets.commit,
        9: group_offsets.fetch,
        10: described.find_coordinator,
        11: members.join,
        12: members.heartbeat,
        13: members.leave,
        14: members.sync,
        19: topics.create,
        20: topics.delete,
        22: publishes.init_producer_id,
        23: reads.offset_for_leader_epoch,
        29: acls.describe_acls,
        30: acls.create_acls,
        31: acls.delete_acls,
        47: group_offsets.delete,
        60: described.describe_cluster,
        68: ConsumerHeartbeats(ConsumerMembers(consumers.groups), ids).heartbeat,
        75: described.topic_partitions,
    }


def _administration(
    node: Node,
    ingest: Ingest,
    consumers: Consumers,
    log: LogView,
    at_owner: AtOwner,
    leaders: Leaders,
    move: Move | None,
) -> Mapping[int, Handler]:
    topics, leading = ingest.topics, Leading(log, leaders, move)
    groups, configs = GroupsKept(consumers.groups), Configs(log, topics, at_owner, leaders)
    return {
        15: groups.describe,
        16: groups.list,
        21: Deletions(ingest.log, ingest.log_starts, at_owner, node.clock.monotonic).delete,
        32: configs.describe,
        33: configs.replace,
        35: LogDirs(ingest.log, topics, node.settings.root_uri).describe,
        37: Partitions(log, topics, at_owner, leaders).create,
        42: groups.delete,
        43: leading.elect,
        44: configs.change,
        45: leading.reassign,
        46: leading.reassignments,
        69: ConsumerGroups(consumers.groups).describe,
        74: configs.list,
    }


def _move(nodes: Nodes | None) -> Move | None:
    if nodes is None:
        return None
    membership = nodes.membership

    async def move(topic: str, to: str) -> None:
        await membership.ask("move", topic=topic, node=to)

    return move


def _leaders(node: Node, nodes: Nodes | None, leader_epoch: Callable[[str], int]) -> Leaders:
    if nodes is not None:
        membership = nodes.membership
        return OwnersLead(membership.node, nodes.routes, lambda: membership.view, membership.addresses, leader_epoch)
    advertise = node.settings.kafka_advertise
    return LeadsAlone(leader_epoch, listening_at(advertise) if advertise else None)
