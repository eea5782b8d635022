"""What a node says of itself: what the document says of that."""

from siltlog.openapi import shapes
from siltlog.openapi.operation import ANYTHING, TEXT, Content, Operation, Reply, json_reply

OPERATIONS = (
    Operation(
        "GET",
        "/",
        "index",
        "Node",
        "Where to go on",
        "Whoever takes HTML is sent to `/docs`.",
        {200: json_reply("The paths to begin with.", shapes.Index), 307: Reply("The page is elsewhere.")},
    ),
    Operation(
        "GET",
        "/healthz",
        "health",
        "Node",
        "Is the process up?",
        "200 as long as it answers.",
        {200: json_reply("It is.", shapes.Health)},
    ),
    Operation(
        "GET",
        "/readyz",
        "ready",
        "Node",
        "Can it acknowledge?",
        "503 with each reason when it cannot, `draining` among them. What is wrong besides is among the warnings; that "
        "the object store has stopped is told within ten seconds.",
        {200: json_reply("It can.", shapes.Readiness), 503: json_reply("It cannot.", shapes.Readiness)},
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics",
        "Node",
        "Prometheus metrics",
        "Every name is pinned by a test.",
        {200: Reply("Metrics.", {"text/plain": Content(TEXT)})},
    ),
    Operation(
        "GET",
        "/v1/cluster",
        "describeCluster",
        "Node",
        "Version, nodes, limits, features",
        "Clients ask for it once.",
        {200: json_reply("The cluster.", shapes.Cluster)},
    ),
    Operation(
        "GET",
        "/openapi.json",
        "openapi",
        "Node",
        "This document",
        "OpenAPI 3.1.",
        {200: json_reply("The document.", ANYTHING)},
    ),
    Operation(
        "GET",
        "/docs",
        "docs",
        "Node",
        "This document as a page",
        "It needs no script and no network.",
        {200: Reply("The page.", {"text/html": Content(TEXT)})},
    ),
)
