"""A seeded world of members, servers and a network around one group in a real Valkey.

Time is the world's own. Every call to Valkey waits for its turn and its reply waits for another, so the seed decides in
which order the calls of all servers take effect and where a server that is killed had come to.
"""

import asyncio
import math
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from groups_rig import FakeLog, SkewedRedis, StandingRedis

from siltlog.consumers.groups.groups import Groups
from siltlog.consumers.groups.messages import (
    CommitRequest,
    CommittedOffset,
    Committing,
    MemberRequest,
    Membership,
    PartitionName,
    Timeouts,
)
from siltlog.consumers.kafka.consumer_members import UNCHANGED, Beat, ConsumerMembers, Told
from siltlog.consumers.kafka.epoch import EPOCH_MAX, epoch_of, generation_of
from siltlog.infra.clock import SystemClock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.kafka.errors import KafkaError
from siltlog.infra.redis.connection import Script
from siltlog.infra.redis.keys import GROUP_PARTS, group_key
from siltlog.infra.telemetry import logger

STEP_MS = 500
SESSION_MS = 10_000
REBALANCE_MS = 12_000
ANSWER_MS = 3_000
"""After which a client gives a call up; it may still take effect."""
LATE_MS = 15_000
"""How late a call that was sent twice arrives the second time."""
AWAY_MS = 2_000
DEAD_OWNER_MS = SESSION_MS + ANSWER_MS + LATE_MS + AWAY_MS + 3_000
NO_OWNER_MS = 6_000 + AWAY_MS
MOVING_MS = REBALANCE_MS + NO_OWNER_MS
PARTITIONS = 6
RECORDS = 10**9
SERVERS = 2
CLIENTS = 5
TURNS_PER_STEP = (20, 30, 60)
"""A step of few turns has calls last for several steps."""
At = tuple[str, int]
"""`{topic}/{topic id}` and partition."""
Call = Callable[[Groups], Coroutine[Any, Any, Any]]


class VirtualClock(SystemClock):
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class Turns:
    """Calls that wait until it is their turn to be sent, or their reply's to arrive."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waiting: list[tuple[asyncio.Future[None], asyncio.Event | None]] = []

    async def wait(self, ended: asyncio.Event | None) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, ended))
        await turn

    async def next(self) -> bool:
        """Lets one of them go on as far as it comes; False when there is none."""
        self._waiting = [entry for entry in self._waiting if not entry[0].done()]
        if not self._waiting:
            return False
        turn, ended = self._waiting.pop(self._rng.randrange(len(self._waiting)))
        turn.set_result(None)
        if ended is not None:
            await ended.wait()
        await quiet()
        return True


async def quiet() -> None:
    """Until every task waits for a turn."""
    for _ in range(12):
        await asyncio.sleep(0)


class TurnRedis(StandingRedis):
    """`on_effect` is told of each transition as it takes effect, whether or not anybody will hear of it.

    While `is_away()` a call is refused before it takes effect, or its reply is lost.
    """

    def __init__(
        self, url: str, turns: Turns, on_effect: Callable[[Any, Any], None], is_away: Callable[[], bool]
    ) -> None:
        super().__init__(url)
        self._turns = turns
        self._is_away = is_away
        self.on_effect = on_effect

    async def in_turn(self, call: Callable[[], Awaitable[Any]]) -> Any:
        ended = asyncio.Event()
        await self._turns.wait(ended)
        try:
            self._check_there()
            reply = await call()
        finally:
            ended.set()
        await self._turns.wait(None)
        self._check_there()
        return reply

    def _check_there(self) -> None:
        if self._is_away():
            raise problem("coordinator_unavailable", "Redis is away")

    def script(self, text: str) -> Script:
        return TurnScript(self, super().script(text))

    async def command(self, *arguments: str | bytes | int) -> Any:
        call = super().command
        return await self.in_turn(lambda: call(*arguments))

    async def commands(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
        call = super().commands
        replies: list[Any] = await self.in_turn(lambda: call(commands))
        return replies


class TurnScript(Script):
    def __init__(self, redis: TurnRedis, script: Script) -> None:
        self._redis, self._real = redis, script

    async def __call__(self, keys: Sequence[str], request: Any) -> Any:
        async def call() -> Any:
            reply = await self._real(keys, request)
            self._redis.on_effect(request, reply)
            return reply

        return await self._redis.in_turn(call)


@dataclass
class Server:
    groups: Groups
    redis: TurnRedis
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    ticking: asyncio.Task[None] | None = None


@dataclass
class Tenure:
    """A client's holding of a partition, from when it was told until it let go."""

    position: int
    began: int
    """How many commits of the partition had been accepted by then."""


