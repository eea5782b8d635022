"""Names that outlive a process: paths, topics, headers, variables.

A name here is part of the stored format or of the contract with users. Changing one needs a migration. Those in the log
of a Delta table are in `delta_names.py`, columns in `columns.py`, producers that no user chose in `producer_names.py`,
keys of Redis in `redis/keys.py`, and those in a backup, which jobs alone know, in `pipelines/backup_names.py`.
"""

import re
from urllib.parse import quote, unquote

# Names that users choose.
NAME_CHARS_MAX = 196
NAME_PATTERN = re.compile(r"[a-zA-Z0-9._-]{1,196}")
SYSTEM_PREFIX = "_"
DEAD_LETTER_SUFFIX = ".dlq"
TOPIC_CHARS_MAX = NAME_CHARS_MAX + 2 * len(DEAD_LETTER_SUFFIX)
"""No topic has a longer name. What a request names may be as long as its head."""


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a topic, group, member, producer or client; None when it can."""
    if name in (".", ".."):
        return f"the name {name!r} is reserved by file systems"
    if not NAME_PATTERN.fullmatch(name):
        too_many = f"; it has {len(name)}" if len(name) > NAME_CHARS_MAX else ""
        return (
            f"the name {name[:80]!r} must have 1 to {NAME_CHARS_MAX} characters out of "
            f"letters, digits, '.', '_' and '-'{too_many}"
        )
    return None


TOPIC_PATTERN = re.compile(rf"{NAME_PATTERN.pattern}(?:{re.escape(DEAD_LETTER_SUFFIX)}){{0,2}}")
"""Any name an existing topic may have: topics of dead letters have the longest, with their suffix."""


def readable_topic_problem(name: str) -> str | None:
    """Why there can be no topic called `name`, a user's or the system's; None when there can."""
    return None if name not in (".", "..") and TOPIC_PATTERN.fullmatch(name) else name_problem(name)


def kafka_group(group_id: str) -> str:
    """Names the group of a client of Kafka, whose id may be any text: what no name has here is percent-encoded."""
    if group_id in (".", ".."):
        return group_id.replace(".", "%2E")
    return quote(group_id, safe="").replace("~", "%7E")


def kafka_group_id(group: str) -> str:
    """The id by which clients of Kafka know a group."""
    return unquote(group)


def topic_name_problem(name: str) -> str | None:
    """Why a user cannot create a topic called `name`; None when they can."""
    problem = name_problem(name)
    if problem is not None:
        return problem
    if is_system_topic(name):
        return f"the name {name!r} is the system's: names that start with '_' or end with '.dlq' are kept for it"
    return None


def is_system_topic(name: str) -> bool:
    """Whether only the server makes, changes and fills the topic; everybody may read it."""
    return name.startswith(SYSTEM_PREFIX) or name.endswith(DEAD_LETTER_SUFFIX)


OFFSETS_TOPIC = "_offsets"
"""Committed offsets of groups, so that they outlive Redis."""


JOBS_TOPIC = "_jobs"
"""Runs of jobs: what each did."""


AUDIT_TOPIC = "_audit"
"""The audit log: who changed what, and to whom it was refused."""


METRICS_TOPIC = "_metrics"
"""What nodes measured: each minute in partition 0, each hour in partition 1; keys are nodes."""


def offset_key(group: str, topic_id: str, partition: int) -> bytes:
    """The key of a record in OFFSETS_TOPIC."""
    return f"{group}/{topic_id}/{partition}".encode()


def deleted_group_key(group: str) -> bytes:
    """The key of a record in OFFSETS_TOPIC which says that the group was deleted: that of an offset in no topic."""
    return offset_key(group, "", -1)


def dead_letter_topic(topic: str) -> str:
    """Names the topic of the records of `topic` that were given up on."""
    return topic + DEAD_LETTER_SUFFIX


# The data dir.
LOCK_FILE = "lock"
SCHEDULE_HOLDER_FILE = "schedule-holder"
SETTINGS_FILE = "settings.toml"
"""What was changed of the settings while a server ran."""
WAL_FOLDER = "wal"
STRANDED_FOLDER = "stranded"
SECRET_FILE = "secret"  # noqa: S105 (the name of a file)
ACCESS_SEEN_FILE = "access-seen"
"""The newest version of the access document that was seen from this data directory."""
ACCESS_HELD_FILE = "access-held"
"""The keys that were revoked here and are still in the access document, because it could not be written."""
SESSIONS_ENDED_FILE = "sessions-ended"
"""The sessions of the page that were ended here and are not in the access document yet."""
AUDIT_SEEN_FILE = "audit-seen"
"""The last record of the audit log that was written from this data directory."""
AUDIT_OWED_FILE = "audit-owed"
"""What the audit log is to have and could not be given yet."""
NODE_FILE = "node"
"""The name of the node of a cluster whose data directory this is."""
SOCKET_FILE = "silt.sock"
LAKE_FOLDER = "lake"
VALKEY_FOLDER = "valkey"
VALKEY_SOCKET = "valkey.sock"
VALKEY_PID_FILE = "valkey.pid"
VALKEY_LOG_FILE = "valkey.log"
VALKEY_LOCK = "valkey.lock"
VALKEY_SERVER_LOCK = "server.lock"
WAL_SUFFIX = ".wal"
WAL_SPARE_SUFFIX = ".spare"
"""Files in the WAL folder that are no segment: made ahead, or used before."""


STRANDED_SUFFIX = ".arrow"
STRANDED_NOTE_SUFFIX = ".published"
"""The file beside stranded records that says to which topic they are being published, or were."""


def stranded_file(topic: str, topic_id: str, partition: int, epoch: int, first_offset: int) -> str:
    """Below STRANDED_FOLDER or SHARED_STRANDED_FOLDER. Within an epoch an offset names one record, also in a copy."""
    return f"{topic}/{topic_id}/{partition}-{epoch}-{first_offset}{STRANDED_SUFFIX}"


def segment_file(segment: int) -> str:
    return f"{segment:020d}{WAL_SUFFIX}"


# The root in the object store; paths are relative to it.
TOPICS_FOLDER = "topics"
CLUSTER_FOLDER = "cluster"
CLUSTER_ID_OBJECT = "cluster/id"
CLAIMED_OBJECT = "cluster/claimed"
"""The object that says which start of a server claimed partitions last: other servers look at it."""
STAGING_FOLDER = "staging"
"""Batches that Spark writers have still to publish: a folder for each writer."""
STAGED_FILES = "files"
STAGED_BATCHES = "batches"
SCHEDULE_FOLDER = "cluster/schedule"
ACCESS_FOLDER = "cluster/access"
PRIVATE_FOLDER = "cluster/private"
"""Folders of running processes, on a local root only."""
REPLAY_FOLDER = "cluster/replay"
"""The folder that says what runs of `silt replay` are to do, and how far they are."""
PROBE_FOLDER = "cluster/probe"
SHARED_STRANDED_FOLDER = "cluster/stranded"
"""What nodes of a cluster have set aside; below it as in STRANDED_FOLDER."""
VIEWS_FOLDER = "cluster/views"
NODES_FOLDER = "cluster/nodes"
JOURNALS_FOLDER = "wal"
JOURNAL_ROOT_ID_OBJECT = "cluster/journal-root"
"""The id of a place of journals that is not the root, in that place."""
PARTITION_COLUMN = "partition"
REWRITE_PREFIX = "rewrite-"
STATE_FOLDER = "_state"
DELTA_LOG_FOLDER = "_delta_log"
SET_ASIDE_FOLDER = "_set_aside"
"""The folder, beside a topic's log, of log files that a power cut left half-written."""
CLEANED_FOLDER = "_cleaned"
"""The folder, beside a topic's log, that says up to where it was cleaned."""


