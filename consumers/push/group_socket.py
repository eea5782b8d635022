"""A member of a group over a WebSocket: the connection is its heartbeat.

A member whose connection is lost has its session timeout to come back by its id; one that closes it leaves.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import msgspec

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import (
    Actor,
    CommitRequest,
    DeadLetterRequest,
    MemberRequest,
    Membership,
    PartitionName,
)
from siltlog.consumers.groups.waiters import Waiter
from siltlog.consumers.push.feed import Feed
from siltlog.consumers.push.messages import (
    Commit,
    Kind,
    Nack,
    Release,
    SaidOffset,
    SaidRecord,
    Wording,
)
from siltlog.consumers.push.session import Channel, Session
from siltlog.consumers.reading.fetch import Fetcher, find_partition, find_topic, require_read
from siltlog.consumers.reading.render import Values
from siltlog.consumers.reading.view import Key, LogView
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import Fenced, OffsetOutOfRange, OutcomeUnknown, Refused, SiltlogError, Unavailable, problem
from siltlog.infra.http.memory import Held
from siltlog.infra.http.streams import Stream
from siltlog.infra.security.grant import Grant
from siltlog.infra.telemetry import Logger

RETRY_MS = 1_000
GONE_CODES = ("unknown_topic", "unknown_partition")
WRONG_CODES = ("invalid_request", "offset_out_of_range")
"""What is said of an offset that cannot be: none of that message's commit is made, and the member goes on."""


class Nacks(Protocol):
    """The part that counts attempts and keeps dead letters."""

    async def nack(
        self, group: str, request: DeadLetterRequest, attempts_max: int, actor: Actor | None
    ) -> "Nacked": ...


class Nacked(Protocol):
    @property
    def buried(self) -> object | None:
        """None: the record is to be delivered again."""


class Connected:
    """The members that are connected to this server: each once."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], GroupSocket] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def put(self, session: "GroupSocket") -> None:
        """An older connection of the member, which it may not know to be dead, ends. Raises Refused `forbidden` where
        that is another principal's."""
        before = self._sessions.get(session.name)
        if before is not None:
            if not _may_replace(before.actor, session.actor):
                raise problem(
                    "forbidden", "the member is connected, and another principal's: come with an id of your own"
                )
            before.end(problem("fenced_member", "the member came back by another connection; use that one"))
        self._sessions[session.name] = session

    def remove(self, session: "GroupSocket") -> None:
        if self._sessions.get(session.name) is session:
            del self._sessions[session.name]


def _may_replace(before: Actor | None, actor: Actor | None) -> bool:
    return before is None or actor is None or actor.for_others or actor.subject.principal == before.subject.principal


@dataclass(frozen=True, slots=True)
class Joining:
    """A member that joins a group, with the settings it gave."""

    group: str
    member: str
    request: MemberRequest
    values: Values
    attempts_max: int
    returns: bool
    """It was there before."""


