"""Views and tables say who owns a topic: takes, hand-overs, lost nodes, on real WALs and tables."""

import asyncio
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from log_rig import CLOCK, LOGGER, body
from members_rig import Member, World, in_world, until, values

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.cluster.router import Held
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, TopicExists, Unavailable, problem
from siltlog.infra.records import OFFSET_JUMP
from siltlog.infra.store.store import ObjectStore
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.journal.seal import Sealed
from siltlog.ingest.ownership import ownership, shipping, take, waiting
from siltlog.ingest.ownership.plan import Leave
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.topics.topics import Topics

COUNT = 16


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(ownership, "LOOKS_PER_FORMER", 1)


@pytest.mark.rule("CO1", "CH1", "CH2", "CH3")
def test_a_topic_that_is_published_to_is_handed_over_and_back(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        with pytest.raises(SiltlogError, match="does not own") as refused:
            b.topic()
        assert refused.value.error_code == "not_owner" and refused.value.status == 421
        sent: dict[str, int] = {}

        async def publish_on() -> None:
            for number in range(COUNT):
                for one in (a, b, a, b):
                    try:
                        sent[f"v{number}"] = await one.publish(f"v{number}", sequence=number)
                        break
                    except SiltlogError as error:
                        assert error.retryable != "no", error
                        await until(lambda: any(x.ownership.held("t") is Held.OPEN for x in (a, b)))
                        await until(lambda: sum(x.ownership.held("t") is Held.OPEN for x in (a, b)) == 1)

        assert await a.log.claim_producer(a.topic(), "claimed, and heard of no more") == 1
        publishing = asyncio.create_task(publish_on())
        for journal, to in (("a1", "b1"), ("b1", "a1")):
            await asyncio.sleep(0.3)
            world.views.to = world.views.granted(to)
            owner, target = (a, b) if journal == "a1" else (b, a)
            world.views.tell(a, b)
            await target.opened()
            assert owner.ownership.held("t") is Held.RELEASED
            assert owner.told[-1] == ("t", world.views.to)
            world.views.chain, world.views.to = (world.views.to,), None
            world.views.tell(a, b)
            assert owner.ownership.held("t") is Held.NOT
            assert target.topic().producers.epochs.epoch("claimed, and heard of no more") == 1
        await publishing
        assert len(sent) == COUNT
        assert values(world.views.store) == [(number, f"v{number}") for number in range(COUNT)]
        assert world.views.store.list(names.SHARED_STRANDED_FOLDER) == []

    in_world(tmp_path, run)


@pytest.mark.rule("CH3")
def test_who_let_go_does_not_take_back_what_nobody_has_claimed_yet(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        world.views.to = world.views.granted("b1")
        world.views.tell(a)
        await until(lambda: a.ownership.held("t") is Held.RELEASED)
        await asyncio.sleep(1.5)
        assert a.ownership.held("t") is Held.RELEASED
        assert a.ownership.report() == {}, "it asks for a term above its own"
        world.views.tell(b)
        await b.opened()

    in_world(tmp_path, run)


@pytest.mark.rule("CO6")
@pytest.mark.parametrize("acks", ["table", "wal"])
def test_a_journal_that_is_lost_is_ended_while_the_table_is_opened_and_not_at_each_look(
    acks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    begun = Event()

    def seal(store: ObjectStore, cluster_id: str, journal: str, nonce: bytes) -> Sealed:
        ended.append(journal)
        begun.set()
        raise problem("corrupt_data", f"nothing is found of the journal {journal}")

    def opened(store: ObjectStore, topic: str, clock: Clock) -> TopicTable:
        assert begun.wait(30), "its journal is not being ended"
        return TopicTable.open(store, topic, clock)

    async def run(world: World) -> None:
        world.make({"acks": acks})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a)
        await a.opened()
        await world.end(a)
        monkeypatch.setattr(shipping, "seal", seal)
        monkeypatch.setattr(waiting, "TopicTable", SimpleNamespace(open=opened))
        world.views.lose("a1")
        world.views.give("b1")
        world.views.tell(b)
        if acks == "table":
            await b.opened()
        else:
            await until(lambda: b.ownership.waits("t") is not None)
            await asyncio.sleep(10 * waiting.POLL_SECONDS_MIN)
        assert ended == ["a1"]

    in_world(tmp_path, run)


@pytest.mark.rule("CO2", "CO6")
def test_the_topic_of_a_lost_node_goes_on_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        assert await a.publish("0", acks="wal", sequence=0) == 0
        assert values(world.views.store) == [(0, "0")], "acknowledged, so it is in the table"
        a.log.append(a.topic(), body("never acknowledged"), None)
        await a.log.group_commit.commit()
        assert a.topic().partitions[0].bounds().high_watermark == 1, "nor shown"
        await world.end(a)
        world.views.give("b1")
        world.views.tell(b)
        await until(lambda: b.ownership.waits("t") is not None)
        waits = b.ownership.waits("t")
        assert waits is not None and waits.node == "a" and waits.awaited == 0
        world.views.lose("a1")
        world.views.tell(b)
        await b.opened()
        assert await b.publish("0 again", sequence=0) == 0, "a duplicate"
        assert await b.publish("1", sequence=1) == 1
        assert b.ownership.report()["t"].state == "settled"
        # The lost one comes back: of what it has nothing was acknowledged, so nothing is set aside.
        again = await world.start("a2")
        world.views.tell(again, b)
        await until(lambda: not again.taking.former.topic_ids())
        assert world.views.store.list(names.SHARED_STRANDED_FOLDER) == []
        world.views.to = world.views.granted("a2")
        world.views.tell(again, b)
        await again.opened()
        assert await again.publish("1 again", sequence=1) == 1, "a duplicate"
        assert await again.publish("2", sequence=2) == 2
        assert values(world.views.store) == [(0, "0"), (1, "1"), (2, "2")]

    in_world(tmp_path, run)


@pytest.mark.rule("CO6")
def test_what_a_lost_node_shipped_to_its_journal_goes_on_elsewhere(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "object"})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        for number in range(3):
            assert await a.publish(f"{number}", sequence=number) == number
        assert values(world.views.store) == []
        await world.end(a)
        world.views.give("b1")
        world.views.lose("a1")
        world.views.tell(b)
        topic = await b.opened()
        assert topic.partitions[0].bounds().high_watermark == 3
        assert await b.publish("2 again", sequence=2) == 2, "a duplicate"
        assert await b.publish("3", sequence=3) == 3
        again = await world.start("a2")
        world.views.to = world.views.granted("a2")
        world.views.tell(again, b)
        await again.opened()
        assert await again.publish("4", sequence=4) == 4
        assert [value for _, value in values(world.views.store)][:4] == ["0", "1", "2", "3"]
        assert world.views.store.list(names.SHARED_STRANDED_FOLDER) == []

    in_world(tmp_path, run)


@pytest.mark.rule("CJ12")
@pytest.mark.parametrize("acks", ["table", "object"])
def test_what_a_lost_owner_flushes_until_the_claim_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: str
) -> None:
    """It is slow, and not gone: its table goes on from where it was when the claim was planned."""

    async def run(world: World) -> None:
        world.make({"acks": acks})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        for number in range(3):
            assert await a.publish(f"{number}", sequence=number) == number
        if acks == "table":
            a.log.append(a.topic(), body("3", first_sequence=3), Producer("p", 0))
            await a.log.group_commit.commit()
        claims = take.claim

        async def late(*arguments: Any, **named: Any) -> None:
            await a.flusher.flush(a.topic())
            await claims(*arguments, **named)

        monkeypatch.setattr(take, "claim", late)
        world.views.give("b1")
        world.views.lose("a1")
        world.views.tell(b)
        await b.opened()
        there = 4 if acks == "table" else 3
        assert [value for _, value in values(world.views.store)] == [str(number) for number in range(there)]
        assert b.topic().partitions[0].bounds().high_watermark == there
        assert await b.publish("again", sequence=there - 1) == there - 1, "a duplicate"
        assert await b.publish("next", sequence=there, acks="table") == there
        assert values(world.views.store)[-1] == (there, "next")
        assert world.views.store.list(names.SHARED_STRANDED_FOLDER) == []

    in_world(tmp_path, run)