def probe_object(race: str) -> str:
    """What the puts of a race are for, before a node joins; gone afterwards."""
    return f"{PROBE_FOLDER}/{race}"


def view_object(number: int) -> str:
    """A view: which nodes there are, and what each is to own; the highest number holds."""
    return f"{VIEWS_FOLDER}/{number:020d}"


def beat_object(node: str) -> str:
    """Says that a node lives and how far it is; that node alone writes it, over and over."""
    return f"{NODES_FOLDER}/{node}"


def journal_folder(node: str, journal: str) -> str:
    """The folder of the journal that one start of a node opened."""
    return f"{JOURNALS_FOLDER}/{node}/{journal}"


def journal_object(node: str, journal: str, number: int) -> str:
    """A part of a journal, or the seal that ends it; written only where none is."""
    return f"{journal_folder(node, journal)}/{number:020d}"


def schedule_object(number: int) -> str:
    """The right to run the schedule, for as long as it is the one with the highest number."""
    return f"{SCHEDULE_FOLDER}/{number:020d}"


def access_object(number: int) -> str:
    """A version of the access document: who may do what, sealed."""
    return f"{ACCESS_FOLDER}/{number:020d}"


def topic_path(topic: str) -> str:
    return f"{TOPICS_FOLDER}/{topic}"


