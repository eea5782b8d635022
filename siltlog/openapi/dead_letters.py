"""Attempts, dead letters and their way back: what the document says of them."""

from siltlog.consumers.dead_letters.replay import ReplayRequest
from siltlog.consumers.groups.messages import CountRequest, DeadLetterRequest
from siltlog.openapi import shapes
from siltlog.openapi.operation import GROUP, TOPIC, Operation, json_body, json_reply

_BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request", "not_acceptable")
_AWAY = (
    "coordinator_unavailable",
    "shutting_down",
    "topic_unavailable",
    "store_denied",
    "overloaded",
    "wal_full",
    "disk_full",
)
_RECORD_ERRORS = ("fenced_member", "unknown_topic", "unknown_partition", "offset_out_of_range")
_READ_ERRORS = ("corrupt_data", "ack_timeout")
_RECORD = {"member_id": "a", "generation": 1763710560000, "topic": "flights", "partition": 0, "offset": 7}

OPERATIONS = (
    Operation(
        "POST",
        "/v1/groups/{group}/attempts",
        "countAttempt",
        "Groups",
        "Count an attempt at a record",
        "Before the record is handled, so that one that ends its consumer is counted too. Only by the member that "
        "holds the partition. The count goes once the group has committed beyond the record. `attempts_max` is for a "
        "record that a former holder may have ended with: one that ends two holders has ended the first uncounted, and "
        "that is counted too; with as many attempts as that it is `spent`, and not counted.",
        {200: json_reply("How many attempts there were, with this one.", shapes.Attempts)},
        (GROUP,),
        json_body(CountRequest, _RECORD),
        errors=("coordinator_unavailable", "shutting_down", *_BODY_ERRORS, *_RECORD_ERRORS),
    ),
    Operation(
        "POST",
        "/v1/groups/{group}/dead_letters",
        "giveUpRecord",
        "Groups",
        "Give up a record",
        "Copies it to `{topic}.dlq`, to the partition it is in, with headers that say where it was and why; then "
        "commits the offset after it. A repeat is answered, and not copied again. Refused while the same member has "
        "attempts at lower records that are not committed.",
        {200: json_reply("Where the dead letter is.", shapes.DeadLetter)},
        (GROUP,),
        json_body(DeadLetterRequest, {**_RECORD, "error": "ValueError: no such carrier"}),
        errors=(*_AWAY, *_BODY_ERRORS, *_RECORD_ERRORS, *_READ_ERRORS, "records_open", "not_found"),
    ),
    Operation(
        "POST",
        "/v1/topics/{topic}/dlq/replay",
        "replayDeadLetters",
        "Topics",
        "Bring dead letters back",
        "Publishes them to `topic`, from which they came, as they were: key, value, headers, time and partition. Each "
        "once for a `replay_id`, which stands for one request: repeated it brings what is missing. `offsets` are those "
        "of the dead letters; left out: every one.",
        {200: json_reply("How many.", shapes.Replayed)},
        (TOPIC,),
        json_body(ReplayRequest, {"replay_id": "2026-11-21", "offsets": [{"partition": 0, "offset": 3}]}),
        errors=(
            *("shutting_down", "topic_unavailable", "store_denied", "overloaded", "wal_full", "disk_full"),
            *_BODY_ERRORS,
            *("unknown_topic", "unknown_partition", "offset_out_of_range", *_READ_ERRORS),
            *("not_found", "idempotency_key_reused", "record_too_large", "invalid_record"),
        ),
    ),
)