@pytest.mark.rule("CO3", "CO5")
def test_a_topic_whose_records_are_on_a_disk_alone_waits_for_that(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        assert await a.publish("0", sequence=0) == 0
        assert values(world.views.store) == []
        await world.end(a)
        world.views.give("b1")
        world.views.lose("a1")
        world.views.tell(b)
        await until(lambda: "t" in b.ownership.report())
        report = b.ownership.report()["t"]
        assert (report.state, report.awaited) == ("waiting", world.views.chain[0].term)
        again = await world.start("a2")
        world.views.give("a2")
        world.views.tell(again, b)
        await again.opened()
        assert await again.publish("0 again", sequence=0) == 0, "a duplicate"
        assert await again.publish("1", sequence=1) == 1
        assert b.ownership.report() == {}

    in_world(tmp_path, run)


def next_claim_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands, and who claims does not hear of it."""
    real = TopicTable.claim

    def unanswered(*arguments: Any, **named: Any) -> None:
        monkeypatch.undo()
        real(*arguments, **named)
        raise Unavailable("the answer was lost")

    monkeypatch.setattr(TopicTable, "claim", unanswered)


@pytest.mark.rule("CO13")
def test_who_dies_once_its_claim_of_what_was_given_up_has_landed_has_jumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        assert [await a.publish(str(at), sequence=at) for at in range(3)] == [0, 1, 2]
        await world.end(a)
        world.views.give("b1")
        world.views.lose("a1")
        world.views.abandon = world.views.chain[0].term
        next_claim_is_not_answered(monkeypatch)
        world.views.tell(b)
        await until(lambda: TopicTable.open(world.views.store, "t", CLOCK).snapshot.offsets[0] == OFFSET_JUMP)
        await world.end(b)
        again = await world.start("b2")
        world.views.give("b2")
        world.views.lose("b1")
        world.views.tell(again)
        await again.opened()
        assert await again.publish("anew") == OFFSET_JUMP
        assert TopicTable.open(world.views.store, "t", CLOCK).snapshot.gaps(0) == [(0, OFFSET_JUMP)]
        # Who comes back sets aside what it has.
        back = await world.start("a2")
        world.views.tell(back)
        await until(lambda: bool(world.views.store.list(names.SHARED_STRANDED_FOLDER)))

    in_world(tmp_path, run)


@pytest.mark.rule("CO12")
@pytest.mark.parametrize("landed", [True, False])
def test_a_claim_without_an_answer_is_asked_after(
    tmp_path: Path, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TopicTable.claim
    claims = 0

    def unanswered(*arguments: Any, **named: Any) -> Any:
        nonlocal claims
        claims += 1
        if landed or claims > 1:
            real(*arguments, **named)
        if claims == 1:
            raise OutcomeUnknown("the answer was lost")

    async def run(world: World) -> None:
        world.make({})
        a = await world.start("a1")
        monkeypatch.setattr(TopicTable, "claim", unanswered)
        world.views.give("a1")
        world.views.tell(a)
        await until(lambda: claims == 1)
        monkeypatch.undo()
        topic = await a.opened()
        assert topic.epochs[-1] >> 32 == world.views.term == a.ownership.report()["t"].term
        assert await a.publish("0") == 0

    in_world(tmp_path, run)


@pytest.mark.rule("CO7")
def test_a_claim_whose_answer_was_lost_asks_for_a_higher_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(world: World) -> None:
        world.make({})
        a = await world.start("a1")
        next_claim_is_not_answered(monkeypatch)
        world.views.give("a1")
        world.views.tell(a)
        await until(lambda: "t" in a.ownership.report())
        floor = a.ownership.report()["t"].floor
        assert floor == world.views.chain[0].term
        world.views.give("a1", above=floor)
        world.views.tell(a)
        await a.opened()
        assert await a.publish("0") == 0

    in_world(tmp_path, run)


@pytest.mark.rule("CO8")
def test_an_owner_whom_the_view_names_no_more_hands_over(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        await a.publish("0")
        world.views.give("b1")
        world.views.tell(b)
        await until(lambda: b.ownership.waits("t") is not None)
        assert await a.publish("1") == 1, "nobody has told it yet"
        world.views.tell(a)
        await b.opened()
        assert await b.publish("2") == 2
        assert [value for _, value in values(world.views.store)][:2] == ["0", "1"]

    in_world(tmp_path, run)


@pytest.mark.rule("CO8")
def test_an_owner_that_goes_on_under_another_journal_claims_anew(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a = await world.start("a1")
        world.views.give("a1")
        world.views.tell(a)
        topic = await a.opened()
        await a.publish("0", sequence=0)
        world.views.lose("a1")
        a.journal = "a2"
        world.views.give("a2")
        world.views.tell(a)
        await until(lambda: a.log.topic_logs.get("t") not in (topic, None))
        again = await a.opened()
        assert again.epochs[-1] >> 32 == world.views.term == a.ownership.report()["t"].term
        assert await a.publish("0 again", sequence=0) == 0, "a duplicate"
        assert await a.publish("1", sequence=1) == 1

    in_world(tmp_path, run)


@pytest.mark.rule("CO8")
def test_who_claimed_under_a_term_that_was_given_up_claims_anew(tmp_path: Path) -> None:
    """Its owner gave up the hand-over and was told to begin it again: it let go before the target heard of that."""

    async def run(world: World) -> None:
        world.make({})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        await a.opened()
        given_up = world.views.to = world.views.granted("b1")
        world.views.tell(a, b)
        await b.opened()
        assert b.ownership.report()["t"].term == given_up.term
        world.views.chain = (given_up, *world.views.chain)
        world.views.to = world.views.granted("b1")
        world.views.tell(a, b)
        await until(lambda: (found := b.ownership.report().get("t")) is not None and found.term == world.views.term)
        assert (await b.opened()).epochs[-1] >> 32 == world.views.term
        assert await b.publish("0") == 0

    in_world(tmp_path, run)


@pytest.mark.rule("CO9")
def test_what_a_fenced_owner_acknowledged_on_its_disk_is_set_aside_while_it_runs(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a = await world.start("a1")
        world.views.give("a1")
        world.views.tell(a)
        topic = await a.opened()
        await a.publish("on this disk alone")
        other = TopicTable.open(world.views.store, "t", CLOCK)
        other.claim({0: 99 << 32}, "another's", offsets={0: 1 << 32})
        topic.close("fenced", "another has it")
        world.views.give("b1")
        world.views.tell(a)
        await until(lambda: not a.log.topics() and not a.taking.former.topic_ids())
        [file] = Path(world.views.store.root_uri.removeprefix("file://"), "cluster/stranded").rglob("*.arrow")
        assert file.name.endswith("-0.arrow")

    in_world(tmp_path, run)


@pytest.mark.rule("CH4")
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("unflushed", [True, False])
def test_nothing_is_appended_after_a_release_was_sent_until_it_is_known_what_became_of_it(
    tmp_path: Path, landed: bool, unflushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = "append" if unflushed else "release"
    real = getattr(TopicTable, operation)
    asked = asyncio.Event()

    def unanswered(*arguments: Any, **named: Any) -> Any:
        if operation == "append" and not named.get("released"):
            return real(*arguments, **named)
        if landed:
            real(*arguments, **named)
        raise OutcomeUnknown("the answer was lost")

    outcome = TopicTable.outcome

    def away(*arguments: Any) -> Any:
        return outcome(*arguments) if asked.is_set() else "unknown"

    async def run(world: World) -> None:
        world.make({"acks": "wal"})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        topic = await a.opened()
        await a.publish("0")
        if not unflushed:
            await a.flusher.flush(topic)
        if unflushed:
            # The flush before the hand-over fails, so that the last one has something.
            monkeypatch.setattr(type(a.flusher), "flush", _nothing)
            a.flusher.releases._flushed = a.flusher.flush
        monkeypatch.setattr(TopicTable, operation, unanswered)
        monkeypatch.setattr(TopicTable, "outcome", away)
        world.views.to = world.views.granted("b1")
        world.views.tell(a)
        await until(lambda: topic.state == "releasing" and topic.paused is None)
        assert a.ownership.held("t") is Held.HOLDING
        for _ in range(3):
            with pytest.raises(Unavailable):
                await a.publish("refused")
            await asyncio.sleep(0.05)
        asked.set()
        monkeypatch.setattr(TopicTable, operation, real)
        world.views.tell(b)
        # Where it had not landed the owner goes on, and hands over once more.
        await b.opened()
        assert await b.publish("1") == 1
        assert values(world.views.store) == [(0, "0")]

    in_world(tmp_path, run)


class Placed:
    """Gives every topic that is made to one member; no view forgets one by itself."""

    def __init__(self, world: World, owner: Member, others: list[Member]) -> None:
        self._world = world
        self._owner = owner
        self._others = others
        self.forgotten: list[str] = []

    async def adopt(self, name: str, topic_id: str, node: str) -> None:
        self._world.views.chain = ()
        self._world.views.give(self._owner.journal, above=self._world.views.term)
        self._world.views.tell(self._owner, *self._others)
        await self._owner.ownership.placed(name, topic_id)

    def forget(self, name: str, topic_id: str) -> None:
        self.forgotten.append(topic_id)

    def want(self, name: str) -> None:
        raise AssertionError("nobody was alone")


@pytest.mark.rule("CO1")
def test_a_topic_is_made_by_one_node_and_owned_by_another(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        a, b = await world.start("a1"), await world.start("b1")
        placing = Placed(world, b, [a])
        here, there = (Topics(one.log, LOGGER, None, placing) for one in (a, b))
        made = await here.create("t", 2, {})
        assert (made.name, len(made.partitions)) == ("t", 2) and a.ownership.held("t") is Held.NOT
        assert await b.publish("0") == 0
        for topics in (here, there):
            for name in ("t", "T"):
                with pytest.raises(TopicExists):
                    await topics.create(name, 2, {})
        await there.delete("t")
        assert placing.forgotten == [made.topic_id] and b.ownership.report() == {}
        # No view has forgotten it yet.
        again = await here.create("t", 1, {})
        assert again.topic_id != made.topic_id
        await b.opened()
        assert await b.publish("0 anew") == 0

    in_world(tmp_path, run)


@pytest.mark.rule("CH5")
def test_a_hand_over_that_takes_too_long_is_given_up_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(world: World) -> None:
        world.make({})
        a, b = await world.start("a1"), await world.start("b1")
        world.views.give("a1")
        world.views.tell(a, b)
        topic = await a.opened()
        monkeypatch.setattr(ownership, "HOLD_SECONDS_MAX", -1.0)
        world.views.to = world.views.granted("b1")
        world.views.tell(a, b)
        await until(lambda: a.ownership.report()["t"].kept == world.views.term)
        assert await a.publish("goes on") == 0
        assert topic.table.refresh().released[0] <= 0
        # Another hand-over is another try.
        monkeypatch.undo()
        world.views.to = world.views.granted("b1")
        world.views.tell(a, b)
        await b.opened()

    in_world(tmp_path, run)


@pytest.mark.rule("CO4")
def test_a_claim_that_was_decided_on_a_release_fails_once_that_was_taken_back(tmp_path: Path) -> None:
    async def run(world: World) -> None:
        world.make({})
        a = await world.start("a1")
        b = await world.start("b1")
        world.views.give("a1")
        world.views.tell(a)
        topic = await a.opened()
        epochs = {0: topic.epochs[-1]}
        topic.table.release(epochs, "released")
        late = TopicTable.open(world.views.store, "t", CLOCK)
        topic.table.take_back(epochs, "taken back")
        with pytest.raises(SiltlogError, match="released/0 is 0"):
            await b.taking.take(late, Leave(), term=9)
        assert topic.table.refresh().epochs == epochs

    in_world(tmp_path, run)


@pytest.mark.rule("CO10")
def test_what_a_producer_is_told_its_next_owner_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(world: World) -> None:
        world.make({})
        a = await world.start("a1")
        world.views.give("a1")
        world.views.tell(a)
        topic = await a.opened()
        for sequence in (0, 1):
            a.log.append(topic, body(f"{sequence}", first_sequence=sequence), Producer("p", 0))
        with pytest.raises(SiltlogError) as refused:
            await a.publish("too far", sequence=5)
        assert refused.value.members["next_sequence"] == 2
        assert values(world.views.store) == [(0, "0"), (1, "1")]
        # A claim of its epoch is beside the table, and that is still this node's, before it is told.
        await a.log.claim_producer(topic, "p")
        await a.flusher.states.ship_epochs(topic, 10)
        await a.log.claim_producer(topic, "p")
        other = TopicTable.open(world.views.store, "t", CLOCK)
        other.claim({0: 99 << 32}, "another's")
        with pytest.raises(SiltlogError, match="another node has claimed"):
            await a.flusher.states.ship_epochs(topic, 10)

    in_world(tmp_path, run)


async def _nothing(*arguments: object) -> None:
    """Flushes nothing."""