class GroupSocket(Session):
    in_group = True

    def __init__(
        self,
        socket: Channel,
        stream: Stream,
        joining: Joining,
        grant: Grant,
        wording: Wording,
        *,
        groups: Groups,
        nacks: Nacks,
        log: LogView,
        fetcher: Fetcher,
        held: Held | None,
        logger: Logger,
    ) -> None:
        super().__init__(socket, stream, wording, held, logger)
        self.feed = Feed(log, fetcher, stream.wake, wanted=RecordFilter(), isolation="wal", held=held)
        self.group, self.member = self.name = joining.group, joining.member
        self._joining = joining
        self._grant = grant
        self._log = log
        self._groups = groups
        self._nacks = nacks
        self._generation = 0
        self._revoked: dict[Key, int] = {}
        """Partitions that the member was told to let go of, and has not yet."""
        self._since: dict[tuple[str, int], int] = {}
        """The generation that the last `assigned` named, by topic and partition."""
        self._waiter: Waiter
        self._change: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = True

    @property
    def actor(self) -> Actor | None:
        return Actor.of(self._grant, self.group)

    async def run(self) -> None:
        with ExitStack() as stack:
            # Before the state is asked for, so that no change is missed.
            self._waiter = stack.enter_context(self._groups.members.waiting(self.group, self.member))
            stack.callback(self._stop)
            await super().run()
        if self.socket.left and self._joining.request.instance_id is None:
            await self._leave()

    def end(self, error: SiltlogError) -> None:
        if isinstance(error, Fenced):
            self._tell("lost", [*self.feed.offsets.items(), *self._revoked.items()])
        super().end(error)

    def survives(self, error: SiltlogError) -> bool:
        """Where a topic ended, the group has others; where retention was faster, the group's policy says what then."""
        if error.error_code in GONE_CODES:
            gone = {key: offset for key, offset in self.feed.offsets.items() if not self._is_there(key)}
            for key in gone:
                self.feed.drop(key)
            self._tell("lost", gone.items())
            self._is_due = True
            return bool(gone)
        policy = self._joining.request.auto_offset_reset or "earliest"
        if isinstance(error, OffsetOutOfRange) and policy != "error":
            key = self._held(error.members["topic"], error.members["partition"])
            end = "log_start_offset" if policy == "earliest" else "high_watermark"
            self.feed.put(key, error.members[end])
            return True
        return False

    def _is_there(self, key: Key) -> bool:
        try:
            find_partition(find_topic(self._log, key.topic, key.topic_id), key.partition)
        except SiltlogError:
            return False
        return True

    async def step(self) -> None:
        if self._is_due or (self._change is not None and self._change.done()):
            self._is_due = False
            try:
                await self._beat()
            except Unavailable as error:
                if self._generation == 0:
                    raise
                # Its session goes on for a while without Redis.
                self._next_beat((error.retry_after_ms or RETRY_MS) / 1000, watch=False)

    async def _beat(self, owned: Iterable[Key] | None = None) -> None:
        first = self._generation == 0
        request = self._joining.request if first else MemberRequest(generation=self._generation)
        if owned is not None:
            request.owned = [PartitionName(key.topic, key.partition) for key in owned]
        await self._told(request, first)
        if first and self._joining.returns:
            # To the group that was a late join, which changes nothing: now what it wants, and what it has not got.
            known = msgspec.structs.replace(self._joining.request, generation=self._generation)
            known.owned = [PartitionName(key.topic, key.partition) for key in self.feed.offsets]
            await self._told(known, False)

    async def _told(self, request: MemberRequest, first: bool) -> None:
        told = await self._groups.members.beat(self.group, self.member, request, self.actor)
        self._waiter.told(told.generation)
        self._generation = told.generation
        self._assign(told, first)
        self._next_beat(told.heartbeat_interval_ms / 1000)

    def _next_beat(self, seconds: float, *, watch: bool = True) -> None:
        self._stop()
        self._change = asyncio.ensure_future(self._waiter.changed()) if watch else None
        if self._change is not None:
            self._change.add_done_callback(lambda _: self.stream.wake())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        self._is_due = True
        self.stream.wake()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._change is not None:
            self._change.cancel()

    def _assign(self, told: Membership, first: bool) -> None:
        if told.assignment is None:
            return
        offsets = dict(told.assignment)
        gone = {key: offset for key, offset in self.feed.offsets.items() if key not in offsets}
        for key in gone:
            self.feed.drop(key)
        self._revoked.update(gone)
        new = {key: offset for key, offset in offsets.items() if key not in self.feed.offsets}
        for key, offset in new.items():
            self._revoked.pop(key, None)
            self._since[key.topic, key.partition] = self._generation
            self.feed.put(key, offset)
        if gone:
            self._tell("revoked", gone.items())
        if new or first:
            self._tell("assigned", new.items())

    def _tell(self, kind: Kind, offsets: Iterable[tuple[Key, int]]) -> None:
        self.socket.send(self.wording.partitions(kind, self.member, self._generation, sorted(offsets)))

    async def _leave(self) -> None:
        try:
            await self._groups.members.leave(self.group, self.member, self.actor)
        except SiltlogError as error:
            # Its session ends by itself.
            self._logger.info("a member could not leave", group=self.group, member=self.member, reason=str(error))

    async def heard(self, message: Commit | Nack | Release) -> None:
        try:
            if isinstance(message, Commit):
                await self._commit(message)
            elif isinstance(message, Nack):
                await self._nack(message)
            else:
                await self._release(message)
        except (Unavailable, OutcomeUnknown) as error:
            self._refuse(error)
        except Refused as error:
            if error.error_code not in WRONG_CODES:
                raise
            self._refuse(error)
        except Fenced as error:
            if "partitions" not in error.members:
                raise
            # Of these partitions alone: they moved while the message was on its way.
            self._refuse(error)
            self._is_due = True

    def _is_late(self, at: SaidOffset | SaidRecord) -> bool:
        """Whether it is about an assignment that has ended: its topic is deleted, and another may have the name."""
        if at.generation is not None and at.generation < self._since.get((at.topic, at.partition), 0):
            return True
        held = [key for key in (*self.feed.offsets, *self._revoked) if key[::2] == (at.topic, at.partition)]
        return not any(map(self._is_there, held))

    async def _commit(self, message: Commit) -> None:
        """What is late, or moved meanwhile, is left out, and the rest committed: each is told."""
        for topic in sorted({at.topic for at in message.offsets}):
            require_read(self._grant, topic)
        late = [at for at in message.offsets if self._is_late(at)]
        while rest := [at for at in message.offsets if at not in late]:
            request = CommitRequest(offsets=[*rest], member_id=self.member, generation=self._generation)
            try:
                await self._groups.offsets.commit(self.group, request, None, self.actor)
            except SiltlogError as error:
                refused = _refused_of(error, rest)
                if not refused:
                    raise
                late += refused
            else:
                self.socket.send(self.wording.committed([(at.topic, at.partition, at.offset) for at in rest]))
                break
        if late:
            raise _too_late(late)

    async def _nack(self, message: Nack) -> None:
        late = [at for at in message.offsets if self._is_late(at)]
        if late:
            raise _too_late(late)
        for at in message.offsets:
            key = self._held(at.topic, at.partition)
            request = DeadLetterRequest(
                topic=at.topic,
                partition=at.partition,
                offset=at.offset,
                member_id=self.member,
                generation=self._generation,
                error=message.error,
            )
            try:
                buried = (await self._nacks.nack(self.group, request, self._joining.attempts_max, self.actor)).buried
            except SiltlogError as error:
                if error.error_code != "records_open":
                    raise
                # Those before it have to be committed, or given up, first.
                self._refuse(error)
                buried = None
            # From there on once more, so that the order in the partition stays; or from before, if that was to come.
            again = at.offset if buried is None else at.offset + 1
            self.feed.put(key, min(again, self.feed.offsets[key]))
            if buried is not None:
                self.socket.send(self.wording.committed([(at.topic, at.partition, at.offset + 1)], dead_lettered=True))

    async def _release(self, message: Release) -> None:
        for at in message.partitions:
            for key in [key for key in self._revoked if key[::2] == (at.topic, at.partition)]:
                del self._revoked[key]
        await self._beat([*self.feed.offsets, *self._revoked])

    def _held(self, topic: str, partition: int) -> Key:
        for key in self.feed.offsets:
            if key.topic == topic and key.partition == partition:
                return key
        raise problem(
            "fenced_member",
            f"{topic}/{partition} is not this member's (any more): it is delivered to whose it is",
            partitions=[{"topic": topic, "partition": partition}],
        )

    def _refuse(self, error: SiltlogError) -> None:
        """Says what is wrong, and goes on."""
        self.socket.send(self.wording.problem(error, self.socket.request_id))


def _refused_of(error: SiltlogError, offsets: Sequence[SaidOffset]) -> list[SaidOffset]:
    """Finds those for which a commit of all was refused: their partition moved, or their topic ended."""
    if error.error_code in GONE_CODES:
        return [at for at in offsets if at.topic == error.members.get("topic")]
    if isinstance(error, Fenced):
        moved = [(one["topic"], one["partition"]) for one in error.members.get("partitions", ())]
        return [at for at in offsets if (at.topic, at.partition) in moved]
    return []


def _too_late(late: Sequence[SaidOffset | SaidRecord]) -> SiltlogError:
    return problem(
        "fenced_member",
        "what was said is of an assignment that has ended, or of a topic that was deleted: drop what came of it, "
        "and go on with the last",
        partitions=[{"topic": at.topic, "partition": at.partition} for at in late],
    )