def id_of(topic: str) -> str:
    """The id in `{topic}/{topic id}`."""
    return topic.partition("/")[2]


@dataclass
class Client:
    """A consumer that keeps to the interface. With `instance` it comes back under that, and another id."""

    name: str
    instance: str | None
    is_kafkas: bool = False
    """It speaks as clients of Kafka do: after it was fenced it joins under the same id."""
    generation: int = 0
    tenures: dict[At, Tenure] = field(default_factory=dict)
    clinging: set[At] = field(default_factory=set)
    """Revoked, and not let go yet."""
    clings_until: float = 0.0
    call: asyncio.Task[Any] | None = None
    on_reply: Callable[["Client", Any], None] | None = None
    gives_up_at: float = 0.0
    next_beat_at: float = 0.0
    stalled_until: float = 0.0
    gone: bool = False


class World:
    def __init__(self, url: str, seed: int, *, with_kafkas: bool = False) -> None:
        """Half of the members are clients of Kafka `with_kafkas`."""
        self.rng = random.Random(seed)
        self._with_kafkas = with_kafkas
        self.rejoins = 0
        self.clock = VirtualClock()
        self.log = FakeLog()
        self.log.create("t", PARTITIONS, end=RECORDS)
        self.log.create("u", 2, end=RECORDS)
        self.redis = SkewedRedis(url)
        self._url = url
        self._turns = Turns(self.rng)
        self._turns_per_step = self.rng.choice(TURNS_PER_STEP)
        self.servers: list[Server] = []
        self.clients: list[Client] = []
        self.evictions = self.fenced_commits = self.losses = self.kills = 0
        self.broken: list[BaseException] = []
        self._starting: list[float] = []
        self._late: list[tuple[float, Call]] = []
        self._number = 0
        self._processed: dict[At, int] = {}
        self._commits: dict[At, list[str]] = {}
        """Tells who committed, in the order in which it took effect."""
        self._generations: set[int] = set()
        self._moving: dict[At, float] = {}
        """Since when it is on its way."""
        self._owned_by: dict[At, tuple[str | None, float]] = {}
        """Owner in Redis, and since when it is nobody, or nobody who goes on."""
        self._stored: list[tuple[dict[str, bytes | None], dict[At, list[str]]]] = []
        self._moves_again_at = 0.0
        self._away_until = 0.0
        """Redis."""
        self._faults = True

    async def live(self, seconds: float) -> None:
        """Everything that can go wrong does; raises AssertionError as soon as something that must hold does not."""
        await self.redis.command("FLUSHALL")
        for _ in range(SERVERS):
            self._start_server()
        for number in range(CLIENTS):
            self._new_client(f"i{number}" if number % 2 else None)
        for _ in range(int(seconds * 1000) // STEP_MS):
            await self._step()

    async def settle(self) -> None:
        """Nothing goes wrong any more: every partition is read, by those who are left, as evenly as can be."""
        self._faults = False
        for _ in range((2 * SESSION_MS + 2 * REBALANCE_MS + LATE_MS) // STEP_MS):
            await self._step()
        held = await self._held()
        names_alive = {client.name for client in self.clients if not client.gone}
        assert set(held) == names_alive
        loads = sorted(map(len, held.values()))
        assert loads[-1] - loads[0] <= 1
        for client in self.clients:
            if not client.gone:
                assert set(client.tenures) == held[client.name]
        assert {at for parts in held.values() for at in parts} == self._partitions()

    async def close(self) -> None:
        for server in self.servers:
            await self._end(server)
        await self.redis.close()

    # --- time ---------------------------------------------------------------------------------------------
    async def _step(self) -> None:
        await self.redis.pass_ms(STEP_MS)
        self.clock.now_s += STEP_MS / 1000
        await self._go_wrong()
        for at_ms, call in [entry for entry in self._late if entry[0] <= self._now_ms]:
            self._late.remove((at_ms, call))
            self._to_any(call)
        for server in self.servers:
            if server.ticking is None or server.ticking.done():
                server.ticking = self._start(server, server.groups._runner.tick())
        self.rng.shuffle(self.clients)
        for client in list(self.clients):
            self._act(client)
        await quiet()
        for _ in range(self.rng.randrange(self._turns_per_step // 3, self._turns_per_step) if self._faults else 10_000):
            if not await self._turns.next():
                break
        assert not self.broken, self.broken
        await self._look()

    @property
    def _now_ms(self) -> float:
        return self.clock.now_s * 1000

    def _chance(self, probability: float) -> bool:
        return self._faults and self.rng.random() < probability

    async def _go_wrong(self) -> None:
        for at_ms in [at_ms for at_ms in self._starting if at_ms <= self._now_ms]:
            self._starting.remove(at_ms)
            self._start_server()
        if self._chance(0.04) and len(self.servers) > 1:
            self.kills += 1
            await self._end(self.servers.pop(self.rng.randrange(len(self.servers))))
            self._starting.append(self._now_ms + self.rng.uniform(0, 5_000))
        if self._chance(0.02) and self._stored:
            await self._lose_the_last_second()
        if self._chance(0.03):
            self._away_until = self._now_ms + self.rng.uniform(0, AWAY_MS)
        if self._chance(0.02):
            topic = self.log.topic("t")
            grown = self.log.create("t", min(len(topic.partitions) + 1, 2 * PARTITIONS), end=RECORDS)
            grown.topic_id = topic.topic_id
        if self._chance(0.02):
            self.log.create("u", self.rng.randrange(1, 4), end=RECORDS)

    async def _lose_the_last_second(self) -> None:
        self.losses += 1
        content, self._commits = self._stored[0]
        for key, dumped in content.items():
            await self.redis.command("DEL", key)
            if dumped is not None:
                await self.redis.command("RESTORE", key, 0, dumped)
        await self.redis.command("HSET", group_key("g", "state"), "run_id", f"{self.losses:040x}")
        self._stored.clear()
        await self._store()
        self._moves_again_at = self._now_ms + SESSION_MS

    async def _store(self) -> None:
        keys = [group_key("g", part) for part in GROUP_PARTS]
        content = {key: await self.redis.command("DUMP", key) for key in keys}
        self._stored.append((content, {at: list(members) for at, members in self._commits.items()}))
        del self._stored[:-2]

    # --- servers ------------------------------------------------------------------------------------------
    def _start_server(self) -> None:
        redis = TurnRedis(self._url, self._turns, self._on_effect, lambda: self._now_ms < self._away_until)
        # Clients of Kafka have what the server gives them.
        timeouts = Timeouts(session_ms_max=SESSION_MS)
        groups = Groups(redis, self.log, self.clock, logger("critical", "console"), timeouts=timeouts)
        self.servers.append(Server(groups, redis))

    async def _end(self, server: Server) -> None:
        """Killed: what it had sent has taken effect, what it had not has not."""
        calls = list(server.calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await server.redis.close()

    def _start(self, server: Server, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        server.calls.add(task)
        task.add_done_callback(lambda task: self._ended(server, task))
        return task

    def _ended(self, server: Server, task: asyncio.Task[Any]) -> None:
        server.calls.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SiltlogError):
            self.broken.append(error)

    def _to_any(self, call: Call) -> asyncio.Task[Any]:
        server = self.rng.choice(self.servers)
        return self._start(server, call(server.groups))

    def _on_effect(self, request: Any, reply: Any) -> None:
        if reply["generation"] != reply["generation_before"]:
            assert reply["generation"] not in self._generations, "a generation is never issued twice"
            self._generations.add(reply["generation"])
            assert 0 < epoch_of(reply["generation"]) < EPOCH_MAX and reply["generation"] % 1_000 == 0, reply[
                "generation"
            ]
        if reply["status"] == "fenced_commits":
            self.fenced_commits += 1
        elif reply["status"] == "ok":
            for text, offset, began in request.get("commits", ()):
                at = _at(text)
                assert offset <= self._processed[at], "what is committed has been read"
                commits = self._commits.setdefault(at, [])
                others = {member for member in commits[int(began) :] if member != request["member"]}
                assert not others, f"{others} committed {at} in the tenure of {request['member']}"
                commits.append(request["member"])

    # --- members ------------------------------------------------------------------------------------------
    def _new_client(self, instance: str | None) -> None:
        self._number += 1
        is_kafkas = self._with_kafkas and self.rng.random() < 0.5
        self.clients.append(Client(f"m{self._number}", instance, is_kafkas))

    def _replace(self, client: Client) -> None:
        client.gone = True
        self.clients.remove(client)
        self._new_client(client.instance)

    def _send(self, client: Client, call: Call, on_reply: Callable[[Client, Any], None], *, once: bool = False) -> None:
        """Sends it to any server. The network may lose it, or carry it twice; what goes `once` it does not."""
        client.gives_up_at = self._now_ms + ANSWER_MS
        client.on_reply = on_reply
        if once:
            client.gives_up_at = math.inf
            client.call = self._to_any(call)
            return
        if self._chance(0.12):
            self._late.append((self._now_ms + self.rng.uniform(0, LATE_MS), call))
        client.call = None if self._chance(0.08) else self._to_any(call)

    def _act(self, client: Client) -> None:
        if self._now_ms < client.stalled_until:
            return
        if client.on_reply is not None:
            self._hear(client)
        elif self._chance(0.02):
            self._replace(client)  # crashed; another is started at once
        elif self._chance(0.02):
            client.stalled_until = self._now_ms + self.rng.uniform(2_000, 2.5 * SESSION_MS)
        elif self._chance(0.006):
            name = client.name
            self._replace(client)
            self._to_any(lambda groups: groups.members.leave("g", name))
        elif self._now_ms >= client.next_beat_at:
            self._beat(client)
        else:
            self._work(client)

    def _hear(self, client: Client) -> None:
        call, on_reply = client.call, client.on_reply
        assert on_reply is not None
        if call is not None and call.done() and not call.cancelled():
            client.call = client.on_reply = None
            error = call.exception()
            if error is None and not self._chance(0.08):
                on_reply(client, call.result())
            elif isinstance(error, SiltlogError) and error.error_code in ("unknown_topic", "coordinator_unavailable"):
                return
            elif isinstance(error, SiltlogError) and "partitions" in error.members:
                for at in [
                    at
                    for at in client.tenures
                    if {"topic": at[0].split("/")[0], "partition": at[1]} in error.members["partitions"]
                ]:
                    del client.tenures[at]
                    client.clinging.discard(at)
            elif isinstance(error, SiltlogError) and error.error_code in ("fenced_member", "unknown_member"):
                self.evictions += 1
                self._replace(client)
            elif error is not None:
                raise error
        elif self._now_ms >= client.gives_up_at or (call is not None and call.cancelled()):
            client.call = client.on_reply = None

    def _beat(self, client: Client) -> None:
        client.next_beat_at = self._now_ms + self.rng.uniform(500, 2_500)
        if self._now_ms >= client.clings_until:
            for at in client.clinging:
                del client.tenures[at]
            client.clinging = set()
        if client.is_kafkas:
            beat = self._kafkas_beat(client)
            # One that begins anew comes by a connection of its own, and nothing that was sent before it comes later.
            self._send(client, beat, self._kafka_told, once=client.generation == 0)
            return
        request = MemberRequest(
            generation=client.generation,
            owned=[PartitionName(topic.split("/")[0], number) for topic, number in sorted(client.tenures)],
        )
        if client.generation == 0:
            request.topics, request.instance_id = ["t", "u"], client.instance
            request.session_timeout_ms, request.rebalance_timeout_ms = SESSION_MS, REBALANCE_MS
        self._send(client, lambda groups: groups.members.heartbeat("g", client.name, request), self._told)

    def _told(self, client: Client, told: Membership) -> None:
        if told.assignment is None:
            assert told.generation >= client.generation, "no member is told of a lower one"
            client.generation = told.generation
            return
        mine = {(f"{key.topic}/{key.topic_id}", key.partition): offset for key, offset in told.assignment}
        self._heard(client, told.generation, mine)

    def _heard(self, client: Client, generation: int, mine: dict[At, int]) -> None:
        """It is told of all that it may read, and where to begin."""
        assert generation >= client.generation, "no member is told of a lower one"
        client.generation = generation
        for at, offset in mine.items():
            assert offset <= self._processed.get(at, 0), "nothing that nobody has read is passed over"
            client.clinging.discard(at)
            client.tenures.setdefault(at, Tenure(offset, len(self._commits.get(at, ()))))
        revoked = set(client.tenures) - set(mine)
        if revoked - client.clinging and self._chance(0.3):
            client.clings_until = self._now_ms + self.rng.uniform(0, 1.5 * REBALANCE_MS)
        client.clinging = revoked

    def _kafkas_beat(self, client: Client) -> Call:
        """A heartbeat, and the offsets of what it brings."""
        owned: dict[bytes, list[int]] = {}
        for topic, number in sorted(client.tenures):
            owned.setdefault(_topic_id(topic), []).append(number)
        joins = client.generation == 0
        beat = Beat(
            member_id=client.name,
            epoch=epoch_of(client.generation),
            instance_id=client.instance,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=REBALANCE_MS if joins else UNCHANGED,
            topics=["t", "u", "none"] if joins else None,
            pattern=None,
            assignor=None,
            owned={} if joins else owned,
        )

        async def call(groups: Groups) -> tuple[Told, dict[At, int]]:
            known = {uuid.UUID(topic.topic_id).bytes: topic for topic in self.log.topics()}
            names_of = {topic_id: topic.name for topic_id, topic in known.items()}
            told = await ConsumerMembers(groups).heartbeat("g", beat, names_of, None)
            if told.assignment is None:
                return told, {}
            mine = [
                (f"{known[topic_id].name}/{known[topic_id].topic_id}", number)
                for topic_id, numbers in told.assignment.items()
                if topic_id in known
                for number in numbers
            ]
            asked = [PartitionName(topic.split("/")[0], number) for topic, number in mine]
            found = await groups.offsets.committed("g", asked) if asked else {}
            offsets = {(key.topic_text(), key.partition): entry.offset for key, entry in found.items()}
            return told, {at: offsets.get(at, 0) for at in mine}

        return call

    def _kafka_told(self, client: Client, answer: tuple[Told, dict[At, int]]) -> None:
        told, mine = answer
        if told.error in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH):
            self._rejoin(client)
        elif told.error == KafkaError.FENCED_INSTANCE_ID:
            self.evictions += 1
            self._replace(client)
        elif told.assignment is None:
            assert not told.error, told
            client.generation = generation_of(told.epoch)
        else:
            self._heard(client, generation_of(told.epoch), mine)

    def _rejoin(self, client: Client) -> None:
        self.rejoins += 1
        client.generation = 0
        client.tenures.clear()
        client.clinging = set()

    def _kafkas_commit(self, client: Client, request: CommitRequest, chosen: str) -> Call:
        name, _, topic_id = chosen.partition("/")

        async def call(groups: Groups) -> Committing:
            if self.log.topic(name).topic_id != topic_id:
                return Committing("ok")
            return await groups.offsets.try_commit("g", request)

        return call

    def _kafka_committed(self, client: Client, told: Committing) -> None:
        if told.status == "unknown_member":
            self._rejoin(client)
        for key in told.fenced:
            client.tenures.pop((key.topic_text(), key.partition), None)
            client.clinging.discard((key.topic_text(), key.partition))

    def _work(self, client: Client) -> None:
        """Reads a few records of each partition and commits those of one topic."""
        chosen, offsets = self._read_on(client)
        if not offsets:
            return
        request = CommitRequest(offsets, client.name, client.generation)
        if client.is_kafkas:
            self._send(client, self._kafkas_commit(client, request, chosen), self._kafka_committed)
            return
        self._send(client, lambda groups: groups.offsets.commit("g", request, id_of(chosen)), lambda *_: None)

    def _read_on(self, client: Client) -> tuple[str, list[CommittedOffset]]:
        """Reads a few records of each partition; gives one of the topics, and how far the client is there."""
        for at, tenure in client.tenures.items():
            tenure.position += self.rng.randrange(5)
            self._processed[at] = max(self._processed.get(at, 0), tenure.position)
        topics = sorted({topic for topic, _ in client.tenures})
        if not topics:
            return "", []
        chosen = self.rng.choice(topics)
        name = chosen.partition("/")[0]
        offsets = [
            CommittedOffset(name, number, tenure.position, str(tenure.began))
            for (topic, number), tenure in client.tenures.items()
            if topic == chosen
        ]
        return chosen, offsets

    # --- what must hold -----------------------------------------------------------------------------------
    def _partitions(self) -> set[At]:
        return {
            (f"{topic.name}/{topic.topic_id}", partition.partition)
            for topic in self.log.topics()
            for partition in topic.partitions
        }

    async def _held(self) -> dict[str, set[At]]:
        fields = await self.redis.command("HGETALL", group_key("g", "held"))
        packed = zip(fields[::2], fields[1::2], strict=True) if isinstance(fields, list) else fields.items()
        return {name.decode(): {_at(text) for text in msgspec.msgpack.decode(held)["parts"]} for name, held in packed}

    async def _owners(self) -> dict[At, str]:
        fields = await self.redis.command("HGETALL", group_key("g", "owners"))
        pairs = zip(fields[::2], fields[1::2], strict=True) if isinstance(fields, list) else fields.items()
        return {_at(text.decode()): owner.decode() for text, owner in pairs}

    async def _look(self) -> None:
        await self._store()
        owners, held = await self._owners(), await self._held()
        assert owners == {at: member for member, parts in held.items() for at in parts}, "one owner each"
        settled = self._now_ms >= self._moves_again_at
        moving = [_at(text.decode()) for text in await self.redis.command("HKEYS", group_key("g", "moves"))]
        self._moving = {at: self._moving.get(at, self._now_ms) for at in moving if settled}
        for at, since in self._moving.items():
            assert self._now_ms - since <= MOVING_MS, f"{at} is on its way too long"
        for client in self.clients:
            if settled and client.name in held:
                assert set(client.tenures) & self._partitions() <= held[client.name], (
                    f"{client.name} reads what it does not hold"
                )
        alive = {client.name for client in self.clients if self._now_ms >= client.stalled_until}
        for at in self._partitions():
            owner = owners.get(at)
            before, since = self._owned_by.get(at, (owner, self._now_ms))
            if owner in alive or owner != before or not settled:
                since = self._now_ms
            self._owned_by[at] = (owner, since)
            allowed_ms = NO_OWNER_MS if owner is None else DEAD_OWNER_MS
            assert self._now_ms - since <= allowed_ms, f"{at} waits for {owner} too long"


def _topic_id(topic: str) -> bytes:
    return uuid.UUID(topic.partition("/")[2]).bytes


def _at(text: str) -> At:
    topic, _, number = text.rpartition("/")
    return topic, int(number)
