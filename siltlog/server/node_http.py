"""Answers about a node itself: health, readiness, metrics, the cluster."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.assembly import Consumers
from siltlog.infra.cluster.membership import Membership
from siltlog.infra.http.answers import Whole
from siltlog.infra.http.operations import ANY_CALLER, ANYBODY, TEXT, Content, Reply, json_answer, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.infra.node import Node as ThisNode
from siltlog.infra.security.grant import grant_of
from siltlog.infra.settings.settings import ServerSettings
from siltlog.ingest.log.log import Log
from siltlog.server.document_http import DOCS_PATH, OPENAPI_PATH
from siltlog.ui.http import PAGE_PATH

FEATURES = (
    "acks.none",
    "acks.wal",
    "acks.object",
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
    view: Annotated[Whole | None, Meta(description="The newest view; null where no node shares the root")]
    controller: Annotated[str | None, Meta(description="The node that wrote it")]
    nodes: list[Node]
    limits: Limits
    features: list[str]


def not_ready(log: Log, membership: Membership | None) -> list[str]:
    """Lists the reasons why a node cannot acknowledge; empty when it can."""
    return [*log.admission.not_ready(), *(membership.reasons() if membership else ())]


class NodeHttp:
    def __init__(
        self,
        node: ThisNode,
        url: str,
        log: Log,
        consumers: Consumers,
        membership: Membership | None,
        warnings: Callable[[], list[str]],
        settings: Callable[[], ServerSettings],
    ) -> None:
        """`warnings()` are sentences about what this node does not look at itself, `settings()` those that hold."""
        self._node = node
        self._url = node.settings.advertise_url or url
        self._log = log
        self._consumers = consumers
        self._membership = membership
        self._warnings = warnings
        self._settings = settings
        self._page = PAGE_PATH if node.settings.ui != "off" else DOCS_PATH.lstrip("/")

    def reasons(self) -> list[str]:
        """Says why it cannot acknowledge; empty when it can."""
        return not_ready(self._log, self._membership)

    @operation(
        "GET",
        "/",
        "index",
        "Node",
        "Where to go on",
        "Whoever takes HTML is sent to the page, `ui/`; with `SILT_UI=off` to `docs`.",
        access=ANYBODY,
        replies={200: json_answer("The paths to begin with.", Index), 303: Reply("The page is elsewhere.")},
    )
    async def index(self, request: Request) -> Response:
        """Where to go on: people to the page, programs by the paths in the document."""
        Query(request, ())
        headers = {"Vary": "Accept"}
        if _HTML in request.headers.get("accept", "").lower():
            return Response(status_code=303, headers={**headers, "Location": self._page})
        return json_reply(Index("siltlog", version("siltlog"), **PLACES), headers=headers)

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
        return json_reply(Health("up"))

    @operation(
        "GET",
        "/readyz",
        "ready",
        "Node",
        "Can it acknowledge?",
        "503 with each reason when it cannot, `draining` among them. What is wrong besides is among the warnings; that "
        "the object store has stopped is told within ten seconds. Who may not describe the cluster is told no reasons.",
        access=ANYBODY,
        needs="for `reasons` and `warnings` cluster `describe`",
        replies={200: json_answer("It can.", Readiness), 503: json_answer("It cannot.", Readiness)},
    )
    async def ready(self, request: Request) -> Response:
        """200 only when publishes can be acknowledged; groups being away is told, but does not stop publishing."""
        reasons = self.reasons()
        warnings = [*self._warnings(), *self._log.admission.degraded()]
        if not await self._consumers.groups_answer():
            warnings.append("groups: Redis does not answer")
        else:
            warnings += self._consumers.groups.degraded()
        status = 503 if reasons else 200
        if not grant_of(request).may("describe", "cluster"):
            reasons, warnings = [], []
        return json_reply(Readiness("ready" if status == 200 else "not_ready", reasons, warnings), status)

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
        return Response(await self._node.metrics.text(), media_type=self._node.metrics.content_type)

    @operation(
        "GET",
        "/v1/cluster",
        "describeCluster",
        "Node",
        "Version, nodes, limits, features",
        "Clients ask for it once.",
        access=ANY_CALLER,
        needs="for `nodes` and `controller` cluster `describe`",
        replies={200: json_answer("The cluster.", Cluster)},
    )
    async def cluster(self, request: Request) -> Response:
        Query(request, ())
        sees_nodes = grant_of(request).may("describe", "cluster")
        view, settings = None, self._settings()
        members = [Node(self._node.settings.node_id, self._url)]
        if self._membership is not None:
            view, addresses = self._membership.view, self._membership.addresses
            members = [Node(name, entry.url) for name, entry in sorted(view.members()) if addresses.counts(name, entry)]
        return json_reply(
            Cluster(
                version=version("siltlog"),
                cluster_id=self._node.cluster_id,
                view=None if view is None else view.number,
                controller=view.controller if view is not None and sees_nodes else None,
                nodes=members if sees_nodes else [],
                limits=Limits(
                    request_bytes=settings.request_bytes,
                    record_bytes=min(settings.record_bytes_max, settings.request_bytes),
                    records=self._consumers.limits.records,
                    wait_ms=self._consumers.limits.wait_ms,
                    fetch_bytes=self._consumers.limits.bytes,
                ),
                features=list(FEATURES),
            )
        )
