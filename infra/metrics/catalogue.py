"""The catalogue of metrics: the name, labels and meaning of every series that `GET /metrics` shows.

Names follow https://prometheus.io/docs/practices/naming/: base units, `_total` for counters. docs/metrics.md is made
of it.
"""

from typing import Literal, NamedTuple

_SYNC_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_STORE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class Metric(NamedTuple):
    """A name, and what it means. One with `buckets` is a histogram, one that ends in `_total` a counter."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


# The process.
BUILD_INFO = Metric("silt_build_info", "1, with what runs in its labels", ("version", "python"))
START_TIME = Metric("silt_start_time_seconds", "When the server started, in seconds since 1970")
READY = Metric("silt_ready", "1 while publishes can be acknowledged, as `/readyz` says")
DRAINING = Metric("silt_draining", "1 while the server drains")
LOOP_LAG_SECONDS = Metric(
    "silt_loop_lag_seconds", "Seconds by which a sleep of the event loop was too long", buckets=_SYNC_BUCKETS
)
DISK_FREE_BYTES = Metric("silt_disk_free_bytes", "Bytes that are free on the disk of the data directory")
REDIS_UP = Metric("silt_redis_up", "1 while the Redis of the groups answers; as the last call to it ended")

# What is published.
RECORDS = Metric("silt_records_total", "Records acknowledged", ("topic",))
RECORD_BYTES = Metric("silt_record_bytes_total", "Bytes of records acknowledged", ("topic",))
DUPLICATE_RECORDS = Metric(
    "silt_duplicate_records_total", "Records that were seen before and not appended again", ("topic",)
)
PRODUCERS_FORGOTTEN = Metric(
    "silt_producers_forgotten_total", "Producers and idempotency keys forgotten: too old, or too many", ("topic",)
)
PRODUCERS = Metric("silt_producers", "Producers remembered, counted in each partition they published to")
IDEMPOTENCY_KEYS = Metric("silt_idempotency_keys", "Idempotency keys remembered")
PRODUCER_STATE_BYTES = Metric(
    "silt_producer_state_bytes", "About how many bytes producers and keys take in the write-ahead log's state"
)
TOPICS = Metric("silt_topics", "Topics")
TOPICS_UNAVAILABLE = Metric("silt_topics_unavailable", "Topics that take no records, or whose last flush failed")

# The write-ahead log and the journal.
ACK_SECONDS = Metric(
    "silt_ack_seconds",
    "Seconds from the oldest request of a group commit to its sync; what waits for the store or the table waits longer",
    buckets=_SYNC_BUCKETS,
)
WAL_COMMIT_SECONDS = Metric(
    "silt_wal_commit_seconds", "Seconds from a group commit's start to its sync", buckets=_SYNC_BUCKETS
)
WAL_USED_BYTES = Metric("silt_wal_used_bytes", "Bytes of the write-ahead log in use")
WAL_BYTES_MAX = Metric("silt_wal_bytes_max", "Bytes that the write-ahead log may use")
HEAD_BYTES = Metric("silt_head_bytes", "Bytes of the head in memory")
UNFLUSHED_BYTES = Metric("silt_unflushed_bytes", "Bytes acknowledged and not in a table")
OBJECT_ACK_SECONDS = Metric(
    "silt_object_ack_seconds",
    "Seconds from an object of the journal being made to its being in the store",
    buckets=_STORE_BUCKETS,
)
OBJECT_STALL_SECONDS = Metric(
    "silt_object_stall_seconds", "Seconds that what was synced longest ago has waited to land in the journal"
)
OBJECTS_PINNED = Metric("silt_object_pinned", "Objects of the journal that a successor would read")

# Tables.
FLUSHES = Metric("silt_flushes_total", "Flushes committed", ("topic",))
FLUSHED_RECORDS = Metric("silt_flushed_records_total", "Records flushed", ("topic",))
FLUSHED_FILES = Metric("silt_flushed_files_total", "Files flushed", ("topic",))
FLUSH_FAILURES = Metric("silt_flush_failures_total", "Flushes failed", ("topic",))
FLUSH_SECONDS = Metric("silt_flush_seconds", "Seconds per flush", buckets=_STORE_BUCKETS)
BURST_SECONDS_LEFT = Metric("silt_burst_seconds_left", "Seconds that files may still wait for the end of a burst")
TABLE_LAG_SECONDS = Metric(
    "silt_table_lag_seconds", "Age of the oldest acknowledged record that is not in the table; 0 without", ("topic",)
)
TABLE_LIVE_FILES = Metric("silt_table_live_files", "Files that the table has", ("topic",))
TABLE_SMALL_FILES = Metric(
    "silt_table_small_files", "Files of the table that are smaller than compaction leaves them", ("topic",)
)

# The object store.
STORE_SECONDS = Metric(
    "silt_store_seconds",
    "Seconds per request of the server to the object store; the log of a table is not among them",
    ("request",),
    _STORE_BUCKETS,
)
STORE_ERRORS = Metric("silt_store_errors_total", "Requests to the object store that failed", ("request",))

# The edge.
REPLIES = Metric(
    "silt_http_replies_total",
    "HTTP replies; `operation` is an id of the OpenAPI document, or none",
    ("operation", "status"),
)
PROBLEMS = Metric("silt_http_problems_total", "Requests answered with a problem", ("error_code",))
CONNECTIONS = Metric("silt_connections", "Open connections")
IN_FLIGHT_BYTES = Metric("silt_in_flight_bytes", "Memory of requests under way")
KAFKA_REQUESTS = Metric(
    "silt_kafka_requests_total", "Requests of Kafka's protocol, by Kafka's name of the API", ("api",)
)
KAFKA_ERRORS = Metric(
    "silt_kafka_errors_total",
    "Answers of Kafka's protocol with an error, by Kafka's name of it; of the API `none`, connections that were ended "
    "for what came by them",
    ("api", "error"),
)
KAFKA_MISPLACED_BATCHES = Metric(
    "silt_kafka_misplaced_batches_total",
    "Batches of Kafka's producers whose first key belongs to another partition by the topic's partitioner",
    ("topic",),
)
KAFKA_SESSION_PARTITIONS = Metric(
    "silt_kafka_session_partitions", "Partitions in fetch sessions of Kafka's consumers, of all connections"
)
TLS_NOT_AFTER = Metric(
    "silt_tls_not_after_timestamp_seconds", "When the certificate in use ends, in seconds since 1970"
)
DENIED = Metric("silt_denied_total", "Requests refused for who sent them", ("reason",))
RATE_LIMITED = Metric("silt_rate_limited_total", "Requests refused for a quota, by whose it is", ("scope",))
RELOADS = Metric(
    "silt_reloads_total", "Times that SIGHUP had the files of settings and TLS read again, by outcome", ("outcome",)
)
AUDIT_FAILURES = Metric(
    "silt_audit_failures_total", "Writes of the audit log that failed, and records that it had no room for"
)

# Consumers.
READ_RECORDS = Metric("silt_read_records_total", "Records that were read, by consumers and streams", ("topic",))
READ_BYTES = Metric("silt_read_bytes_total", "Bytes of the records that were read, in memory", ("topic",))
GROUPS = Metric("silt_groups", "Groups this server has met")
GROUP_MEMBERS = Metric("silt_group_members", "Members of those groups")
GROUP_REBALANCES = Metric(
    "silt_group_rebalances_total", "Assignments that changed what a member reads, by what had changed", ("reason",)
)
GROUP_EVICTIONS = Metric("silt_group_evictions_total", "Members that were expired or fenced, by why", ("reason",))
GROUP_COMMITS = Metric("silt_group_commits_total", "Calls that commit offsets of a group", ("outcome",))
GROUP_LAG_RECORDS = Metric(
    "silt_group_lag_records", "Records a group is behind, at most", ("group", "topic", "partition")
)
GROUP_LAG_SECONDS = Metric(
    "silt_group_lag_seconds", "Age of the first record that a group has not read", ("group", "topic", "partition")
)
GROUP_LAGS_LEFT_OUT = Metric(
    "silt_group_lags_left_out",
    "Partitions of groups whose lag is not shown: there are more than a scrape should have",
)
ATTEMPTS = Metric("silt_attempts_total", "Attempts at records that were counted", ("topic",))
DEAD_LETTERS = Metric("silt_dead_letters_total", "Records that became dead letters", ("topic",))
STREAMS = Metric("silt_streams", "Open event streams, WebSockets, searches and queries")
STREAM_RECORDS = Metric("silt_stream_records_total", "Records sent to streams, WebSockets and searches", ("kind",))
STREAMS_TOO_SLOW = Metric(
    "silt_streams_too_slow_total", "Streams, WebSockets and searches whose client did not take what was sent", ("kind",)
)
LIVE_VIEWERS = Metric("silt_live_viewers", "Pages that watch the server by `/v1/events`")
LIVE_SNAPSHOTS = Metric("silt_live_snapshots_total", "Snapshots made for those pages; none while there are none")
LIVE_MISSED = Metric("silt_live_missed_total", "Snapshots that were replaced before a page that reads slowly took them")
LIVE_ENCODED = Metric("silt_live_encoded_total", "Events encoded of them: each once for all with the same rights")

# Jobs.
JOB_RUNS = Metric(
    "silt_job_runs_total", "Runs of jobs that were told to this server, but for dry runs", ("name", "outcome")
)
JOB_SUCCESS = Metric(
    "silt_job_last_success_timestamp_seconds",
    "When the last run of a job that succeeded ended, in seconds since 1970",
    ("name",),
)
JOB_SECONDS = Metric(
    "silt_job_last_run_seconds", "How long the last run of a job took that was not interrupted", ("name",)
)

# Several nodes.
CLUSTER_NODES = Metric("silt_cluster_nodes", "Nodes in the newest view, by state", ("state",))
TOPICS_OWNED = Metric("silt_topics_owned", "Topics that this node takes records for")
TOPICS_WAITING = Metric(
    "silt_topics_waiting",
    "Topics that the view gives this node, and that wait for another node's records or an operator",
)
TOPICS_TAKEN = Metric(
    "silt_topics_taken_total",
    "Topics that this node has claimed, by what let it: released (handed over, or nobody's yet), own (its own disk has "
    "all of it), shipped (the owner was lost), abandoned (an operator gave up what the owner had)",
    ("rule",),
)
TOPICS_LET_GO = Metric(
    "silt_topics_let_go_total",
    "Topics that this node owned and another has: released (handed over), lost (taken while it was gone)",
    ("outcome",),
)
CLUSTER_VIEW = Metric("silt_cluster_view", "The number of the newest view that the node knows")
CLUSTER_CONTROLLER = Metric("silt_cluster_controller", "1 on the node that plans for all")
CLUSTER_SILENT_SECONDS = Metric(
    "silt_cluster_silent_seconds",
    "Seconds since the node last beat and asked for a view; after a lease others take its topics",
)
CLUSTER_UNREACHABLE = Metric(
    "silt_cluster_unreachable",
    "Other nodes that did not answer when this one called them last, or whose address is not proven",
)
PROXIED = Metric("silt_requests_proxied_total", "Requests that another node has answered", ("topic",))

CATALOGUE: tuple[Metric, ...] = tuple(value for value in globals().values() if isinstance(value, Metric))
"""Every metric, in the order they are written in."""
