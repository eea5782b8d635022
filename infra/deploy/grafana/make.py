"""Makes the four dashboards: `python -m siltlog.infra.deploy.grafana.make` writes them beside this file."""

import json
from pathlib import Path

from siltlog.infra.deploy.grafana.panel import Dashboard, Panel

_ON = '{instance=~"$instance"}'
_TOPIC = '{instance=~"$instance",topic=~"$topic"}'
_GROUP = '{group=~"$group",topic=~"$topic"}'
_RATE = "$__rate_interval"


def _quantiles(metric: str, labels: str = _ON, by: str = "") -> list[tuple[str, str]]:
    grouped = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return [
        (
            f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{labels}[{_RATE}])))",
            f"p{q * 100:g}{legend}",
        )
        for q in (0.5, 0.99)
    ]


OVERVIEW = Dashboard(
    "siltlog-overview",
    "Siltlog: overview",
    [
        Panel("Ready", "bool_yes_no", [(f"silt_ready{_ON}", "{{instance}}")], "stat", 4),
        Panel(
            "WAL used",
            "percentunit",
            [(f"silt_wal_used_bytes{_ON} / silt_wal_bytes_max{_ON}", "{{instance}}")],
            "stat",
            4,
            warns_at=0.7,
        ),
        Panel("Free on the disk", "bytes", [(f"silt_disk_free_bytes{_ON}", "{{instance}}")], "stat", 4),
        Panel("Topics that fail", "short", [(f"silt_topics_unavailable{_ON}", "{{instance}}")], "stat", 4, warns_at=1),
        Panel("Redis", "bool_yes_no", [(f"silt_redis_up{_ON}", "{{instance}}")], "stat", 4),
        Panel(
            "Running since", "dateTimeFromNow", [(f"silt_start_time_seconds{_ON} * 1000", "{{instance}}")], "stat", 4
        ),
        Panel(
            "Records published",
            "ops",
            [(f"sum by (instance) (rate(silt_records_total{_ON}[{_RATE}]))", "{{instance}}")],
        ),
        Panel(
            "Bytes published",
            "Bps",
            [(f"sum by (instance) (rate(silt_record_bytes_total{_ON}[{_RATE}]))", "{{instance}}")],
        ),
        Panel(
            "Records read",
            "ops",
            [(f"sum by (instance) (rate(silt_read_records_total{_ON}[{_RATE}]))", "{{instance}}")],
        ),
        Panel(
            "Until a publish is synced", "s", _quantiles("silt_ack_seconds"), text="With acks=wal: until the answer."
        ),
        Panel("A sync", "s", _quantiles("silt_wal_commit_seconds"), warns_at=0.05),
        Panel("Lag of the event loop", "s", _quantiles("silt_loop_lag_seconds")),
        Panel(
            "Requests",
            "reqps",
            [(f"sum by (operation) (rate(silt_http_replies_total{_ON}[{_RATE}]))", "{{operation}}")],
            width=12,
        ),
        Panel(
            "Problems",
            "reqps",
            [(f"sum by (error_code) (rate(silt_http_problems_total{_ON}[{_RATE}]))", "{{error_code}}")],
            width=12,
        ),
        Panel(
            "Connections",
            "short",
            [
                (f"silt_connections{_ON}", "{{instance}}"),
                (f"silt_streams{_ON}", "streams {{instance}}"),
                (f"silt_live_viewers{_ON}", "viewers {{instance}}"),
            ],
        ),
        Panel(
            "Memory",
            "bytes",
            [
                (f"process_resident_memory_bytes{_ON}", "process {{instance}}"),
                (f"silt_head_bytes{_ON}", "head {{instance}}"),
                (f"silt_in_flight_bytes{_ON}", "requests {{instance}}"),
            ],
        ),
        Panel(
            "Requests of Kafka's clients",
            "ops",
            [
                (f"sum by (api) (rate(silt_kafka_requests_total{_ON}[{_RATE}]))", "{{api}}"),
                (f"sum by (api, error) (rate(silt_kafka_errors_total{_ON}[{_RATE}]))", "{{error}} {{api}}"),
                (f"sum by (topic) (rate(silt_kafka_misplaced_batches_total{_ON}[{_RATE}]))", "misplaced {{topic}}"),
            ],
        ),
        Panel(
            "Partitions in fetch sessions of Kafka's consumers",
            "short",
            [(f"silt_kafka_session_partitions{_ON}", "{{instance}}")],
        ),
        Panel(
            "Processors",
            "short",
            [(f"rate(process_cpu_seconds_total{_ON}[{_RATE}])", "{{instance}}")],
            text="1 is one processor.",
        ),
    ],
)
TOPICS = Dashboard(
    "siltlog-topics",
    "Siltlog: topics",
    [
        Panel(
            "Records published", "ops", [(f"sum by (topic) (rate(silt_records_total{_TOPIC}[{_RATE}]))", "{{topic}}")]
        ),
        Panel(
            "Bytes published",
            "Bps",
            [(f"sum by (topic) (rate(silt_record_bytes_total{_TOPIC}[{_RATE}]))", "{{topic}}")],
        ),
        Panel("Bytes read", "Bps", [(f"sum by (topic) (rate(silt_read_bytes_total{_TOPIC}[{_RATE}]))", "{{topic}}")]),
        Panel(
            "Behind the log: tables",
            "s",
            [(f"max by (topic) (silt_table_lag_seconds{_TOPIC})", "{{topic}}")],
            warns_at=60,
        ),
        Panel(
            "Files",
            "short",
            [
                (f"max by (topic) (silt_table_live_files{_TOPIC})", "{{topic}}"),
                (f"max by (topic) (silt_table_small_files{_TOPIC})", "small {{topic}}"),
            ],
        ),
        Panel(
            "Flushes",
            "ops",
            [
                (f"sum by (topic) (rate(silt_flushes_total{_TOPIC}[{_RATE}]))", "{{topic}}"),
                (f"sum by (topic) (rate(silt_flush_failures_total{_TOPIC}[{_RATE}]))", "failed {{topic}}"),
            ],
        ),
        Panel(
            "Records a flush",
            "short",
            [
                (
                    f"sum by (topic) (rate(silt_flushed_records_total{_TOPIC}[{_RATE}]))"
                    f" / sum by (topic) (rate(silt_flushes_total{_TOPIC}[{_RATE}]))",
                    "{{topic}}",
                )
            ],
        ),
        Panel(
            "Duplicates that were told apart",
            "ops",
            [(f"sum by (topic) (rate(silt_duplicate_records_total{_TOPIC}[{_RATE}]))", "{{topic}}")],
        ),
        Panel(
            "Dead letters", "ops", [(f"sum by (topic) (rate(silt_dead_letters_total{_TOPIC}[{_RATE}]))", "{{topic}}")]
        ),
    ],
    [("topic", "silt_records_total")],
)
GROUPS = Dashboard(
    "siltlog-groups",
    "Siltlog: groups",
    [
        Panel(
            "Records behind",
            "short",
            [(f"sum by (group, topic) (silt_group_lag_records{_GROUP})", "{{group}} {{topic}}")],
            width=12,
        ),
        Panel(
            "Seconds behind",
            "s",
            [(f"max by (group, topic) (silt_group_lag_seconds{_GROUP})", "{{group}} {{topic}}")],
            width=12,
            warns_at=300,
        ),
        Panel("Partitions furthest behind", "short", [(f"topk(20, silt_group_lag_records{_GROUP})", "")], "table", 12),
        Panel(
            "Groups and members",
            "short",
            [(f"silt_groups{_ON}", "groups {{instance}}"), (f"silt_group_members{_ON}", "members {{instance}}")],
            width=12,
        ),
        Panel(
            "Rebalances", "ops", [(f"sum by (reason) (rate(silt_group_rebalances_total{_ON}[{_RATE}]))", "{{reason}}")]
        ),
        Panel(
            "Members that were expired or fenced",
            "ops",
            [(f"sum by (reason) (rate(silt_group_evictions_total{_ON}[{_RATE}]))", "{{reason}}")],
        ),
        Panel("Commits", "ops", [(f"sum by (outcome) (rate(silt_group_commits_total{_ON}[{_RATE}]))", "{{outcome}}")]),
        Panel(
            "Attempts at records",
            "ops",
            [(f"sum by (topic) (rate(silt_attempts_total{_ON}[{_RATE}]))", "{{topic}}")],
            width=12,
        ),
        Panel(
            "Records sent to streams",
            "ops",
            [
                (f"sum by (kind) (rate(silt_stream_records_total{_ON}[{_RATE}]))", "{{kind}}"),
                (f"sum by (kind) (rate(silt_streams_too_slow_total{_ON}[{_RATE}]))", "too slow {{kind}}"),
            ],
            width=12,
        ),
    ],
    [("group", "silt_group_lag_records"), ("topic", "silt_group_lag_records")],
)
JOBS = Dashboard(
    "siltlog-jobs",
    "Siltlog: jobs and store",
    [
        Panel(
            "Last success",
            "dateTimeFromNow",
            [("max by (name) (silt_job_last_success_timestamp_seconds) * 1000", "{{name}}")],
            "stat",
            12,
        ),
        Panel(
            "How long the last run took", "s", [("max by (name) (silt_job_last_run_seconds)", "{{name}}")], "stat", 12
        ),
        Panel(
            "Runs",
            "short",
            [("sum by (name, outcome) (increase(silt_job_runs_total[1h]))", "{{name}} {{outcome}}")],
            text="Within an hour.",
            width=12,
        ),
        Panel("Small files", "short", [("sum(max by (topic) (silt_table_small_files))", "of all tables")], width=12),
        Panel(
            "Requests to the store",
            "reqps",
            [(f"sum by (request) (rate(silt_store_seconds_count{_ON}[{_RATE}]))", "{{request}}")],
        ),
        Panel("A request to the store", "s", _quantiles("silt_store_seconds", by="request")),
        Panel(
            "Requests that failed",
            "reqps",
            [(f"sum by (request) (rate(silt_store_errors_total{_ON}[{_RATE}]))", "{{request}}")],
            warns_at=0.1,
        ),
        Panel("A flush", "s", _quantiles("silt_flush_seconds")),
        Panel(
            "Until the journal has it", "s", _quantiles("silt_object_ack_seconds"), text="Of topics with acks=object."
        ),
        Panel("Objects of the journal that are needed", "short", [(f"silt_object_pinned{_ON}", "{{instance}}")]),
        Panel(
            "Nodes", "short", [("max by (state) (silt_cluster_nodes)", "{{state}}")], text="Where several share a root."
        ),
        Panel(
            "Topics a node owns",
            "short",
            [(f"silt_topics_owned{_ON}", "{{instance}}"), (f"silt_topics_waiting{_ON}", "waiting {{instance}}")],
        ),
        Panel(
            "Topics that changed their node",
            "short",
            [
                (f"sum by (rule) (increase(silt_topics_taken_total{_ON}[{_RATE}]))", "taken: {{rule}}"),
                (f"sum by (outcome) (increase(silt_topics_let_go_total{_ON}[{_RATE}]))", "let go: {{outcome}}"),
            ],
            text="shipped and lost: a node was gone. Else somebody asked, or nodes came and went.",
        ),
        Panel(
            "Since a node was heard of",
            "s",
            [(f"silt_cluster_silent_seconds{_ON}", "{{instance}}")],
            text="After a lease (SILT_LEASE_MS) others take its topics.",
            warns_at=5,
        ),
        Panel(
            "Nodes out of reach",
            "short",
            [(f"silt_cluster_unreachable{_ON}", "of {{instance}}")],
            text="As each node says of the others.",
        ),
        Panel(
            "The newest view",
            "short",
            [(f"silt_cluster_view{_ON}", "{{instance}}"), (f"silt_cluster_controller{_ON}", "controls {{instance}}")],
            text="A node that stays behind does not reach the object store.",
        ),
        Panel(
            "Requests that another node answered",
            "reqps",
            [(f"sum by (instance) (rate(silt_requests_proxied_total{_ON}[{_RATE}]))", "{{instance}}")],
        ),
    ],
)
DASHBOARDS = {"overview": OVERVIEW, "topics": TOPICS, "groups": GROUPS, "jobs": JOBS}


def text(dashboard: Dashboard) -> str:
    return json.dumps(dashboard.document(), indent=1) + "\n"


if __name__ == "__main__":
    for name, dashboard in DASHBOARDS.items():
        Path(__file__).with_name(f"{name}.json").write_text(text(dashboard), "utf-8")
