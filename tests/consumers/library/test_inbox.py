"""The consumer's core over a simulated network that loses, delays and reorders, against a model of a group.

Several members read a log with gaps, come and go, are thrown out, seek, pause, iterate and commit, while requests,
their answers and heartbeats are lost or late. Whatever happens: within one assignment no record is skipped or handed
out twice, nothing is committed that is not done, and in the end every record was handed out and is committed.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from chaos import CHAOS
from hypothesis import given, settings
from hypothesis import strategies as st

from siltlog.consumers.library.inbox import Inbox
from siltlog.consumers.library.member import Beat, Goodbye
from siltlog.consumers.library.options import ConsumerOptions
from siltlog.consumers.library.positions import Fetch, PartitionState
from siltlog.consumers.library.program import Program, Tell
from siltlog.consumers.library.sources.server import SERVER, Fetched
from siltlog.infra.client.core import Request, Response
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable, problem
from siltlog.infra.records import Bounds

MOMENT = datetime(2026, 11, 21, tzinfo=UTC)
SESSION_MS = 4_000


class CallbackFailed(Exception):
    """What a user's callback may raise."""


class SimulatedClock:
    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing without IO sleeps")


@dataclass
class GroupMemberModel:
    seen: int = 0
    expires: float = 0.0
    changed: int = 0
    parts: dict[TopicPartition, list[int]] = field(default_factory=dict)
    """When each partition that it holds was assigned, and when it was revoked (0: it was not)."""


class GroupModel:
    """What a server does with heartbeats and commits, as the contract says it."""

    def __init__(self, clock: SimulatedClock, partitions: int) -> None:
        self.clock = clock
        self.logs: dict[TopicPartition, list[int]] = {TopicPartition("t", p): [] for p in range(partitions)}
        self.ends = dict.fromkeys(self.logs, 0)
        self.starts = dict.fromkeys(self.logs, 0)
        self.committed = dict.fromkeys(self.logs, 0)
        self.members: dict[str, GroupMemberModel] = {}
        self.fenced: set[str] = set()
        self.generation = 1_000

    def bounds(self, at: TopicPartition) -> Bounds:
        return Bounds(self.starts[at], self.starts[at], self.ends[at])

    def call(self, request: Request) -> Any:
        document = msgspec.json.decode(b"".join(request.body)) if request.body else {}
        match request.method, *request.path.split("/")[2:]:
            case "PUT", "groups", _, "members", member:
                return self.heartbeat(member, document)
            case "DELETE", "groups", _, "members", member:
                self.drop(member)
                return None
            case "PUT", "groups", _, "offsets":
                return self.commit(document)
            case "GET", "topics", _, "offsets":
                return {
                    "topic_id": "x",
                    "partitions": [{"partition": at.partition, **self.bounds(at)._asdict()} for at in self.logs],
                }
        raise AssertionError(request)

    def heartbeat(self, member: str, asked: dict[str, Any]) -> Any:
        self.expire()
        if member in self.fenced:
            raise problem("fenced_member", "it left or was fenced")
        known = self.members.get(member)
        if known is None:
            if asked["generation"] != 0:
                raise problem("unknown_member", "it is not known")
            known = self.members[member] = GroupMemberModel()
            self.rebalance()
        known.expires = self.clock.seconds + SESSION_MS / 1000
        if asked["generation"] >= known.seen:
            known.seen = asked["generation"]
            if "owned" in asked:
                owned = {TopicPartition(one["topic"], one["partition"]) for one in asked["owned"]}
                for at, (_, revoked) in list(known.parts.items()):
                    if 0 < revoked <= asked["generation"] and at not in owned:
                        del known.parts[at]
                self.rebalance()
        assignment = None
        if known.changed > asked["generation"]:
            assignment = [
                {"topic": at.topic, "partition": at.partition, "offset": max(self.committed[at], self.starts[at])}
                for at, (_, revoked) in known.parts.items()
                if not revoked
            ]
        return {"generation": self.generation, "assignment": assignment, "heartbeat_interval_ms": 1}

    def rebalance(self) -> None:
        """Round robin; a partition that somebody holds is revoked there first."""
        self.generation += 1
        names = sorted(self.members)
        for index, at in enumerate(self.logs):
            target = names[index % len(names)] if names else None
            holder = next((name for name in names if at in self.members[name].parts), None)
            if holder is None:
                if target is not None:
                    self.members[target].parts[at] = [self.generation, 0]
                    self.members[target].changed = self.generation
            elif holder != target and not self.members[holder].parts[at][1]:
                self.members[holder].parts[at][1] = self.generation
                self.members[holder].changed = self.generation

    def expire(self) -> None:
        for name, member in list(self.members.items()):
            if member.expires < self.clock.seconds:
                self.drop(name)

    def drop(self, member: str) -> None:
        self.fenced.add(member)
        if self.members.pop(member, None) is not None:
            self.rebalance()

    def commit(self, document: dict[str, Any]) -> None:
        self.expire()
        member = self.members.get(document["member_id"])
        offsets = {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in document["offsets"]}
        for at, offset in offsets.items():
            held = None if member is None else member.parts.get(at)
            if held is None or not held[0] <= document["generation"] <= self.generation:
                partitions = [{"topic": at.topic, "partition": at.partition}]
                raise problem("fenced_member", f"it does not hold {at}", partitions=partitions)
            if not self.starts[at] <= offset <= self.ends[at]:
                raise problem("invalid_request", "outside of the log")
        self.committed |= offsets

    def fetch(self, fetch: Fetch, count: int) -> list[Fetched]:
        found = []
        for wanted in fetch.plan.wanted:
            at, offset = wanted.at, wanted.offset
            if not self.starts[at] <= offset <= self.ends[at]:
                error = problem("offset_out_of_range", f"{offset} is outside of {self.bounds(at)}")
                found.append(Fetched(at, offset, None, self.bounds(at), error))
                continue
            offsets = [one for one in self.logs[at] if one >= offset][:count]
            after = offsets[-1] + 1 if len(offsets) == count else self.ends[at]
            rows = [
                {"topic": at.topic, "partition": at.partition, "offset": one, "timestamp": MOMENT, "value": b"v"}
                for one in offsets
            ]
            found.append(Fetched(at, after, pa.Table.from_pylist(rows, FETCH_SCHEMA), self.bounds(at)))
        return found