def cleaned_folder(topic: str) -> str:
    return f"{topic_path(topic)}/{CLEANED_FOLDER}"


def cleaned_object(topic: str, version: int) -> str:
    """Says that entries of the log below `version` are deleted, or about to be; of several the highest holds."""
    return f"{cleaned_folder(topic)}/{version:020d}"


def partition_folder(partition: int) -> str:
    """Relative to the topic's path."""
    return f"{PARTITION_COLUMN}={partition}"


def rewrite_folder(run: str) -> str:
    """Relative to the topic's path; one per run, so that two runs never share an output folder."""
    return f"{REWRITE_PREFIX}{run}"


def replay_plan_object(run: str) -> str:
    return f"{REPLAY_FOLDER}/{run}/plan"


def replay_progress_object(run: str) -> str:
    return f"{REPLAY_FOLDER}/{run}/progress"


def state_folder(topic_id: str) -> str:
    """Relative to the topic's path."""
    return f"{STATE_FOLDER}/{topic_id}"


def state_object(topic_id: str, partition: int, offset: int) -> str:
    """Producer state that covers every record below `offset`; relative to the topic's path."""
    return f"{state_folder(topic_id)}/{partition}/{offset:020d}"


def claims_object(topic_id: str, epoch: int) -> str:
    """Claimed producer epochs, as the owner of that epoch knew them; relative to the topic's path."""
    return f"{STATE_FOLDER}/{topic_id}/claims/{epoch:020d}"


# HTTP.
HEADER_REQUEST_ID = "Silt-Request-Id"
HEADER_GIVEN_REQUEST_ID = "X-Request-Id"
"""Proxies and other callers give a request its id by this header."""
HEADER_PRODUCER_ID = "Silt-Producer-Id"
HEADER_PRODUCER_EPOCH = "Silt-Producer-Epoch"
HEADER_SEQUENCE = "Silt-Sequence"
HEADER_SEQUENCE_MODE = "Silt-Sequence-Mode"
HEADER_IDEMPOTENCY_KEY = "Idempotency-Key"
HEADER_PARTITION_COUNT = "Silt-Partition-Count"
HEADER_PARTITIONER = "Silt-Partitioner"
HEADER_TIMESTAMPS = "Silt-Timestamps"
TIMESTAMPS_STORED = "stored"
"""Records that were stored before move: of their times only the topic's own limits hold, not the defaults."""
HEADER_RECORD_PREFIX = "Silt-Header-"
HEADER_NEXT_OFFSET = "Silt-Next-Offset"
HEADER_LOG_START_OFFSET = "Silt-Log-Start-Offset"
HEADER_TABLE_OFFSET = "Silt-Table-Offset"
HEADER_HIGH_WATERMARK = "Silt-High-Watermark"
HEADER_VIEW = "Silt-View"
"""The number of the newest view that the answering node knows."""
HEADER_ROUTE = "Silt-Route"
ROUTE_DIRECT = "direct"
"""The client goes to a topic's owner by itself: it is told who that is, instead of being answered by way of another."""
HEADER_HOP = "Silt-Hop"
"""Proves that one node makes the request of another, and says for whom."""
HEADER_CSRF = "Silt-Csrf"
"""Sent by the page with what changes something: no form, and no page of another origin, can send it."""
LOGIN_COOKIE = "silt_login"
"""A login by an identity provider that has begun."""
SESSION_COOKIE = "silt_session"
"""Over TLS a prefix that browsers hold to comes before it; without, the server's port behind it."""
HEADER_TRACEPARENT = "traceparent"
HEADER_TRACESTATE = "tracestate"
"""The span that a request or a record belongs to (W3C Trace Context, https://www.w3.org/TR/trace-context/)."""
RECORD_HEADER_TOPIC = "silt.topic"
RECORD_HEADER_PARTITION = "silt.partition"
RECORD_HEADER_OFFSET = "silt.offset"
RECORD_HEADER_TIMESTAMP = "silt.timestamp"
RECORD_HEADER_GROUP = "silt.group"
RECORD_HEADER_ATTEMPTS = "silt.attempts"
RECORD_HEADER_ERROR = "silt.error"
RECORD_HEADER_FAILED_AT = "silt.failed_at"
"""Headers of a dead letter, in this order behind its own."""
RECORD_HEADER_DISCARDED = "silt.discarded"
RECORD_HEADER_REASON = "silt.reason"
"""Headers of a marker among dead letters, RECORD_HEADER_PARTITION between them: which offsets are hidden, and why."""
RECORD_HEADER_FORGOTTEN = "silt.forgotten"
"""The field of a tombstone in OFFSETS_TOPIC with the highest version of what it forgets."""
RECORD_HEADER_REPLAY_RUN = "silt.replay.run"
RECORD_HEADER_REPLAY_TOPIC = "silt.replay.topic"
RECORD_HEADER_REPLAY_PARTITION = "silt.replay.partition"
RECORD_HEADER_REPLAY_OFFSET = "silt.replay.offset"
RECORD_HEADER_REPLAY_TIMESTAMP = "silt.replay.timestamp"
"""Headers of a record that `silt replay` published, in this order behind its own: which run, and where it was."""
MEDIA_JSON = "application/json"
MEDIA_NDJSON = "application/x-ndjson"
MEDIA_BYTES = "application/octet-stream"
MEDIA_ARROW = "application/vnd.apache.arrow.stream"
MEDIA_PROBLEM = "application/problem+json"
MEDIA_EVENTS = "text/event-stream"
SUBPROTOCOL = "silt.v1"
"""The protocol spoken over a WebSocket."""
TOKEN_SUBPROTOCOL = "silt.bearer."  # noqa: S105 (how a subprotocol begins)
"""Begins the subprotocol that is no protocol, but the token of a page, which cannot set header fields."""
ARROW_METADATA_KEY = "silt"
"""Schema metadata of an Arrow reply to POST /v1/fetch: JSON of its `partitions`."""


