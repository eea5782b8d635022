"""Answers about a node itself: health, readiness, metrics, the cluster."""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.assembly import Coordination
from siltlog.consumers.reading.http import ReadLimits
from siltlog.infra import names
from siltlog.infra.http.answers import Whole
from siltlog.infra.http.operations import ANYBODY, TEXT, Content, Reply, json_answer, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.watch import StoreWatch
from siltlog.infra.telemetry import Metrics
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.topic import TopicLog
from siltlog.server.document_http import DOCS_PATH, OPENAPI_PATH

FEATURES = (
    "acks.none",
    "acks.wal",
    "acks.table",
    "groups",
    "dead-letters",
    "server-sent-events",
    "web-sockets",
    "table-files",
    "idempotent-producer",
    "producer-claims",
    "sequence-mode.increasing",
    "idempotency-key",
)


_HTML = "text/html"
PLACES = {
    "docs": DOCS_PATH,
    "openapi": OPENAPI_PATH,
    "topics": "/v1/topics",
    "groups": "/v1/groups",
    "cluster": "/v1/cluster",
    "health": "/healthz",
    "readiness": "/readyz",
    "metrics": "/metrics",
}
"""Places that `/` names."""

_OF_TOPICS: tuple[tuple[str, str, Callable[[TopicLog], int]], ...] = (
    (names.METRIC_RECORDS, "Records acknowledged", lambda topic: topic.records_total),
    (names.METRIC_BYTES, "Bytes of records acknowledged", lambda topic: topic.bytes_total),
    (
        names.METRIC_DUPLICATE_RECORDS,
        "Records that were seen before and not appended again",
        lambda topic: topic.producers.duplicates_total,
    ),
    (
        names.METRIC_PRODUCERS_FORGOTTEN,
        "Producers and idempotency keys forgotten: too old, or too many",
        lambda topic: topic.producers.forgotten_total,
    ),
    (names.METRIC_FLUSHES, "Flushes committed", lambda topic: topic.counts.flushes),
    (names.METRIC_FLUSHED_RECORDS, "Records flushed", lambda topic: topic.counts.flushed_records),
    (names.METRIC_FLUSHED_FILES, "Files flushed", lambda topic: topic.counts.flushed_files),
    (names.METRIC_FLUSH_FAILURES, "Flushes failed", lambda topic: topic.counts.flush_failures),
)
"""Counters of each topic. They are the topic's, so that one that is deleted is counted no more."""


class Index(msgspec.Struct):
    name: Literal["siltlog"]
    version: str
    docs: str
    openapi: str
    topics: str
    groups: str
    cluster: str
    health: str
    readiness: str
    metrics: str


class Health(msgspec.Struct):
    status: Literal["up"]


class Readiness(msgspec.Struct):
    status: Literal["ready", "not_ready"]
    reasons: Annotated[list[str], Meta(description="Why it cannot acknowledge")]
    warnings: Annotated[list[str], Meta(description="What else is wrong, such as groups being away")]


class Node(msgspec.Struct):
    id: str
    url: str


class Limits(msgspec.Struct):
    """What one request may be; larger waits and fetches are cut, larger bodies refused."""

    request_bytes: Whole
    record_bytes: Whole
    records: Whole
    wait_ms: Whole
    fetch_bytes: Whole


class Cluster(msgspec.Struct):
    version: str
    cluster_id: str
    nodes: list[Node]
    limits: Limits
    features: list[str]


