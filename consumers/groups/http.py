"""Groups over HTTP."""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.groups.answers import (
    Assigned,
    Assignment,
    Committed,
    Group,
    GroupEntry,
    GroupList,
    GroupMember,
    GroupOffsets,
    GroupPartition,
    HeldPartition,
    MovingPartition,
    OffsetMoved,
    OffsetsMoved,
    Polled,
)
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import (
    Actor,
    ClassicState,
    CommitRequest,
    CommittedState,
    GroupState,
    MemberRequest,
    Phase,
    PollRequest,
)
from siltlog.consumers.groups.poll import GroupPoll
from siltlog.consumers.groups.ranked import GroupLags, RankedGroups
from siltlog.consumers.groups.reset import OffsetReset, ResetRequest
from siltlog.consumers.keeping.upkeep import lag_of
from siltlog.consumers.reading.fetch import Fetcher, require_read
from siltlog.consumers.reading.http import INLINE_RECORDS_MAX, ReadLimits
from siltlog.consumers.reading.view import LogView
from siltlog.infra import names
from siltlog.infra.clock import Clock, format_ms, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.memory import held_of
from siltlog.infra.http.operations import (
    FILTERED,
    GROUP,
    IN_BODY,
    LIST_QUERY,
    MEMBER,
    NO_CONTENT,
    choice,
    in_query,
    json_answer,
    json_body,
    on_group,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import WAIT_MS, body_of, decode
from siltlog.infra.listing.ranking import GROUP_SORTS, NAME, ORDERS, ranking_of
from siltlog.infra.security.grant import Grant, grant_of
from siltlog.infra.security.guard import METERED

BODY_BYTES_MAX = 8 * 1024 * 1024
LIST_LIMIT = 100
LIST_LIMIT_MAX = 1_000

_JSON = msgspec.json.Encoder()
_member_decoder = msgspec.json.Decoder(MemberRequest)
_poll_decoder = msgspec.json.Decoder(PollRequest)
_commit_decoder = msgspec.json.Decoder(CommitRequest)
_reset_decoder = msgspec.json.Decoder(ResetRequest)


_AWAY = ("coordinator_unavailable", "shutting_down")
_BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request")
_MEMBER_ERRORS = ("unknown_member", "fenced_member", "unknown_topic", "offset_out_of_range", "cap_reached")
OTHERS_MEMBER = "for another principal's member group `alter`"
_JOINING = (
    "group `read` and `read` of each topic that is named; `topic_pattern` matches only topics that may be read; "
    f"{OTHERS_MEMBER}"
)
_ROWS = "rows of topics without `describe` are left out"
_JOIN = {"generation": 0, "topics": ["flights"]}


class GroupsHttp:
    def __init__(
        self, groups: Groups, log: LogView, fetcher: Fetcher, clock: Clock, limits: ReadLimits, lags: GroupLags
    ) -> None:
        self._ranked = RankedGroups(groups, lags)
        self._groups = groups
        self._log = log
        self._polls = GroupPoll(groups.members, fetcher)
        self._reset = OffsetReset(groups, log, fetcher.lookup)
        self._clock = clock
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
        errors=(*_AWAY, *_BODY_ERRORS, *_MEMBER_ERRORS, "group_not_empty", "not_acceptable"),
    )
    async def heartbeat(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _member_decoder)
        grant = grant_of(request)
        request.scope["state"][WAIT_MS] = body.wait_ms = grant.within(min(body.wait_ms, self._limits.wait_ms))
        group, member = _name(request, "group"), _name(request, "member")
        _require_membership(grant, group, body)
        told = await self._groups.members.heartbeat(group, member, body, Actor.of(grant, group))
        if body.wait_ms:
            # It may have been taken away meanwhile.
            grant.require("read", "group", group)
        assignment = None
        if told.assignment is not None:
            assignment = [
                Assigned(key.topic, key.partition, key.topic_id, offset, told.delivered.get(key, msgspec.UNSET))
                for key, offset in told.assignment
            ]
        return await _reply(request, Assignment(told.generation, assignment, told.heartbeat_interval_ms))

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
        errors=_AWAY,
    )
    async def leave(self, request: Request) -> Response:
        Query(request, ())
        group, member = _name(request, "group"), _name(request, "member")
        await self._groups.members.leave(group, member, Actor.of(grant_of(request), group))
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
            *_AWAY,
            *_BODY_ERRORS,
            *_MEMBER_ERRORS,
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
        request.scope["state"][WAIT_MS] = body.wait_ms = grant.within(min(body.wait_ms, self._limits.wait_ms))
        body.max_records = min(body.max_records, self._limits.records)
        body.max_bytes = min(body.max_bytes, self._limits.bytes)
        group, member = _name(request, "group"), _name(request, "member")
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

    @operation(
        "PUT",
        "/v1/groups/{group}/offsets",
        "commitOffsets",
        "Groups",
        "Commit offsets",
        "All or nothing. With `member_id` only from the member that holds the partitions; without it only while the "
        "group has no members.",
        access=IN_BODY,
        needs=f"group `read` and `read` of each topic; {OTHERS_MEMBER}",
        replies=NO_CONTENT,
        parameters=(GROUP, in_query("topic_id", "Refused when a topic is another than this.")),
        body=json_body(CommitRequest, {"offsets": [{"topic": "flights", "partition": 0, "offset": 100}]}),
        errors=(*_AWAY, *_BODY_ERRORS, *_MEMBER_ERRORS, "unknown_group", "unknown_partition", "group_not_empty"),
    )
    async def commit(self, request: Request) -> Response:
        query = Query(request, ("topic_id",))
        body = decode(await body_of(request, BODY_BYTES_MAX), _commit_decoder)
        group, grant = _name(request, "group"), grant_of(request)
        grant.require("read", "group", group)
        for topic in sorted({at.topic for at in body.offsets}):
            require_read(grant, topic)
        await self._groups.offsets.commit(group, body, query.text("topic_id") or None, Actor.of(grant, group))
        return Response(status_code=204)

    @operation(
        "POST",
        "/v1/groups/{group}/offsets/reset",
        "resetGroupOffsets",
        "Groups",
        "Move where a group goes on",
        "In every partition of `topics`, or in `partitions`, while the group has no members. `to` says where; "
        "`timestamp`, `offset` and `shift` (so many records on, or back) come with a member of that name. Offsets are "
        "brought within what the log has. What is answered outlives Redis; with `dry_run` nothing is "
        "changed.",
        access=on_group("alter"),
        needs="`describe` of each topic",
        changes="in_path",
        replies={200: json_answer("Each partition before and after.", OffsetsMoved)},
        parameters=(GROUP,),
        body=json_body(ResetRequest, {"topics": ["flights"], "to": "timestamp", "timestamp": "2026-11-21T07:00:00Z"}),
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
    )
    async def reset(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _reset_decoder)
        grant = grant_of(request)
        for topic in sorted({*(body.topics or ()), *(at.topic for at in body.partitions or ())}):
            grant.require("describe", "topic", topic)
        moved = await self._reset.reset(_name(request, "group"), body)
        return await _reply(request, OffsetsMoved([OffsetMoved(*move) for move in moved]))

    @operation(
        "GET",
        "/v1/groups",
        "listGroups",
        "Groups",
        "List groups",
        "In the order of their names, or of their lag or members, a page at a time. What is ranked is some seconds "
        "old; a page goes on after the value and the name of the last.",
        access=FILTERED,
        needs="groups without `describe` are left out; of `topic` its `describe`",
        replies={200: json_answer("A page.", GroupList)},
        parameters=(
            *LIST_QUERY,
            in_query("topic", "Only groups that have committed offsets of this topic."),
            in_query("sort", "By what they are ranked.", choice(*GROUP_SORTS, default=NAME)),
            in_query("order", "`asc` for names and `desc` for values, unless it says otherwise.", choice(*ORDERS)),
        ),
        errors=(*_AWAY, "not_acceptable"),
    )
    async def list_groups(self, request: Request) -> Response:
        query = Query(request, ("prefix", "after", "limit", "topic", "sort", "order"))
        limit = query.integer("limit", LIST_LIMIT, minimum=1, maximum=LIST_LIMIT_MAX, cut=True)
        visible = grant_of(request).filter("group")
        ranking, topic = ranking_of(query.choice, GROUP_SORTS), query.text("topic")
        if topic or "sort" in query or "order" in query:
            if topic:
                grant_of(request).require("describe", "topic", topic)
            page = await self._ranked.page(
                ranking,
                grant_of(request),
                topic=topic,
                prefix=query.text("prefix"),
                after=query.text("after"),
                limit=limit,
            )
            return await _reply(request, page)
        sees = None if visible is None else partial(_those, visible)
        rows, after = await self._groups.list_groups(query.text("prefix"), query.text("after"), limit, sees)
        return await _reply(
            request, GroupList([GroupEntry(row.group, row.state, row.members, row.type) for row in rows], after)
        )

    @operation(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Groups",
        "Describe a group",
        "Its state, members, what each holds, and the lag of every partition.",
        access=on_group("describe"),
        needs=_ROWS,
        replies={200: json_answer("The group.", Group)},
        parameters=(GROUP,),
        errors=(*_AWAY, "unknown_group", "not_acceptable"),
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        group = _name(request, "group")
        state = (await self._groups.describe(group)).seen_by(grant_of(request))
        classic = state.classic
        members = [
            GroupMember(
                member_id=member.member,
                client_id=member.client_id or None,
                instance_id=member.instance_id or None,
                topics=list(member.topics),
                topic_pattern=member.topic_pattern or None,
                auto_offset_reset=member.auto_offset_reset,
                joined_at=format_ms(member.joined_ms),
                assignment=[HeldPartition(key.topic, key.partition) for key in member.partitions],
                client_host=member.client_host or None,
            )
            for member in state.members
        ]
        moving = [MovingPartition(key.topic, key.partition, to or None) for key, to in sorted(state.moving.items())]
        partitions = await self._partitions(state)
        head = group, state.state, state.generation, format_ms(state.rebalanced_ms)
        return await _reply(request, Group(*head, members, moving, partitions, state.type, *_protocol(classic)))

    @operation(
        "GET",
        "/v1/groups/{group}/offsets",
        "listGroupOffsets",
        "Groups",
        "What a group has committed",
        "A committed offset is the next one to read.",
        access=on_group("describe"),
        needs=_ROWS,
        replies={200: json_answer("The offsets.", GroupOffsets)},
        parameters=(GROUP,),
        errors=(*_AWAY, "unknown_group", "not_acceptable"),
    )
    async def offsets(self, request: Request) -> Response:
        Query(request, ())
        group = _name(request, "group")
        state = (await self._groups.describe(group)).seen_by(grant_of(request))
        return await _reply(request, GroupOffsets(group, [_committed(entry) for entry in state.offsets]))

    @operation(
        "DELETE",
        "/v1/groups/{group}",
        "deleteGroup",
        "Groups",
        "Delete a group without members",
        "And what it committed.",
        access=on_group("delete"),
        changes="in_path",
        replies=NO_CONTENT,
        parameters=(GROUP,),
        errors=(*_AWAY, "unknown_group", "group_not_empty"),
    )
    async def delete(self, request: Request) -> Response:
        Query(request, ())
        await self._groups.delete(_name(request, "group"))
        return Response(status_code=204)

    async def _partitions(self, state: GroupState) -> list[GroupPartition]:
        """Every partition with an offset: where it is, who holds it, and how far behind that is."""
        holders = {key: member.member for member in state.members for key in member.partitions}
        now_us = self._clock.now_us()
        rows = []
        topics = [self._log.topic(entry.key.topic) for entry in state.offsets]
        for entry, topic in zip(state.offsets, topics, strict=True):
            view = topic.partitions[entry.key.partition]
            lag = await lag_of(topic, view, entry.offset, now_us)
            bounds = view.bounds()
            rows.append(
                GroupPartition(
                    topic=entry.key.topic,
                    partition=entry.key.partition,
                    member_id=holders.get(entry.key),
                    offset=entry.offset,
                    log_start_offset=bounds.log_start_offset,
                    high_watermark=bounds.high_watermark,
                    lag=lag.records,
                    lag_seconds=lag.seconds,
                )
            )
        return rows


async def _reply(request: Request, document: msgspec.Struct) -> Response:
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    return await read_reply(request, [_JSON.encode(document)], names.MEDIA_JSON, {})


def _require_membership(grant: Grant, group: str, asked: MemberRequest) -> None:
    """Raises Refused `forbidden` to who may not be a member, or not read a topic that he names."""
    grant.require("read", "group", group)
    for topic in asked.topics or ():
        require_read(grant, topic)


def _name(request: Request, parameter: str) -> str:
    name: str = request.path_params[parameter]
    wrong = names.name_problem(name)
    if wrong is not None:
        raise problem("invalid_parameter", f"{parameter}: {wrong}", parameter=parameter)
    return name


def _protocol(classic: ClassicState | None) -> tuple[Phase | None, str | None, str | None]:
    if classic is None:
        return None, None, None
    return classic.phase, classic.protocol_type, classic.protocol or None


def _committed(entry: CommittedState) -> Committed:
    return Committed(
        entry.key.topic, entry.key.partition, entry.offset, entry.metadata, format_us(entry.committed_ms * 1000)
    )


def _those(visible: Callable[[str], bool], groups: list[str]) -> list[str]:
    return [group for group in groups if visible(group)]
