"""Groups over HTTP."""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import CommitRequest, CommittedState, GroupState, MemberRequest, PollRequest
from siltlog.consumers.groups.poll import GroupPoll
from siltlog.consumers.groups.reset import OffsetReset, ResetRequest
from siltlog.consumers.groups.scripts import Key
from siltlog.consumers.groups.upkeep import lag_of
from siltlog.consumers.reading.fetch import Fetcher
from siltlog.consumers.reading.http import INLINE_RECORDS_MAX, ReadLimits
from siltlog.consumers.view import LogView
from siltlog.infra import names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.media import chosen_media
from siltlog.infra.http.replies import read_reply
from siltlog.infra.http.requests import Query, body_of, decode

BODY_BYTES_MAX = 8 * 1024 * 1024
LIST_LIMIT = 100
LIST_LIMIT_MAX = 1_000

_JSON = msgspec.json.Encoder()
_member_decoder = msgspec.json.Decoder(MemberRequest)
_poll_decoder = msgspec.json.Decoder(PollRequest)
_commit_decoder = msgspec.json.Decoder(CommitRequest)
_reset_decoder = msgspec.json.Decoder(ResetRequest)


def routes(
    groups: Groups, log: LogView, fetcher: Fetcher, clock: Clock, limits: ReadLimits | None = None
) -> list[Route]:
    calls = _GroupCalls(groups, log, fetcher, clock, limits or ReadLimits())
    member = "/v1/groups/{group}/members/{member}"
    return [
        Route("/v1/groups", calls.list_groups, methods=["GET"]),
        Route("/v1/groups/{group}", calls.describe, methods=["GET"]),
        Route("/v1/groups/{group}", calls.delete, methods=["DELETE"]),
        Route("/v1/groups/{group}/offsets", calls.offsets, methods=["GET"]),
        Route("/v1/groups/{group}/offsets", calls.commit, methods=["PUT"]),
        Route("/v1/groups/{group}/offsets/reset", calls.reset, methods=["POST"]),
        Route(member, calls.heartbeat, methods=["PUT"]),
        Route(member, calls.leave, methods=["DELETE"]),
        Route(member + "/poll", calls.poll, methods=["POST"]),
    ]


class _GroupCalls:
    def __init__(self, groups: Groups, log: LogView, fetcher: Fetcher, clock: Clock, limits: ReadLimits) -> None:
        self._groups = groups
        self._log = log
        self._polls = GroupPoll(groups, fetcher)
        self._reset = OffsetReset(groups, log, fetcher.lookup)
        self._clock = clock
        self._limits = limits

    async def heartbeat(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _member_decoder)
        body.wait_ms = min(body.wait_ms, self._limits.wait_ms)
        told = await self._groups.heartbeat(_name(request, "group"), _name(request, "member"), body)
        assignment = None
        if told.assignment is not None:
            assignment = [
                _at(key)
                | {"topic_id": key.topic_id, "offset": offset}
                | ({"delivered": told.delivered[key]} if key in told.delivered else {})
                for key, offset in told.assignment
            ]
        return await _reply(
            request,
            {
                "generation": told.generation,
                "assignment": assignment,
                "heartbeat_interval_ms": told.heartbeat_interval_ms,
            },
        )

    async def leave(self, request: Request) -> Response:
        Query(request, ())
        await self._groups.leave(_name(request, "group"), _name(request, "member"))
        return Response(status_code=204)

    async def poll(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _poll_decoder)
        body.wait_ms = min(body.wait_ms, self._limits.wait_ms)
        body.max_records = min(body.max_records, self._limits.records)
        body.max_bytes = min(body.max_bytes, self._limits.bytes)
        generation, result = await self._polls.poll(_name(request, "group"), _name(request, "member"), body)

        def rendered() -> bytes:
            return _JSON.encode({"generation": generation, **result.document()})

        encoded = rendered() if result.count <= INLINE_RECORDS_MAX else await asyncio.to_thread(rendered)
        return await read_reply(request, [encoded], names.MEDIA_JSON, {})

    async def commit(self, request: Request) -> Response:
        query = Query(request, ("topic_id",))
        body = decode(await body_of(request, BODY_BYTES_MAX), _commit_decoder)
        await self._groups.commit(_name(request, "group"), body, query.text("topic_id") or None)
        return Response(status_code=204)

    async def reset(self, request: Request) -> Response:
        Query(request, ())
        body = decode(await body_of(request, BODY_BYTES_MAX), _reset_decoder)
        moved = await self._reset.reset(_name(request, "group"), body)
        return await _reply(request, {"offsets": [move._asdict() for move in moved]})

    async def list_groups(self, request: Request) -> Response:
        query = Query(request, ("prefix", "after", "limit"))
        limit = query.integer("limit", LIST_LIMIT, minimum=1, maximum=LIST_LIMIT_MAX, cut=True)
        rows, after = await self._groups.list_groups(query.text("prefix"), query.text("after"), limit)
        groups = [{"group": group, "state": state, "members": members} for group, state, members in rows]
        return await _reply(request, {"groups": groups, "next": after})

    async def describe(self, request: Request) -> Response:
        Query(request, ())
        group = _name(request, "group")
        state = await self._groups.describe(group)
        return await _reply(
            request,
            {
                "group": group,
                "state": state.state,
                "generation": state.generation,
                "members": [
                    {
                        "member_id": member.member,
                        "client_id": member.client_id or None,
                        "instance_id": member.instance_id or None,
                        "topics": member.topics,
                        "topic_pattern": member.topic_pattern or None,
                        "auto_offset_reset": member.auto_offset_reset,
                        "assignment": [_at(key) for key in member.partitions],
                    }
                    for member in state.members
                ],
                "moving": [_at(key) | {"to": member or None} for key, member in sorted(state.moving.items())],
                "partitions": await self._partitions(state),
            },
        )

    async def offsets(self, request: Request) -> Response:
        Query(request, ())
        group = _name(request, "group")
        state = await self._groups.describe(group)
        return await _reply(request, {"group": group, "offsets": [_committed(entry) for entry in state.offsets]})

    async def delete(self, request: Request) -> Response:
        Query(request, ())
        await self._groups.delete(_name(request, "group"))
        return Response(status_code=204)

    async def _partitions(self, state: GroupState) -> list[dict[str, Any]]:
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
                _at(entry.key)
                | {
                    "member_id": holders.get(entry.key),
                    "offset": entry.offset,
                    "log_start_offset": bounds.log_start_offset,
                    "high_watermark": bounds.high_watermark,
                    "lag": lag.records,
                    "lag_seconds": lag.seconds,
                }
            )
        return rows


async def _reply(request: Request, document: Any) -> Response:
    chosen_media(request.headers.get("accept", ""), (names.MEDIA_JSON,))
    return await read_reply(request, [_JSON.encode(document)], names.MEDIA_JSON, {})


def _name(request: Request, parameter: str) -> str:
    name: str = request.path_params[parameter]
    wrong = names.name_problem(name)
    if wrong is not None:
        raise problem("invalid_parameter", f"{parameter}: {wrong}", parameter=parameter)
    return name


def _at(key: Key) -> dict[str, Any]:
    return {"topic": key.topic, "partition": key.partition}


def _committed(entry: CommittedState) -> dict[str, Any]:
    return _at(entry.key) | {
        "offset": entry.offset,
        "metadata": entry.metadata,
        "committed_at": format_us(entry.committed_ms * 1000),
    }