class NodeHttp:
    def __init__(
        self,
        log: Log,
        metrics: Metrics,
        settings: ServerSettings,
        url: str,
        coordination: Coordination,
        limits: ReadLimits,
        cluster_id: str,
        store_watch: StoreWatch,
    ) -> None:
        self._log = log
        self._metrics = metrics
        self._settings = settings
        self._url = settings.advertise_url or url
        self._coordination = coordination
        self._limits = limits
        self._cluster_id = cluster_id
        self._store_watch = store_watch
        metrics.gauge(names.METRIC_WAL_USED_BYTES, "Bytes of the write-ahead log in use", lambda: log.wal.used_bytes)
        metrics.gauge(names.METRIC_HEAD_BYTES, "Bytes of the head in memory", log.head_bytes)
        metrics.gauge(names.METRIC_UNFLUSHED_BYTES, "Bytes acknowledged and not in a table", log.unflushed_bytes)
        for name, description, read in _OF_TOPICS:
            metrics.totals(name, description, "topic", partial(self._by_topic, read))
        metrics.gauge(
            names.METRIC_PRODUCERS, "Producers remembered, counted in each partition they published to", log.producers
        )
        metrics.gauge(names.METRIC_IDEMPOTENCY_KEYS, "Idempotency keys remembered", log.idempotency_keys)
        metrics.gauge(
            names.METRIC_PRODUCER_STATE_BYTES,
            "About how many bytes producers and keys take in the write-ahead log's state",
            lambda: log.producer_bytes.producers + log.producer_bytes.keys,
        )
        metrics.gauge(names.METRIC_TOPICS, "Topics", lambda: len(log.topics()))
        metrics.gauge(
            names.METRIC_TOPICS_UNAVAILABLE,
            "Topics that take no records, or whose last flush failed",
            lambda: sum(topic.state in ("unavailable", "fenced") or bool(topic.flush_error) for topic in log.topics()),
        )

    def _by_topic(self, read: Callable[[TopicLog], int]) -> list[tuple[str, int]]:
        return [(topic.name, read(topic)) for topic in self._log.topics()]

    @operation(
        "GET",
        "/",
        "index",
        "Node",
        "Where to go on",
        "Whoever takes HTML is sent to `/docs`.",
        access=ANYBODY,
        replies={200: json_answer("The paths to begin with.", Index), 307: Reply("The page is elsewhere.")},
    )
    async def index(self, request: Request) -> Response:
        """Where to go on: people to the page of the interface, programs by the paths in the document."""
        Query(request, ())
        headers = {"Vary": "Accept"}
        if _HTML in request.headers.get("accept", "").lower():
            return Response(status_code=307, headers={**headers, "Location": DOCS_PATH})
        return json_reply({"name": "siltlog", "version": version("siltlog"), **PLACES}, headers=headers)

    @operation(
        "GET",
        "/healthz",
        "health",
        "Node",
        "Is the process up?",
        "200 as long as it answers.",
        access=ANYBODY,
        replies={200: json_answer("It is.", Health)},
    )
    async def health(self, request: Request) -> Response:
        return json_reply({"status": "up"})

    @operation(
        "GET",
        "/readyz",
        "ready",
        "Node",
        "Can it acknowledge?",
        "503 with each reason when it cannot, `draining` among them. What is wrong besides is among the warnings; that "
        "the object store has stopped is told within ten seconds.",
        access=ANYBODY,
        replies={200: json_answer("It can.", Readiness), 503: json_answer("It cannot.", Readiness)},
    )
    async def ready(self, request: Request) -> Response:
        """200 only when publishes can be acknowledged; groups being away is told, but does not stop publishing."""
        reasons = self._log.not_ready()
        warnings = [*self._store_watch.warnings(), *self._log.degraded()]
        if not await self._coordination.answers():
            warnings.append("groups: Redis does not answer")
        else:
            warnings += self._coordination.groups.degraded()
        document: dict[str, Any] = {"status": "ready" if not reasons else "not_ready", "reasons": reasons}
        return json_reply(document | {"warnings": warnings}, 503 if reasons else 200)

    @operation(
        "GET",
        "/metrics",
        "metrics",
        "Node",
        "Prometheus metrics",
        "Every name is pinned by a test.",
        access=on_cluster("describe"),
        replies={200: Reply("Metrics.", {"text/plain": Content(TEXT)})},
    )
    async def metrics(self, request: Request) -> Response:
        return Response(await self._metrics.text(), media_type=self._metrics.content_type)

    @operation(
        "GET",
        "/v1/cluster",
        "describeCluster",
        "Node",
        "Version, nodes, limits, features",
        "Clients ask for it once.",
        access=on_cluster("describe"),
        replies={200: json_answer("The cluster.", Cluster)},
    )
    async def cluster(self, request: Request) -> Response:
        Query(request, ())
        return json_reply(
            {
                "version": version("siltlog"),
                "cluster_id": self._cluster_id,
                "nodes": [{"id": self._settings.node_id, "url": self._url}],
                "limits": {
                    "request_bytes": self._settings.request_bytes,
                    "record_bytes": min(self._settings.record_bytes_max, self._settings.request_bytes),
                    "records": self._limits.records,
                    "wait_ms": self._limits.wait_ms,
                    "fetch_bytes": self._limits.bytes,
                },
                "features": list(FEATURES),
            }
        )