@dataclass(eq=False)
class Tenure:
    """A partition as one member has it, from its assignment on or from its last seek."""

    next: int
    undone: int
    member_id: str


class Member:
    """One consumer, whose programs go on a step at a time."""

    def __init__(self, world: "Simulation", number: int) -> None:
        self.world = world
        self.inbox = Inbox(
            ConsumerOptions(
                group="g", topics=["t"], topic_pattern=None, assign=[], auto_offset_reset="earliest",
                auto_commit=world.chosen.random() < 0.7, auto_commit_interval_ms=700, isolation="wal", read="auto",
                stop_at=None, idle_timeout_ms=None, buffer_bytes=64 * 1024, session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=9_000, max_poll_interval_ms=3_000, retry_timeout_ms=10**9,
                client_id=f"m{number}", instance_id=None,
                on_assigned=lambda _: None, on_revoked=lambda _: None, on_lost=lambda _: None,
            ),
            world.clock,
            lambda wanted, _: world.chosen.choice((SERVER, "table")),
        )  # fmt: skip
        self.tenures: dict[PartitionState, Tenure] = {}
        self.fetches: list[Fetch] = []
        self.answers: list[tuple[Fetch, list[Fetched] | SiltlogError]] = []
        self.beat: Beat | None = None
        self.heard: list[tuple[Beat, Any]] = []
        self.running: tuple[Program[None], Callable[[], None]] | None = None
        self.step: Request | Tell | None = None
        self.polling = False
        self.generation = (self.member_id, 0)

    @property
    def member_id(self) -> str:
        assert self.inbox.member is not None
        return self.inbox.member.member_id

    # --- what a user does ---------------------------------------------------------------------------------
    def poll(self) -> None:
        if self.running is None:
            self.ask()
            self.begin_poll()
            self.run(self.inbox.attend(), self.take)

    def iterate(self) -> None:
        if self.running is None:
            if (chunk := self.inbox.chunk_on(self.world.clock.seconds)) is None:
                self.ask()
                self.begin_poll()
                self.run(self.inbox.attend(), self.take_chunk)
            else:
                self.all_done()
                self.got(chunk.state, [chunk.hand_out().offset])

    def commit(self) -> None:
        if self.running is None:
            self.run(self.inbox.commits.commit_asked(None), lambda: None)

    def seek(self) -> None:
        if self.running is None and self.tenures:
            self.observe()
            state = self.world.chosen.choice(list(self.tenures))
            to = self.world.chosen.randint(0, self.world.group.ends[state.at])
            self.inbox.seek(state, to)
            self.tenures[state] = Tenure(to, to, self.member_id)

    def pause(self) -> None:
        if self.running is None and self.tenures:
            self.inbox.pause([self.world.chosen.choice(list(self.tenures)).at], self.world.chosen.random() < 0.6)

    def leave(self) -> None:
        """Closes in the middle of whatever its handler does; another one comes in its place."""
        if self.running is None and self.world.chosen.random() < 0.1:
            self.run(self.inbox.close(), self.say_goodbye)

    def say_goodbye(self) -> None:
        assert self.inbox.member is not None
        goodbye = self.inbox.member.end()
        if goodbye is not None:
            self.world.exchange_or_not(goodbye)
        self.world.members[self.world.members.index(self)] = Member(self.world, 9)

    # --- what the drivers do ------------------------------------------------------------------------------
    def run(self, program: Program[None], then: Callable[[], None]) -> None:
        self.running = program, then
        self.go_on(None, None)

    def go_on(self, answer: Any, error: BaseException | None) -> None:
        assert self.running is not None
        program, then = self.running
        try:
            self.step = program.send(answer) if error is None else program.throw(error)
        except StopIteration:
            self.running = self.step = None
            self.observe()
            self.end_poll()
            then()
        except (SiltlogError, CallbackFailed):
            self.running = self.step = None
            self.end_poll()
        self.observe()

    def take_step(self) -> None:
        """The next request of the program reaches the server, or not, and its answer comes back, or not."""
        if self.step is None:
            return
        if isinstance(self.step, Tell):
            failing = self.world.chosen.random() < self.world.faults / 2
            self.go_on(None, CallbackFailed() if failing else None)
            return
        commit = self.step.path.endswith("/offsets") and self.step.method == "PUT"
        if commit:
            self.check_commit(self.step)
        try:
            answer = self.world.exchange(self.step)
        except SiltlogError as error:
            self.go_on(None, error)
            return
        self.go_on(Response(200, {}, msgspec.json.encode(answer)), None)

    def begin_poll(self) -> None:
        self.polling = True
        assert self.inbox.member is not None
        self.inbox.member.poll_begins()

    def end_poll(self) -> None:
        if self.polling:
            assert self.inbox.member is not None
            self.inbox.member.poll_ends(self.world.clock.seconds)
            self.polling = False

    def take_heartbeat(self) -> None:
        assert self.inbox.member is not None
        if self.beat is None:
            step = self.inbox.member.next_step(self.world.clock.seconds)
            if isinstance(step, Goodbye):
                self.world.exchange_or_not(step.request)
            elif isinstance(step, Beat):
                self.beat = step
            return
        try:
            answer: Any = self.world.exchange(self.beat.request)
        except SiltlogError as error:
            answer = error
        self.heard.append((self.beat, answer))
        self.beat = None

    def hear(self) -> None:
        """Any answer that is under way, however old."""
        if self.heard:
            beat, answer = self.heard.pop(self.world.chosen.randrange(len(self.heard)))
            assert self.inbox.member is not None
            self.inbox.member.heard(beat, answer, self.world.clock.seconds, 0.5)

    def serve_fetch(self) -> None:
        if self.fetches:
            fetch = self.fetches.pop(self.world.chosen.randrange(len(self.fetches)))
            answer: list[Fetched] | SiltlogError = self.world.group.fetch(fetch, self.world.chosen.randint(1, 7))
            if self.world.chosen.random() < self.world.faults / 4:
                answer = Unavailable("away")
            self.answers.append((fetch, answer))

    def land_fetch(self) -> None:
        if self.answers:
            self.inbox.arrive(*self.answers.pop(self.world.chosen.randrange(len(self.answers))))

    # --- what must hold -----------------------------------------------------------------------------------
    def observe(self) -> None:
        states = self.inbox.positions.states.values()
        mine = self.member_id
        self.tenures = {s: self.tenures.get(s) or Tenure(s.position, s.position, mine) for s in states}
        assert all(tenure.member_id == mine for tenure in self.tenures.values()), "kept over a lost membership"
        assert self.inbox.member is not None
        before, self.generation = self.generation, (mine, self.inbox.member.generation)
        assert self.generation >= before or mine != before[0]
        assert self.inbox.positions.buffered_bytes >= 0

    def ask(self) -> None:
        self.inbox.ask()
        self.all_done()

    def all_done(self) -> None:
        for tenure in self.tenures.values():
            tenure.undone = tenure.next

    def take(self) -> None:
        for run in self.inbox.take(self.world.chosen.randint(1, 12)):
            self.got(run.state, run.rows["offset"].to_pylist())
        self.fetches += self.inbox.depart()

    def take_chunk(self) -> None:
        chunk = self.inbox.next_chunk()
        self.fetches += self.inbox.depart()
        if chunk is not None:
            self.got(chunk.state, [chunk.hand_out().offset])

    def got(self, state: PartitionState, offsets: Sequence[int]) -> None:
        assert not state.paused
        tenure, log, start = self.tenures[state], self.world.group.logs[state.at], self.world.group.starts[state.at]
        for offset in offsets:
            assert offset >= tenure.next, f"{state.at}: {offset} was handed out before"
            skipped = [one for one in log if max(tenure.next, start) <= one < offset]
            assert not skipped, f"{state.at}: {skipped} were skipped"
            tenure.next = offset + 1
            self.world.delivered[state.at].add(offset)

    def check_commit(self, request: Request) -> None:
        by_hand = self.running is not None and self.running[0].gi_code.co_name == "commit_asked"  # type: ignore[attr-defined]
        for one in msgspec.json.decode(b"".join(request.body))["offsets"]:
            at = TopicPartition(one["topic"], one["partition"])
            tenure = self.tenures[self.inbox.positions.states[at]]
            done = tenure.next if by_hand else tenure.undone
            early = [
                r for r in self.world.group.logs[at] if done <= r < one["offset"] and r >= self.world.group.starts[at]
            ]
            assert not early, f"{at}: {early} are committed and not done"