# Environment and files.
ENV_PREFIX = "SILT_"
ENV_CONFIG = "SILT_CONFIG"
ENV_URL = "SILT_URL"
ENV_RUN_ID = "SILT_RUN_ID"
"""Set by a schedule: the run that a job is."""
ENV_RUN_TRIGGER = "SILT_RUN_TRIGGER"
"""Set by a schedule: `schedule`, or `hand` where somebody asked for the run."""
ENV_S3_ENDPOINT = "SILT_S3_ENDPOINT"
ENV_S3_REGION = "SILT_S3_REGION"
ENV_S3_SSE = "SILT_S3_SSE"
ENV_S3_KMS_KEY_ID = "SILT_S3_KMS_KEY_ID"
ENV_TOKEN = "SILT_TOKEN"  # noqa: S105 (the name of a variable)
ENV_TOKEN_FILE = "SILT_TOKEN_FILE"  # noqa: S105
ENV_CA = "SILT_CA"
ENV_CERT = "SILT_CERT"
ENV_TRACES = "SILT_TRACES"
ENV_OF_CLIENTS = (
    ENV_URL,
    ENV_TOKEN,
    ENV_TOKEN_FILE,
    ENV_CA,
    ENV_CERT,
    ENV_S3_ENDPOINT,
    ENV_S3_REGION,
    ENV_S3_SSE,
    ENV_S3_KMS_KEY_ID,
    ENV_RUN_ID,
    ENV_RUN_TRIGGER,
    ENV_TRACES,
)
"""The variables that a client reads; a server has one for each setting, and ENV_CONFIG."""
CONFIG_FILE = "siltlog.toml"
CONTEXTS_FILE = "siltlog/contexts.toml"
"""The servers that a user logged in to, with tokens; it lies in the folder of the user's settings."""
DEFAULT_URL = "http://127.0.0.1:7070"
SERVER_LOG_FILE = "server.log"
"""The standard error of a server that was started as a child process, in its data directory."""
DEMO_MARKER_FILE = "made-by-silt-demo"
"""Tells the demo that it may empty the data directory it is in."""
