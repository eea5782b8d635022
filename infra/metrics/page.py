"""The page that tells what each metric means, made of the catalogue."""

from siltlog.infra.metrics.catalogue import CATALOGUE, Metric

_HEAD = """# Metrics

`GET /metrics` answers in Prometheus's text format. Who asks needs `describe` on the cluster where the server asks who
calls. Counters begin at 0 with each start. What belongs to a topic is gone with the topic. Beside these are the
`process_…` series of Prometheus's own client: processor time, memory, open files.

With `SILT_METRICS_PORT` there is a port for `/metrics`, `/healthz` and `/readyz` alone, without TLS or
authentication, and last to go when the server drains. It is on the loopback unless `SILT_METRICS_HOST` says
otherwise; by which names it may be called there says `SILT_HOSTS`. Who gets there is told the names of topics and
groups, and how much is in them ([security](security.md#what-a-server-may-be)).

A server keeps what the most telling of them were, for the last hour every ten seconds, the last day every minute and 30
days every hour, also over a restart, and tells it by `GET /v1/metrics/history?series=…`; in a cluster any node tells of
all ([the history](operations.md#the-history-of-metrics)). For more there is Prometheus:
`infra/deploy/prometheus/` has a configuration and sixteen alerts, each with its [runbook](runbooks.md), and
`infra/deploy/grafana/` four dashboards to import: overview, topics, groups, jobs and store.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """Writes docs/metrics.md."""
    return _HEAD + "".join(_row(metric) for metric in CATALOGUE)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 (what it is for)