class Simulation:
    def __init__(self, seed: int, partitions: int, members: int) -> None:
        self.chosen = random.Random(seed)
        self.clock = SimulatedClock()
        self.group = GroupModel(self.clock, partitions)
        self.faults = 0.3
        self.delivered: dict[TopicPartition, set[int]] = {at: set() for at in self.group.logs}
        self.members = [Member(self, number) for number in range(members)]

    def exchange(self, request: Request) -> Any:
        """Raises OutcomeUnknown for what was lost on its way there or back."""
        luck = self.chosen.random()
        if luck < self.faults / 2:
            raise OutcomeUnknown("lost on its way", error_code="connection_lost")
        answer = self.group.call(request)
        if luck < self.faults:
            raise OutcomeUnknown("its answer was lost", error_code="connection_lost")
        return answer

    def exchange_or_not(self, request: Request) -> None:
        with suppress(SiltlogError):
            self.exchange(request)

    # --- what happens -------------------------------------------------------------------------------------
    def publish(self) -> None:
        at = self.chosen.choice(list(self.group.logs))
        for _ in range(self.chosen.randint(1, 9)):
            end = self.group.ends[at] + self.chosen.choice((0, 0, 0, 1, 5))
            self.group.logs[at].append(end)
            self.group.ends[at] = end + 1
        if self.chosen.random() < 0.2:
            self.group.ends[at] += 3

    def retain(self) -> None:
        at = self.chosen.choice(list(self.group.logs))
        if self.chosen.random() < 0.3:
            self.group.starts[at] = self.chosen.randint(self.group.starts[at], self.group.ends[at])

    def pass_time(self) -> None:
        self.clock.seconds += self.chosen.choice((0.01, 0.2, 0.2, 0.6, 1.5))

    def throw_out(self) -> None:
        if self.group.members and self.chosen.random() < 0.2:
            self.group.drop(self.chosen.choice(sorted(self.group.members)))

    def run(self, steps: int, actions: Sequence[str], others: Sequence[Callable[[], None]] = ()) -> None:
        for _ in range(steps):
            if others and self.chosen.random() < 0.15:
                self.chosen.choice(others)()
            getattr(self.chosen.choice(self.members), self.chosen.choice(actions))()

    def settle(self) -> None:
        """Nothing is lost any more, and everybody polls until all is done."""
        self.faults = 0.0
        ends = self.group.ends
        for _ in range(3_000):
            self.clock.seconds += 0.02
            for member in self.members:
                self.group.expire()
                for state in member.inbox.positions.states.values():
                    state.paused = False
                for _ in range(3):
                    member.take_heartbeat()
                    member.hear()
                    member.poll()
                    while member.step is not None:
                        member.take_step()
                    member.serve_fetch()
                    member.land_fetch()
                if self.chosen.random() < 0.1:
                    member.commit()
                    while member.step is not None:
                        member.take_step()
            reached = {at: max(offset, self.group.starts[at]) for at, offset in self.group.committed.items()}
            if all(reached[at] == ends[at] for at in ends if self.group.logs[at]):
                return
        raise AssertionError(f"it does not come to an end: {self.group.committed}, {ends}")


