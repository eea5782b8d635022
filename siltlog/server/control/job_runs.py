"""Has jobs begin and end where the schedule is run: on this node, or on the one that has the right to."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NoReturn, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.client.core import ConnectionFailed
from siltlog.infra.cluster.router import Member
from siltlog.infra.errors import SiltlogError, from_problem, problem
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.node import Node
from siltlog.infra.peers.calls import PeerCall
from siltlog.infra.peers.peers import NODE, PeerRefused, Peers
from siltlog.pipelines.assembly import Schedule
from siltlog.pipelines.schedule.asked import not_run_here
from siltlog.pipelines.schedule.lease import LeaseEntry, newest_entry
from siltlog.pipelines.schedule.runs import Outcome

BEGIN, END = "/peers/jobs/begin", "/peers/jobs/end"
BODY_BYTES_MAX = 64 * 1024
ANSWER_SECONDS = 30.0
"""The thread of a schedule may be waiting for the object store, or for another job to end."""
PEER_SECONDS = ANSWER_SECONDS + 5.0

T = TypeVar("T")


class _Begin(msgspec.Struct, frozen=True):
    job: str


class _Begun(msgspec.Struct, frozen=True):
    run_id: str


class _End(msgspec.Struct, frozen=True):
    job: str
    run_id: str


class _Ended(msgspec.Struct, frozen=True):
    outcome: Outcome | None


_begin = msgspec.json.Decoder(_Begin)
_begun = msgspec.json.Decoder(_Begun)
_end = msgspec.json.Decoder(_End)
_ended = msgspec.json.Decoder(_Ended)


class OtherNodes:
    """The nodes of a cluster, by their names; of a server that is alone there is none."""

    def __init__(self, peers: Peers, member: Callable[[str], Member | None]) -> None:
        self._peers = peers
        self.member = member

    async def ask(self, member: Member, path: str, said: msgspec.Struct) -> bytes:
        """What the node answers. Raises what it refuses with, Unavailable `schedule_unavailable`, OutcomeUnknown."""
        content = msgspec.json.encode(said)
        try:
            reply = await self._peers.ask(
                member, "POST", path.encode(), (), content, identity=NODE, seconds=PEER_SECONDS
            )
        except (ConnectionFailed, PeerRefused) as failed:
            if isinstance(failed, ConnectionFailed) and failed.sent:
                raise problem(
                    "ack_timeout",
                    f"the node {member.node}, which runs the schedule, was lost before its answer came: {failed}; "
                    "GET /v1/schedule tells whether it was done",
                    node=member.node,
                ) from None
            raise problem(
                "schedule_unavailable",
                f"the node {member.node}, which runs the schedule, does not answer: {failed}; nothing happened, ask "
                "again in a moment",
                node=member.node,
            ) from None
        if reply.status != 200:
            raise _error(reply.status, reply.body)
        return reply.body


class JobRuns:
    """Used on one event loop."""

    def __init__(self, node: Node, schedule: Schedule, others: OtherNodes | None) -> None:
        self._node = node.settings.node_id
        self._store = node.store
        self._clock = node.clock
        self._schedule = schedule
        self._others = others
        self.calls: Mapping[str, PeerCall] = {BEGIN: self._hear_begin, END: self._hear_end}

    async def begin(self, job: str) -> str:
        """Begins a job where the schedule is run; gives the id of the run.

        Raises Refused `job_running`, `job_unavailable`; Unavailable, where nothing was begun; OutcomeUnknown.
        """
        runner = self._schedule.holder()
        if runner is not None:
            return await _answered(runner.begin_now(job), job)
        entry, member = await self._elsewhere()
        if self._others is None or member is None:
            _refuse(entry, job)
        return _begun.decode(await self._others.ask(member, BEGIN, _Begin(job))).run_id

    async def end(self, job: str, run_id: str) -> Outcome | None:
        """Ends a run where the schedule is run, and says how it ended; None where no such run is under way there.

        Raises Refused `job_unavailable` where it is under way and cannot be reached from here, Unavailable,
        OutcomeUnknown.
        """
        runner = self._schedule.holder()
        if runner is not None:
            return await _answered(runner.end_now(job, run_id), job)
        entry, member = await self._elsewhere()
        if self._others is not None and member is not None:
            return _ended.decode(await self._others.ask(member, END, _End(job, run_id))).outcome
        if entry is not None and job in entry.jobs and entry.jobs[job].run_id == run_id:
            _refuse(entry, job)
        return None

    async def _elsewhere(self) -> tuple[LeaseEntry | None, Member | None]:
        """What was last said of the schedule by whoever runs it, and the node that does; its holder is empty where
        nobody does, and the node None where it cannot be asked."""
        newest = await asyncio.to_thread(newest_entry, self._store)
        if newest is None:
            return None, None
        _, entry, written_ms = newest
        if not entry.is_held(written_ms, self._clock.now_us()):
            return msgspec.structs.replace(entry, holder=""), None
        if self._schedule.begins(entry.holder):
            raise problem(
                "schedule_unavailable", "this server begins to run the schedule just now; ask again in a moment"
            )
        if self._others is None or entry.runner == self._node:
            return entry, None
        return entry, self._others.member(entry.runner)

    # What other nodes ask.

    async def _hear_begin(self, request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), _begin)
        runner = self._schedule.holder()
        if runner is None:
            raise not_run_here(asked.job)
        return json_reply(_Begun(await _answered(runner.begin_now(asked.job), asked.job)))

    async def _hear_end(self, request: Request) -> Response:
        asked = decode(await body_of(request, BODY_BYTES_MAX), _end)
        runner = self._schedule.holder()
        if runner is None:
            raise not_run_here(asked.job)
        return json_reply(_Ended(await _answered(runner.end_now(asked.job, asked.run_id), asked.job)))


def _refuse(entry: LeaseEntry | None, job: str) -> NoReturn:
    if entry is None or not entry.holder:
        raise not_run_here(job)
    raise problem(
        "job_unavailable",
        f"{entry.runner} runs the schedule, and cannot be asked from here: it is `silt schedule`, or a server of no "
        f"common cluster; ask that server, or run `silt {job}`",
        job=job,
        runner=entry.runner,
    )


async def _answered(answer: "Future[T]", job: str) -> T:
    """The answer of the schedule's thread. Who does not wait for it any more takes it back, if it was not begun."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answer), ANSWER_SECONDS)
    except TimeoutError:
        if answer.cancelled():
            raise problem(
                "schedule_unavailable",
                f"what runs the schedule is busy for {ANSWER_SECONDS:g} s already; nothing happened, ask again in a "
                "moment",
                job=job,
            ) from None
        raise problem(
            "ack_timeout",
            f"what runs the schedule has not answered within {ANSWER_SECONDS:g} s; GET /v1/schedule tells whether it "
            "was done",
            job=job,
        ) from None


def _error(status: int, body: bytes) -> SiltlogError:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = {}
    return from_problem(document if isinstance(document, dict) else {}, status)
