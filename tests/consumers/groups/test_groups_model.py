"""Random lives of a group on a real Valkey, against what must hold after every step."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chaos import CHAOS
from groups_rig import FakeLog, Rig, rig
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from pytest import MonkeyPatch, fixture, mark

from siltlog.consumers.groups.messages import (
    CommitRequest,
    CommittedOffset,
    GroupState,
    MemberRequest,
    Membership,
    PartitionName,
)
from siltlog.infra.errors import SiltlogError

PARTITIONS = 5
SESSION_MS = 100_000
REBALANCE_MS = 150_000


@dataclass
class Client:
    """A consumer that does as it is told, and everything it ever sent."""

    name: str
    generation: int = 0
    owned: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    """What it may read; it still has in `owned` what it is to let go."""
    sent: list[MemberRequest] = field(default_factory=list)
    gone: bool = False


class Life(RuleBasedStateMachine):
    url = ""
    clients: Bundle[Client] = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.log = FakeLog(t=PARTITIONS)
        for partition in self.log.topic("t").partitions:
            partition.end = 10**9
        self.context = rig(self.url, self.log)
        self.rig: Rig = self.do(self.context.__aenter__())
        self.number = 0
        self.everyone: list[Client] = []
        self.generation = 0
        self.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.assigned: dict[int, tuple[str, int]] = {}
        """Partition -> its holder as last seen, and the generation before which it cannot have been granted."""

    def do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def state(self) -> GroupState:
        state: GroupState = self.do(self.rig.groups.describe("g"))
        return state

    def send(self, client: Client, request: MemberRequest) -> Membership | None:
        try:
            told: Membership = self.do(self.rig.groups.members.heartbeat("g", client.name, request))
        except SiltlogError as error:
            assert error.error_code in ("fenced_member", "unknown_member")
            client.gone = True
            client.owned = client.told = set()
            return None
        return told

    def beat(self, client: Client) -> None:
        owned = [PartitionName("t", number) for number in sorted(client.owned & client.told)]
        request = MemberRequest(generation=client.generation, owned=owned)
        client.sent.append(request)
        told = self.send(client, request)
        if told is None:
            return
        client.owned &= client.told
        client.generation = told.generation
        if told.assignment is not None:
            client.told = {position.key.partition for position in told.assignment}
            client.owned |= client.told

    @initialize(target=clients)
    def first(self) -> Client:
        return self.join()

    @rule(target=clients)
    def join(self) -> Client:
        self.number += 1
        client = Client(f"m{self.number}")
        told = self.send(
            client, MemberRequest(topics=["t"], session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS)
        )
        assert told is not None and told.assignment is not None
        client.generation = told.generation
        client.told = {position.key.partition for position in told.assignment}
        client.owned = set(client.told)
        self.everyone.append(client)
        return client

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        if not client.gone:
            self.beat(client)

    @rule(client=clients, index=st.integers(0, 100))
    def delayed_heartbeat(self, client: Client, index: int) -> None:
        """One sent long ago arrives again: it takes nothing from anybody."""
        old = [request for request in client.sent if request.generation < client.generation]
        if client.gone or not old or any(at.generation == client.generation for at in client.sent) is False:
            return
        before = self.state()
        told = self.send(client, old[index % len(old)])
        if told is None:
            return
        after = self.state()
        assert told.assignment is not None
        assert {m.member: m.partitions for m in before.members} == {m.member: m.partitions for m in after.members}

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        held = {m.member: set(m.partitions) for m in self.state().members}
        self.do(self.rig.groups.members.leave("g", client.name))
        if not client.gone:
            for member in self.state().members:
                assert held[member.member] <= set(member.partitions), "only the leaver's partitions move at once"
        client.gone = True
        client.owned = client.told = set()

    @rule(seconds=st.sampled_from([1, 40, 101, 160]))
    def time_passes(self, seconds: int) -> None:
        self.do(self.rig.redis.pass_ms(seconds * 1000))

    @rule()
    def sweep(self) -> None:
        self.do(self.rig.tick())

    @rule(client=clients, partition=st.integers(0, PARTITIONS - 1), older=st.integers(0, 3))
    def commit(self, client: Client, partition: int, older: int) -> None:
        state = self.state()
        generation = client.generation if older != 3 else client.generation - 1
        holder = next((m.member for m in state.members if partition in {key.partition for key in m.partitions}), None)
        offset = self.committed[partition] + 1
        entry = CommittedOffset("t", partition, offset)
        try:
            self.do(self.rig.groups.offsets.commit("g", CommitRequest([entry], client.name, generation)))
        except SiltlogError as error:
            assert error.error_code == "fenced_member"
            assert holder != client.name or generation < self.granted_at(partition, client) or older == 3
            return
        assert holder == client.name, "only the present holder commits"
        self.committed[partition] = offset

    def granted_at(self, partition: int, client: Client) -> int:
        """The last moment at which the client had not been told of the partition; 0 when it has it."""
        return 0 if partition in client.owned else client.generation + 1

    @rule()
    def scripts_are_lost(self) -> None:
        self.do(self.rig.redis.command("SCRIPT", "FLUSH"))

    @invariant()
    def one_holder_each(self) -> None:
        if not self.everyone:
            return
        state = self.state()
        assert state.generation >= self.generation, "generations rise"
        self.generation = state.generation
        holders = Counter(key.partition for member in state.members for key in member.partitions)
        assert all(count == 1 for count in holders.values())
        offsets = {entry.key.partition: entry.offset for entry in state.offsets}
        assert {number: offsets.get(number, 0) for number in self.committed} == self.committed
        # A member that lives holds in its own eyes nothing that another holds in Redis.
        alive = {member.member: {key.partition for key in member.partitions} for member in state.members}
        for client in self.everyone:
            if client.name in alive:
                assert client.owned <= alive[client.name]

    def teardown(self) -> None:
        """Left alone, with members that go on: everything is held, evenly, and stays."""
        try:
            for _ in range(4):
                for client in self.everyone:
                    if not client.gone:
                        self.beat(client)
            living = [client for client in self.everyone if not client.gone]
            if living:
                state = self.state()
                assert state.state == "stable"
                loads = sorted(len(member.partitions) for member in state.members)
                assert sum(loads) == PARTITIONS and loads[-1] - loads[0] <= 1
                held = {m.member: {key.partition for key in m.partitions} for m in state.members}
                assert held == {client.name: client.owned for client in living}
        finally:
            self.do(self.context.__aexit__(None, None, None))
            self.loop.close()


pytestmark = mark.chaos


@fixture(autouse=True)
def _url(valkey_url: str, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(Life, "url", valkey_url)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=30 * CHAOS, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
