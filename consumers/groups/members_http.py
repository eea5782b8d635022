"""Members of groups over HTTP: to join, to stay, to leave, and to consume with one call."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.groups.answers import Assigned, Assignment, Polled
from siltlog.consumers.groups.members import Members
from siltlog.consumers.groups.messages import Actor, MemberRequest, PollRequest
from siltlog.consumers.groups.poll import GroupPoll
from siltlog.consumers.reading.fetch import Fetcher, require_read
from siltlog.consumers.reading.http import INLINE_RECORDS_MAX, ReadLimits
from siltlog.infra import names
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import held_of
from siltlog.infra.http.operations import (
    GROUP,
    IN_BODY,
    MEMBER,
    NO_CONTENT,
    json_answer,
    json_body,
    on_group,
    operation,
)
from siltlog.infra.http.query import Query, named
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import body_of, decode, waits_for
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.infra.security.guard import METERED

BODY_BYTES_MAX = 8 * 1024 * 1024
AWAY = ("coordinator_unavailable", "shutting_down")
BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request")
MEMBER_ERRORS = ("unknown_member", "fenced_member", "unknown_topic", "offset_out_of_range", "cap_reached")
OTHERS_MEMBER = "for another principal's member group `alter`"
_JOINING = (
    "group `read` and `read` of each topic that is named; `topic_pattern` matches only topics that may be read; "
    f"{OTHERS_MEMBER}"
)
_JOIN = {"generation": 0, "topics": ["flights"]}

_JSON = msgspec.json.Encoder()
_member_decoder = msgspec.json.Decoder(MemberRequest)
_poll_decoder = msgspec.json.Decoder(PollRequest)


class MembersHttp:
    def __init__(self, members: Members, fetcher: Fetcher, limits: ReadLimits) -> None:
        self._members = members
        self._polls = GroupPoll(members, fetcher)
        self._limits = limits

    @operation(
        "PUT",
        "/v1/groups/{group}/members/{member}",
        "heartbeat",
        "Groups",
        "Join, or stay",
        "`generation` 0 joins; later ones are heartbeats, and may wait for a change with `wait_ms`. What is left out "
        "stays as it is. A join with the `instance_id` of a member that is there takes its place, with its partitions; "
        "that member is fenced (`fenced_by`: `instance_id`).",
        access=IN_BODY,
        needs=_JOINING,
        replies={200: json_answer("What the member holds.", Assignment)},
        parameters=(GROUP, MEMBER),
        body=json_body(MemberRequest, _JOIN),
        errors=(*AWAY, *BODY_ERRORS, *MEMBER_ERRORS, "group_not_empty", "not_acceptable"),
    )
    async def heartbeat(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _member_decoder)
        grant = grant_of(request)
        body.wait_ms = waits_for(request, grant.within(min(body.wait_ms, self._limits.wait_ms)))
        group, member = name_of(request, "group"), name_of(request, "member")
        _require_membership(grant, group, body)
        told = await self._members.heartbeat(group, member, body, Actor.of(grant, group))
        if body.wait_ms:
            # It may have been taken away meanwhile.
            grant.require("read", "group", group)
        assignment = None
        if told.assignment is not None:
            assignment = [
                Assigned(key.topic, key.partition, key.topic_id, offset, told.delivered.get(key, msgspec.UNSET))
                for key, offset in told.assignment
            ]
        return await answered(request, Assignment(told.generation, assignment, told.heartbeat_interval_ms))

    @operation(
        "DELETE",
        "/v1/groups/{group}/members/{member}",
        "leaveGroup",
        "Groups",
        "Leave a group",
        "At once; 204 also when it has left already.",
        access=on_group("read"),
        needs=OTHERS_MEMBER,
        replies=NO_CONTENT,
        parameters=(GROUP, MEMBER),
        errors=AWAY,
    )
    async def leave(self, request: Request) -> Response:
        Query(request, ())
        group, member = name_of(request, "group"), name_of(request, "member")
        await self._members.leave(group, member, Actor.of(grant_of(request), group))
        return Response(status_code=204)

    @operation(
        "POST",
        "/v1/groups/{group}/members/{member}/poll",
        "poll",
        "Groups",
        "Consume with one call",
        "Joins or heartbeats, commits, and reads what the member holds, from its committed offsets. Send back "
        "`generation`, and in `commit` what was handled; without `commit` the same records come again.",
        access=IN_BODY,
        needs=_JOINING,
        reads=True,
        replies={200: json_answer("Records.", Polled)},
        parameters=(GROUP, MEMBER),
        body=json_body(PollRequest, {**_JOIN, "wait_ms": 1000}),
        errors=(
            *AWAY,
            *BODY_ERRORS,
            *MEMBER_ERRORS,
            "group_not_empty",
            "not_acceptable",
            "corrupt_data",
            "topic_unavailable",
            "store_denied",
        ),
    )
    async def poll(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _poll_decoder)
        grant = grant_of(request)
        body.wait_ms = waits_for(request, grant.within(min(body.wait_ms, self._limits.wait_ms)))
        body.max_records = min(body.max_records, self._limits.records)
        body.max_bytes = min(body.max_bytes, self._limits.bytes)
        group, member = name_of(request, "group"), name_of(request, "member")
        _require_membership(grant, group, body)
        for topic in sorted({at.topic for at in body.commit or ()}):
            require_read(grant, topic)
        actor = Actor.of(grant, group)
        generation, result = await self._polls.poll(
            group, member, body, held_of(request.scope), actor, grant, request.scope["state"].get(METERED)
        )
        grant.require("read", "group", group)

        def rendered() -> bytes:
            return _JSON.encode({"generation": generation, **result.document()})

        encoded = rendered() if result.count <= INLINE_RECORDS_MAX else await asyncio.to_thread(rendered)
        return await read_reply(request, [encoded], names.MEDIA_JSON, {})


async def answered(request: Request, document: msgspec.Struct) -> Response:
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    return await read_reply(request, [_JSON.encode(document)], names.MEDIA_JSON, {})


def _require_membership(grant: Grant, group: str, asked: MemberRequest) -> None:
    """Raises Refused `forbidden` to who may not be a member, or not read a topic that he names."""
    grant.require("read", "group", group)
    for topic in asked.topics or ():
        require_read(grant, topic)


def name_of(request: Request, parameter: str) -> str:
    return named(parameter, request.path_params[parameter])
