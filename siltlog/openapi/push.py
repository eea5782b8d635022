"""Event streams and WebSockets: what the document says of them."""

from siltlog.consumers.groups.messages import TIMEOUT_MS_MAX, TIMEOUT_MS_MIN
from siltlog.consumers.push.sockets import ATTEMPTS_MAX, ATTEMPTS_MAX_MAX, RESETS
from siltlog.consumers.push.tail import PLACES
from siltlog.consumers.reading.reader import ISOLATIONS
from siltlog.consumers.reading.render import VALUES
from siltlog.infra import names
from siltlog.openapi.operation import (
    GROUP,
    NAME,
    TEXT,
    TIME,
    TOPIC,
    Content,
    Operation,
    Reply,
    choice,
    header,
    query,
    whole,
)

_VALUES = query(
    "values",
    "How values are written: `text`, or base64 where they are none; `json`: embedded where they are JSON.",
    choice(*VALUES, default="text"),
)
_TAIL = (
    query("partitions", "Only these, such as `0,1`; at most 256. Left out: all, also those that the topic is given."),
    query("offset", "Where to begin.", choice(*PLACES, default="latest")),
    query("timestamp", "Instead of `offset`: the first record at or after this time.", TIME),
    query(
        "cursor", "Instead of `offset`: where an earlier stream was. It may repeat its last records, and skips none."
    ),
    query("key", "Only records with this key."),
    query("contains", "Only records whose value contains this text."),
    _VALUES,
    query("isolation", "`table`: only what is in the Delta table.", choice(*ISOLATIONS, default="wal")),
    query("topic_id", "Refused as unknown when the topic of that name is another than this."),
)
_ERRORS = (
    *("unknown_topic", "unknown_partition", "offset_out_of_range", "corrupt_data", "invalid_request"),
    *("topic_unavailable", "store_denied", "shutting_down"),
)
_EVENTS = """\
retry: 1000

id: AQ

event: record
data: {"partition":0,"offset":0,"timestamp":"2026-11-21T07:36:00.123456Z","key":null,"value":"hello","headers":[]}
id: AQ

"""
_SOCKET = Reply(f"A WebSocket, subprotocol `{names.SUBPROTOCOL}`: JSON texts, each with a `type`.")

OPERATIONS = (
    Operation(
        "GET",
        "/v1/topics/{topic}/tail",
        "tailTopic",
        "Push",
        "A topic as it comes, as Server-Sent Events",
        "Events `record`, and `problem` before a close. The first event is an `id:` alone; the last of each write has "
        "one, and a browser that comes back sends it as `Last-Event-ID`. A comment comes every 15 seconds. To "
        f"`Accept: {names.MEDIA_EVENTS}` what passes by itself (429, 503) is 200 with `retry:` and an end.",
        {200: Reply("The stream.", {names.MEDIA_EVENTS: Content(TEXT, _EVENTS)})},
        (*(TOPIC, *_TAIL), header("Last-Event-ID", "A cursor; it wins over every place in the query.")),
        errors=(*_ERRORS, "not_acceptable"),
    ),
    Operation(
        "GET",
        "/v1/topics/{topic}/ws",
        "openTopicSocket",
        "Push",
        "A topic as it comes, over a WebSocket",
        'The client says `{"type": "credit", "records": 100}`: so many more it takes, and nothing is sent before the '
        'first. The server says `{"type": "records", "records": […], "cursor": "…"}`, and `problem` before it '
        "closes. A ping comes every 15 seconds. Closes: 1000 done, 1001 the server goes away (come back with the "
        "cursor), 1008 refused, 1009 too large, 1013 too slow.",
        {101: _SOCKET},
        (TOPIC, *_TAIL),
        errors=_ERRORS,
    ),
    Operation(
        "GET",
        "/v1/groups/{group}/ws",
        "openGroupSocket",
        "Push",
        "A member of a group, over a WebSocket",
        "The connection is its heartbeat; a lost one has its session timeout to come back with `member=`. Beside "
        "`credit` the client says `commit` (`offsets` of `topic`, `partition`, `offset`), `nack` (the same, and "
        "`error`: counts an attempt and delivers again from there, or dead-letters) and `release` (`partitions` that "
        "were revoked). The server says `assigned`, `revoked`, `lost` (`partitions` with `offset` and `generation`), "
        "`records`, `committed` and `problem`.",
        {101: _SOCKET},
        (
            GROUP,
            query("topics", "What it reads, separated by commas.", example="flights"),
            query("member", "The id of a member that comes back. Left out: a new one.", NAME),
            query(
                "max_attempts",
                "At so many attempts a record is a dead letter.",
                whole(1, ATTEMPTS_MAX_MAX, ATTEMPTS_MAX),
            ),
            _VALUES,
            query("client_id", "A name for people.", NAME),
            query(
                "instance_id",
                "Of a static member: a join takes over what its last one has, and closing leaves nothing.",
                NAME,
            ),
            query("auto_offset_reset", "Where the group begins when it is new.", choice(*RESETS, default="earliest")),
            query("session_timeout_ms", "How long it may be away.", whole(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, 45_000)),
            query(
                "rebalance_timeout_ms",
                "How long it may take to let go of what is revoked.",
                whole(TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, 60_000),
            ),
        ),
        errors=("unknown_topic", "shutting_down"),
    ),
)