USERS = ["poll"] * 3 + ["iterate"] * 5 + ["commit", "pause", "leave"]
DRIVERS = ["take_step"] * 6 + ["take_heartbeat", "hear"] * 3 + ["serve_fetch", "land_fetch"] * 3


@pytest.mark.rule("M1", "M2")
@pytest.mark.chaos
@settings(max_examples=60 * CHAOS)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
def test_no_record_is_skipped_or_handed_out_twice_and_nothing_is_committed_undone(
    seed: int, partitions: int, members: int
) -> None:
    simulation = Simulation(seed, partitions, members)
    simulation.run(500, USERS + DRIVERS, [simulation.publish, simulation.publish, simulation.pass_time])
    simulation.settle()
    for at, log in simulation.group.logs.items():
        assert simulation.delivered[at] == set(log)


@pytest.mark.rule("M2")
@pytest.mark.chaos
@settings(max_examples=60 * CHAOS)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 3))
def test_also_when_members_are_thrown_out_seek_and_retention_passes_them(
    seed: int, partitions: int, members: int
) -> None:
    simulation = Simulation(seed, partitions, members)
    simulation.faults = 0.5
    others = [simulation.publish, simulation.publish, simulation.pass_time, simulation.throw_out, simulation.retain]
    simulation.run(500, [*USERS, *DRIVERS, "seek"], others)
    simulation.settle()


