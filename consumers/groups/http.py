"""Groups over HTTP: what they have committed, where they go on, and what there is of them."""

from collections.abc import Callable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.consumers.groups.answers import (
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
)
from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.members_http import (
    AWAY,
    BODY_BYTES_MAX,
    BODY_ERRORS,
    MEMBER_ERRORS,
    OTHERS_MEMBER,
    answered,
    name_of,
)
from siltlog.consumers.groups.messages import (
    Actor,
    ClassicState,
    CommitRequest,
    CommittedState,
    GroupState,
    Phase,
)
from siltlog.consumers.groups.ranked import GroupLags, RankedGroups
from siltlog.consumers.groups.reset import OffsetReset, ResetRequest
from siltlog.consumers.keeping.upkeep import lag_of
from siltlog.consumers.reading.fetch import require_read
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.view import LogView
from siltlog.infra.clock import Clock, format_ms, format_us
from siltlog.infra.http.operations import (
    FILTERED,
    GROUP,
    IN_BODY,
    LIST_QUERY,
    NO_CONTENT,
    choice,
    in_query,
    json_answer,
    json_body,
    on_group,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode
from siltlog.infra.listing.ranking import GROUP_SORTS, NAME, ORDERS, ranking_of
from siltlog.infra.security.grant import grant_of

LIST_LIMIT = 100
LIST_LIMIT_MAX = 1_000

_commit_decoder = msgspec.json.Decoder(CommitRequest)
_reset_decoder = msgspec.json.Decoder(ResetRequest)
_ROWS = "rows of topics without `describe` are left out"


class GroupsHttp:
    def __init__(self, groups: Groups, log: LogView, lookup: Lookup, clock: Clock, lags: GroupLags) -> None:
        self._ranked = RankedGroups(groups, lags)
        self._groups = groups
        self._log = log
        self._reset = OffsetReset(groups, log, lookup)
        self._clock = clock

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
        errors=(*AWAY, *BODY_ERRORS, *MEMBER_ERRORS, "unknown_group", "unknown_partition", "group_not_empty"),
    )
    async def commit(self, request: Request) -> Response:
        query = Query(request, ("topic_id",))
        body = decode(await body_of(request, BODY_BYTES_MAX), _commit_decoder)
        group, grant = name_of(request, "group"), grant_of(request)
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
            *AWAY,
            *BODY_ERRORS,
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
        moved = await self._reset.reset(name_of(request, "group"), body)
        return await answered(request, OffsetsMoved([OffsetMoved(*move) for move in moved]))

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
        errors=(*AWAY, "not_acceptable"),
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
            return await answered(request, page)
        sees = None if visible is None else partial(_those, visible)
        rows, after = await self._groups.list_groups(query.text("prefix"), query.text("after"), limit, sees)
        return await answered(
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
        errors=(*AWAY, "unknown_group", "not_acceptable"),
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        group = name_of(request, "group")
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
        return await answered(request, Group(*head, members, moving, partitions, state.type, *_protocol(classic)))

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
        errors=(*AWAY, "unknown_group", "not_acceptable"),
    )
    async def offsets(self, request: Request) -> Response:
        Query(request, ())
        group = name_of(request, "group")
        state = (await self._groups.describe(group)).seen_by(grant_of(request))
        return await answered(request, GroupOffsets(group, [_committed(entry) for entry in state.offsets]))

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
        errors=(*AWAY, "unknown_group", "group_not_empty"),
    )
    async def delete(self, request: Request) -> Response:
        Query(request, ())
        await self._groups.delete(name_of(request, "group"))
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
