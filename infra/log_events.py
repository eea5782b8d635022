"""The catalogue of what the server's log tells: for each sentence a name that alerts can stand on, and what mends it.

Whoever logs writes the sentence, and no other; docs/logs.md is made of this.
"""

from typing import NamedTuple


class LogEvent(NamedTuple):
    name: str
    """Never changed, and never given to another."""
    sentence: str
    """What whoever logs it writes."""
    action: str = ""
    """What somebody on call does about it; empty where there is nothing to do."""


LIBRARY = "library"
"""The name of what libraries log."""
UNCAUGHT = "uncaught"
"""The name of an error that nobody caught."""
UNNAMED = "unnamed"
"""The name of a sentence that is not in the catalogue: no part of the server writes one."""

_DEFECT = "report it as a defect of Siltlog, with this line"
_STORE = "look whether the object store answers: `silt doctor`"
_DISK = "look at the disk of the data directory: `df`, `silt doctor`"

EVENTS: tuple[LogEvent, ...] = (
    # Requests.
    LogEvent("request", "request"),
    LogEvent("requests_left_out", "requests left out of the access log", "find who storms: `silt_http_replies_total`"),
    LogEvent("request_failed", "request failed", _DEFECT),
    LogEvent("web_socket_failed", "a WebSocket failed", _DEFECT),
    LogEvent("connections_unwatched", "looking after connections failed", _DEFECT),
    LogEvent("handshakes_failed", "handshakes of TLS failed"),
    LogEvent("handshake_broke", "a handshake failed", _DEFECT),
    # The node.
    LogEvent("draining", "draining"),
    LogEvent("live_broke", "no snapshot for those who watch the server; the next follows", _DEFECT),
    LogEvent("drained", "drained"),
    LogEvent(
        "publishes_refused", "publishes are refused: an operator drains the server", "silt drain --end takes it back"
    ),
    LogEvent("settled", "settled"),
    LogEvent("profiled", "the server is profiled"),
    LogEvent(
        "supervisor_unreached",
        "the supervisor cannot be told",
        "look whether `NotifyAccess=` of the unit lets the server's process tell, and whether NOTIFY_SOCKET is there",
    ),
    LogEvent("publishes_taken", "publishes are taken again"),
    LogEvent(
        "drain_hurried",
        "told to hurry; the write-ahead log keeps what is not for the next start",
        "start the server again on the same data directory",
    ),
    LogEvent(
        "drain_incomplete",
        "not everything is in the tables; the write-ahead log keeps what is not for the next start",
        "start the server again on the same data directory, or give a stop more time: SILT_DRAIN_MS",
    ),
    LogEvent("exposed", "other machines reach the server without protection", "set up TLS and SILT_AUTH=on"),
    LogEvent(
        "connections_cut",
        "fewer connections than SILT_CONNECTIONS_MAX: the limit of open files (ulimit -n) allows no more",
        "raise the limit of open files of the process: LimitNOFILE=, ulimit -n",
    ),
    LogEvent("metrics_port", "metrics have a port of their own, without authentication"),
    LogEvent("grpc", "gRPC is served"),
    LogEvent(
        "grpc_not_reached",
        "a connection could not be passed on to gRPC",
        "look at the limit of open files, and at the room in the folder for temporary files",
    ),
    LogEvent("grpc_failed", "a call of gRPC failed"),
    LogEvent("kafka", "Kafka's protocol is served"),
    LogEvent("kafka_failed", "a request of Kafka failed", _DEFECT),
    LogEvent("no_local_socket", "there is no socket in the data directory"),
    LogEvent("wal_failed", "the write-ahead log failed; stopping", _DISK),
    LogEvent("wal_note", "write-ahead log"),
    LogEvent(
        "wal_torn",
        "the last group commit of the write-ahead log is not whole and was cut off: a power cut tears one like that, "
        "which was not acknowledged; if the disk has damaged it since, it may have been",
        "after a power cut nothing; otherwise have the disk looked at",
    ),
    LogEvent(
        "traces_dropped", "traces could not all be sent; the log is as ever", "look at OTEL_EXPORTER_OTLP_ENDPOINT"
    ),
    # Settings.
    LogEvent("settings_changed", "settings were changed"),
    LogEvent("settings_read", "the settings were read again"),
    LogEvent(
        "settings_refused", "the settings are not read again, those before hold", "silt config check, then SIGHUP again"
    ),
    LogEvent("setting_not_taken", "a changed setting was not taken", _DEFECT),
    LogEvent("schedule_changed", "the schedule is another"),
    # TLS.
    LogEvent("tls_read", "the files of TLS were read again"),
    LogEvent("tls_clients_read", "the files of clients' certificates were read again, for the certificate before"),
    LogEvent(
        "tls_refused",
        "the changed certificate is not used, the one before is",
        "mend the files that SILT_TLS_CERT and SILT_TLS_KEY name",
    ),
    LogEvent(
        "tls_peer_refused",
        "the changed files of TLS are not used for other nodes",
        "mend the files that SILT_TLS_CERT, SILT_TLS_KEY and SILT_TLS_PEER_CA name",
    ),
    LogEvent(
        "tls_connections_closed",
        "connections of certificates that were revoked, have ended or may be of an authority that is gone were closed",
    ),
    LogEvent("tls_unwatched", "looking after the certificate failed", _DEFECT),
    # Access.
    LogEvent(
        "secret_made",
        "the secret of this cluster was made: keep a copy of it, for without it no key and no grant in the root "
        "counts, and every other node needs it (SILT_SECRET_FILE)",
        "keep a copy of the file that `path` names",
    ),
    LogEvent(
        "access_unadministered",
        "nobody administers access: there is no key with the role admin that counts, and no other administrator",
        "`silt access key create NAME --role admin` as the user of the server, on its machine",
    ),
    LogEvent("access_followed", "the access document is followed again"),
    LogEvent("access_stale", "the access document cannot be looked at; the last one holds", _STORE),
    LogEvent("access_unwatched", "following the access document failed", _DEFECT),
    LogEvent("access_unsealed", "an access document does not count", "give every node the same SILT_SECRET_FILE"),
    LogEvent("access_seen_unkept", "which access document was seen cannot be kept", _DISK),
    LogEvent("revocations_unkept", "revoked keys cannot be kept in the data directory", _DISK),
    LogEvent("sessions_unkept", "ended sessions cannot be kept in the data directory", _DISK),
    LogEvent("provider_answers", "the identity provider answers again"),
    LogEvent("provider_away", "the identity provider does not answer", "look whether SILT_OIDC_ISSUER can be reached"),
    LogEvent(
        "provider_keys_old",
        "keys of the identity provider are too old to count",
        "look whether SILT_OIDC_ISSUER can be reached: tokens are refused",
    ),
    LogEvent("audit_anchor", "anchor of the audit log"),
    LogEvent("audit_failing", "the audit log cannot be written; changes are refused", "see the topic `_audit`"),
    LogEvent(
        "audit_broken",
        "the audit log lacks what this node wrote, or has other records in its place: see `silt access log --verify`",
        "silt access log --verify",
    ),
    LogEvent("audit_debt_unkept", "what the audit log is owed cannot be kept", _DISK),
    # Topics.
    LogEvent("topic_created", "topic created"),
    LogEvent("topic_changed", "topic changed"),
    LogEvent("topic_deleted", "topic deleted"),
    LogEvent("topic_unanswered", "growing a topic: no answer yet", _STORE),
    LogEvent("records_deleted", "records deleted"),
    LogEvent("dead_letters_stay", "dead letters of a deleted topic stay", "delete the topic that `topic` names"),
    LogEvent(
        "discarded_letters_stay", "discarded dead letters are hidden, and not deleted yet", "do what `reason` says"
    ),
    LogEvent("dead_letters_narrow", "dead letters of a topic have fewer partitions until the next one comes"),
    LogEvent("producer_state_stays", "producer state of a deleted topic stays"),
    # Flush and tables.
    LogEvent("flushed", "flushed"),
    LogEvent("flush_recovered", "flushed again"),
    LogEvent("flush_failing", "flush failed; will try again", _STORE),
    LogEvent("flush_broke", "flush failed", _DEFECT),
    LogEvent("flush_unplanned", "deciding what to flush failed", _DEFECT),
    LogEvent("segments_recycled", "segments recycled"),
    LogEvent("records_carried", "records carried forward in the write-ahead log"),
    LogEvent("carry_failing", "records cannot be carried forward; will try again", _DISK),
    LogEvent("topic_fenced", "topic fenced", "stop the other server that has this topic, then start this one again"),
    LogEvent("files_usual", "files come as usual again: the table is not crowded any more"),
    LogEvent(
        "files_seldom",
        "the table is crowded, so its files come more seldom; `silt jobs` says how compaction went",
        "silt jobs",
    ),
    LogEvent("epochs_late", "claimed epochs are not beside the table yet"),
    LogEvent("claims_unwatched", "looking whether another server has claimed failed", _DEFECT),
    LogEvent("refresh_failed", "refresh failed", _STORE),
    LogEvent("not_released", "not released: only this data dir may go on", "start again on this data directory"),
    LogEvent("takeover_late", "a server that was taken over from hears of it some seconds later"),
    LogEvent("offsets_jumped", "offsets were jumped"),
    LogEvent(
        "records_stranded",
        "acknowledged records never came into the table, because another went on with it: they are set aside, and "
        "`silt stranded publish` publishes them anew",
        "silt stranded list; silt stranded publish",
    ),
    # The journal.
    LogEvent("journal_opened", "journal opened"),
    LogEvent("journal_recovered", "the journal reaches the object store again"),
    LogEvent("journal_failing", "the journal does not reach the object store", _STORE),
    LogEvent("journal_sealed", "the journal was sealed: another took over"),
    # The cluster.
    LogEvent("cluster_joined", "joined the cluster"),
    LogEvent("cluster_trouble", "cluster: trouble", "silt cluster status"),
    LogEvent("cluster_trouble_over", "cluster: over"),
    LogEvent(
        "cluster_lost",
        "this node is no member of the cluster any more",
        "look which process has its name, and start this one again: silt node list",
    ),
    LogEvent("node_unreachable", "a node of the cluster cannot be reached", "silt node list"),
    LogEvent(
        "auth_disagrees", "a node of the cluster has another SILT_AUTH", "set it alike on all nodes: silt config show"
    ),
    LogEvent("clock_disagrees", "a node of the cluster has another time", "timedatectl set-ntp true"),
    LogEvent("topic_taken", "topic taken"),
    LogEvent("topic_let_go", "topic let go"),
    LogEvent("topic_not_claimed", "topic not claimed yet"),
    LogEvent("topic_unseen", "a topic of another node cannot be looked at", _STORE),
    LogEvent("ownership_retried", "what is to become of a topic will be tried again"),
    LogEvent("ownership_broke", "what is to become of a topic failed", _DEFECT),
    LogEvent("shipped_taken", "took over what was shipped"),
    LogEvent("chain_uncut", "a topic's chain is not cut yet"),
    LogEvent("remote_table_late", "the table of a topic cannot be read now"),
    LogEvent("remote_table_failing", "the table of a topic cannot be read", _STORE),
    LogEvent("remote_topics_broke", "looking at the topics of the cluster failed", _DEFECT),
    # Groups.
    LogEvent("groups_recovered", "groups are available again"),
    LogEvent("groups_away", "groups are not available", "look whether the Redis of SILT_REDIS_URL answers"),
    LogEvent("group_failing", "a group could not be looked after", "silt group describe GROUP"),
    LogEvent("groups_broke", "a look at the groups failed; the next follows", _DEFECT),
    LogEvent("offsets_read", "offsets of groups were read"),
    LogEvent("offsets_unkept", "offsets of groups are not kept beside Redis for now", _STORE),
    LogEvent("offsets_broke", "a look at the offsets of groups failed; the next follows", _DEFECT),
    LogEvent(
        "group_beyond_end",
        "a group was beyond the end of a partition, and goes on within it",
        "look who committed such an offset: a mirror that is ahead of its records, or a log that was abandoned",
    ),
    LogEvent(
        "group_of_another_log",
        "a group went on in another log, and is refused",
        "give the server a Redis of its own, or empty this one where the other log is no more",
    ),
    LogEvent("group_forgotten", "a group that nobody used was forgotten"),
    LogEvent("member_stays", "a member could not leave"),
    LogEvent("valkey_restarted", "the embedded Valkey had died and was started again", "look why: memory, the kernel"),
    LogEvent("valkey_away", "the embedded Valkey died and does not start", "silt doctor; or set SILT_REDIS_URL"),
    # Jobs.
    LogEvent("schedule_running", "running the schedule"),
    LogEvent("schedule_waits", "the schedule waits: its lease cannot be read or written", _STORE),
    LogEvent("schedule_lost", "the right to run the schedule is gone; its jobs end"),
    LogEvent("schedule_kept", "the right to run the schedule could not be given back"),
    LogEvent("schedule_failing", "the schedule failed and goes on", _DEFECT),
    LogEvent("job_begins", "job begins"),
    LogEvent("job_ended", "job ended"),
    LogEvent("job_stopped", "job was stopped; it is due again"),
    LogEvent("asked_job_stopped", "job was stopped"),
    LogEvent("job_unwanted", "job was stopped, as it was asked"),
    LogEvent("job_not_started", "a job could not be started", "silt doctor"),
    LogEvent("job_not_run", "a job of the schedule is not run", "do what `reason` says"),
    LogEvent("job_says", "job says"),
    LogEvent("job_said_more", "job said more"),
    LogEvent("job_result", "job result"),
    LogEvent("compaction_hurried", "a table became crowded: compaction begins anew and gives way less"),
    LogEvent("run_unrecorded", "a run is not in _jobs"),
    LogEvent("runs_unread", "runs of jobs before this start are not in the metrics"),
    # The history of metrics.
    LogEvent("history_read", "the history of the metrics before this start was read"),
    LogEvent(
        "history_unread",
        "the history of the metrics before this start cannot be read now; it is tried again",
        _STORE,
    ),
    LogEvent(
        "history_unwritten",
        "the history of the metrics is not recorded for now; this node keeps it in memory",
        _STORE,
    ),
    LogEvent("history_written", "the history of the metrics is recorded again"),
    LogEvent("history_failed", "the history of the metrics failed; it is tried again", _DEFECT),
)
BY_SENTENCE = {event.sentence: event for event in EVENTS}
assert len(BY_SENTENCE) == len(EVENTS) == len({event.name for event in EVENTS})