def test_what_a_callback_or_an_error_cuts_short_is_gone_on_with() -> None:
    """A membership lost, the assignment of the next one, and an error, all told before the consumer looks."""
    simulation = Simulation(1, 2, 1)
    simulation.faults = 0.0
    [member] = simulation.members
    assert member.inbox.member is not None
    while len(member.tenures) < 2:
        for action in ("take_heartbeat", "hear", "poll", "take_step"):
            getattr(member, action)()
    while member.step is not None:
        member.take_step()
    simulation.group.drop(member.member_id)
    while not (member.inbox.member._news.lost and member.inbox.member._news.assignment):
        for action in ("take_heartbeat", "hear"):
            getattr(member, action)()
    member.inbox.member._news.error = problem("internal", "an error of a former heartbeat")
    member.poll()
    assert isinstance(member.step, Tell)
    member.go_on(None, CallbackFailed())
    assert member.running is None and not member.inbox.positions.states
    member.poll()
    assert member.running is None and len(member.inbox.positions.states) == 2
    member.poll()
    while member.step is not None:
        member.take_step()
    assert member.fetches


@pytest.mark.parametrize("partitions", [1, 5])
def test_what_is_read_ahead_is_bounded(partitions: int) -> None:
    simulation = Simulation(3, partitions, 1)
    simulation.faults = 0.0
    for _ in range(400):
        simulation.publish()
    [member] = simulation.members
    for at in simulation.group.logs:
        assert simulation.group.logs[at]
    for _ in range(300):
        simulation.clock.seconds += 0.01
        for action in ("take_heartbeat", "hear", "serve_fetch", "land_fetch", "iterate"):
            getattr(member, action)()
        while member.step is not None:
            member.take_step()
        assert member.inbox.positions.buffered_bytes <= 2 * 64 * 1024
        assert sum(fetch.plan.bytes_max for fetch in member.fetches) <= 64 * 1024


@pytest.mark.rule("M15")
@pytest.mark.parametrize("named", [True, False])
def test_the_ends_of_a_topic_that_was_created_again_are_its_own(named: bool) -> None:
    """`named`: the group says which topic it means; else the consumer asks."""
    at, others = TopicPartition("t", 0), TopicPartition("u", 0)
    inbox = Inbox(ConsumerOptions(group="g", topics=["t", "u"], stop_at="latest"), SimulatedClock())
    inbox.assignment.known = True
    ends = {"t": ("former", 50), "u": ("same", 2)}
    asked: list[str] = []

    def mark() -> None:
        program = inbox.mark_ends()
        with suppress(StopIteration):
            request = program.send(None)
            while True:
                assert isinstance(request, Request)
                topic = request.path.split("/")[3].partition("?")[0]
                asked.append(topic)
                topic_id, end = ends[topic]
                bounds = Bounds(0, 0, end)._asdict()
                document = {"topic_id": topic_id, "partitions": [{"partition": 0, **bounds}]}
                request = program.send(Response(200, {}, msgspec.json.encode(document)))

    def assign(of: TopicPartition) -> None:
        inbox.positions.assign(of, 0, None, ends[of.topic][0] if named else None)

    assign(at)
    assign(others)
    mark()
    mark()
    assert asked == ["t", "u"]
    inbox.positions.states[others].position = 2
    # It was deleted and created again; the group's next assignment says so.
    ends["t"] = ("new", 3)
    inbox.positions.revoke([at])
    inbox._topics.forget("t")
    assign(at)
    if not named:
        inbox._topics._ids["t"] = "new"
    mark()
    mark()
    assert asked == ["t", "u", "t"]
    assert not inbox.stopped()
    inbox.positions.states[at].position = 3
    assert inbox.stopped()
