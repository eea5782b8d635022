"""Consumer groups: what the document says of them."""

from siltlog.consumers.groups.messages import CommitRequest, MemberRequest, PollRequest
from siltlog.consumers.groups.reset import ResetRequest
from siltlog.openapi import shapes
from siltlog.openapi.operation import (
    GROUP,
    LIST_QUERY,
    MEMBER,
    NO_CONTENT,
    Operation,
    json_body,
    json_reply,
    query,
)

_AWAY = ("coordinator_unavailable", "shutting_down")
_BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request")
_MEMBER_ERRORS = ("unknown_member", "fenced_member", "unknown_topic", "offset_out_of_range")
_JOIN = {"generation": 0, "topics": ["flights"]}

OPERATIONS = (
    Operation(
        "GET",
        "/v1/groups",
        "listGroups",
        "Groups",
        "List groups",
        "In the order of their names, a page at a time.",
        {200: json_reply("A page.", shapes.GroupList)},
        LIST_QUERY,
        errors=(*_AWAY, "not_acceptable"),
    ),
    Operation(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Groups",
        "Describe a group",
        "Its state, members, what each holds, and the lag of every partition.",
        {200: json_reply("The group.", shapes.Group)},
        (GROUP,),
        errors=(*_AWAY, "unknown_group", "not_acceptable"),
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}",
        "deleteGroup",
        "Groups",
        "Delete a group without members",
        "And what it committed.",
        NO_CONTENT,
        (GROUP,),
        errors=(*_AWAY, "unknown_group", "group_not_empty"),
    ),
    Operation(
        "GET",
        "/v1/groups/{group}/offsets",
        "listGroupOffsets",
        "Groups",
        "What a group has committed",
        "A committed offset is the next one to read.",
        {200: json_reply("The offsets.", shapes.GroupOffsets)},
        (GROUP,),
        errors=(*_AWAY, "unknown_group", "not_acceptable"),
    ),
    Operation(
        "PUT",
        "/v1/groups/{group}/offsets",
        "commitOffsets",
        "Groups",
        "Commit offsets",
        "All or nothing. With `member_id` only from the member that holds the partitions; without it only while the "
        "group has no members.",
        NO_CONTENT,
        (GROUP, query("topic_id", "Refused when a topic is another than this.")),
        json_body(CommitRequest, {"offsets": [{"topic": "flights", "partition": 0, "offset": 100}]}),
        errors=(*_AWAY, *_BODY_ERRORS, *_MEMBER_ERRORS, "unknown_group", "unknown_partition", "group_not_empty"),
    ),
    Operation(
        "POST",
        "/v1/groups/{group}/offsets/reset",
        "resetGroupOffsets",
        "Groups",
        "Move where a group goes on",
        "In every partition of `topics`, or in `partitions`, while the group has no members. `to` says where; "
        "`timestamp`, `offset` and `shift` (so many records on, or back) come with a member of that name. Offsets are "
        "brought within what the log has. What is answered outlives Redis; with `dry_run` nothing is "
        "changed.",
        {200: json_reply("Each partition before and after.", shapes.OffsetsMoved)},
        (GROUP,),
        json_body(ResetRequest, {"topics": ["flights"], "to": "timestamp", "timestamp": "2026-11-21T07:00:00Z"}),
        errors=(
            *_AWAY,
            *_BODY_ERRORS,
            "not_acceptable",
            "unknown_group",
            "unknown_topic",
            "unknown_partition",
            "group_not_empty",
            "corrupt_data",
        ),
    ),
    Operation(
        "PUT",
        "/v1/groups/{group}/members/{member}",
        "heartbeat",
        "Groups",
        "Join, or stay",
        "`generation` 0 joins; later ones are heartbeats, and may wait for a change with `wait_ms`. What is left out "
        "stays as it is. A join with the `instance_id` of a member that is there takes its place, with its partitions; "
        "that member is fenced (`fenced_by`: `instance_id`).",
        {200: json_reply("What the member holds.", shapes.Assignment)},
        (GROUP, MEMBER),
        json_body(MemberRequest, _JOIN),
        errors=(*_AWAY, *_BODY_ERRORS, *_MEMBER_ERRORS, "group_not_empty", "not_acceptable"),
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}/members/{member}",
        "leaveGroup",
        "Groups",
        "Leave a group",
        "At once; 204 also when it has left already.",
        NO_CONTENT,
        (GROUP, MEMBER),
        errors=_AWAY,
    ),
    Operation(
        "POST",
        "/v1/groups/{group}/members/{member}/poll",
        "poll",
        "Groups",
        "Consume with one call",
        "Joins or heartbeats, commits, and reads what the member holds, from its committed offsets. Send back "
        "`generation`, and in `commit` what was handled; without `commit` the same records come again.",
        {200: json_reply("Records.", shapes.Polled)},
        (GROUP, MEMBER),
        json_body(PollRequest, {**_JOIN, "wait_ms": 1000}),
        errors=(
            *_AWAY,
            *_BODY_ERRORS,
            *_MEMBER_ERRORS,
            "group_not_empty",
            "not_acceptable",
            "corrupt_data",
            "topic_unavailable",
            "store_denied",
        ),
    ),
)
