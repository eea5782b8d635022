"""Each rule of owners and of what they ship is needed: a mutant of each is noticed, on real WALs and tables."""

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch as patched

import members_rig
import pytest
from chaos import seeds
from log_rig import body
from members_rig import Member, World, in_world, until, values
from mutants import Mutant, Patch, Play, hold, instead, nothing, nothing_awaited, noticed, plays
from record_tables import CLOCK

from siltlog.infra import names
from siltlog.infra.cluster.router import Held
from siltlog.infra.cluster.view import TermEntry, TopicEntry
from siltlog.infra.errors import OutcomeUnknown, SiltlogError, Unavailable
from siltlog.infra.records import OFFSET_JUMP
from siltlog.infra.settings.topic_config import TopicConfig
from siltlog.infra.table.table import TopicTable
from siltlog.ingest.flush.flush import Flush
from siltlog.ingest.flush.release import Release
from siltlog.ingest.log import claim as claiming
from siltlog.ingest.log.log import Log
from siltlog.ingest.log.producer_objects import StateWriter
from siltlog.ingest.log.topic import TopicLog
from siltlog.ingest.log.topic_logs import TopicLogs
from siltlog.ingest.ownership import ownership, plan, rules, waiting
from siltlog.ingest.ownership.former import Former
from siltlog.ingest.ownership.ownership import Ownership
from siltlog.ingest.ownership.plan import Leave
from siltlog.ingest.ownership.rules import Facts, MayClaim, Rule
from siltlog.ingest.ownership.take import Taking
from siltlog.ingest.producers.check import Producer
from siltlog.ingest.wal.disk import Disk

WorldPlay = Callable[[random.Random, World], Coroutine[Any, Any, None]]


def in_a_world(play: WorldPlay) -> Play:
    @wraps(play)
    def run(seed: int, folder: Path) -> None:
        with _impatient():
            in_world(folder, lambda world: play(random.Random(seed), world))

    return run


@contextmanager
def _impatient() -> Iterator[None]:
    soon = {"LOOK_SECONDS": 0.02, "LOOKS_PER_FORMER": 1, "RETRY_SECONDS": 0.05, "HOLD_SECONDS_MAX": 60.0}
    with patched.multiple(ownership, **soon), patched.object(waiting, "POLL_SECONDS_MIN", 0.02):
        yield


@in_a_world
async def a_topic_that_moves_loses_and_doubles_nothing(chance: random.Random, world: World) -> None:
    """CH1, CH2"""
    world.make({"acks": "wal"})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    await a.opened()
    sync, slow_s = Disk.sync, chance.choice((0.01, 0.03))
    sent: list[str] = []
    claimed: list[str] = []
    ends: list[Exception] = []

    async def publish_on(publisher: int) -> None:
        """Publishes as fast as it goes, for as long as it is this node's."""
        with _noted(ends):
            for number in itertools.count():
                await a.publish(value := f"v{publisher}.{number}")
                sent.append(value)

    async def claim_on() -> None:
        with _noted(ends):
            for number in itertools.count():
                await a.log.claim_producer(a.topic(), f"p{number}")
                claimed.append(f"p{number}")

    def slowly(self: Disk, fd: int) -> None:
        CLOCK.sleep(slow_s)
        sync(self, fd)

    with patched.object(Disk, "sync", slowly):
        tasks = [asyncio.create_task(turn) for turn in (*map(publish_on, range(5)), claim_on())]
        await until(lambda: len(sent) >= chance.randrange(5, 20))
        world.views.to = world.views.granted("b1")
        world.views.tell(a, b)
        await until(lambda: len(ends) == len(tasks) or _kept(a))
        assert not _kept(a), "it is never handed over while it is published to"
    await b.opened()
    for value in claimed:
        assert b.topic().producers.epochs.epoch(value) == 1, "a claimed epoch is forgotten"
    there = [value for _, value in values(world.views.store)]
    assert sorted(there) == sorted(sent), "what was acknowledged is not there, or twice"
    assert world.views.store.list(names.SHARED_STRANDED_FOLDER) == []


def _kept(one: Member) -> bool:
    return (told := one.ownership.report().get("t")) is not None and told.kept > 0


@contextmanager
def _noted(ends: list[Exception]) -> Iterator[None]:
    try:
        yield
    except SiltlogError as error:
        ends.append(error)


@in_a_world
async def who_let_go_waits_for_the_next_owner(chance: random.Random, world: World) -> None:
    """CH3"""
    world.make({})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    await a.opened()
    world.views.to = world.views.granted("b1")
    world.views.tell(a)
    await until(lambda: a.ownership.held("t") is Held.RELEASED or bool(a.told))
    for _ in range(chance.randrange(8, 14)):
        await asyncio.sleep(0.02)
        assert a.ownership.held("t") is Held.RELEASED and a.ownership.report() == {}, "it goes to and fro"
    assert a.told == [("t", world.views.to)], "nobody tells who is to have it"
    # And who was not told finds out by itself.
    world.views.tell(b)
    await b.opened()


@in_a_world
async def a_hand_over_is_given_up_before_its_release(chance: random.Random, world: World) -> None:
    """CH5"""
    world.make({})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    topic = await a.opened()
    slow = chance.random() < 0.7
    world.views.to = world.views.granted("b1")
    with patched.object(ownership, "HOLD_SECONDS_MAX", -1.0 if slow else 60.0):
        world.views.tell(a, b)
        if not slow:
            await b.opened()
            return
        await until(lambda: a.ownership.report().get("t") is None or _kept(a))
        told = a.ownership.report().get("t")
        assert told is not None and told.kept == world.views.term, "nobody hears that it stays"
        assert topic.table.refresh().released[0] <= 0, "it was given up, and released"
        assert await a.publish("goes on") == 0


@in_a_world
async def a_claim_is_made_on_what_it_was_decided_on(chance: random.Random, world: World) -> None:
    """CO4"""
    world.make({})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a)
    topic = await a.opened()
    epochs = {0: topic.epochs[-1]}
    topic.table.release(epochs, "released")
    late = TopicTable.open(world.views.store, "t", CLOCK)
    taken_back = chance.random() < 0.7
    if taken_back:
        topic.table.take_back(epochs, "taken back")
    with suppress(SiltlogError):
        await b.taking.take(late, Leave(), term=9)
    owner = topic.table.refresh().epochs[0]
    assert (owner == epochs[0]) == taken_back, "a release is taken back, and its owner fenced all the same"


@in_a_world
async def who_is_named_no_more_hands_over(chance: random.Random, world: World) -> None:
    """CO8"""
    world.make({"acks": chance.choice(("wal", "table"))})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    await a.opened()
    await a.publish("0")
    to = world.views.granted("b1")
    if chance.random() < 0.5:
        world.views.chain = (*world.views.chain, to)
    else:
        # It claims by a view of which another says, later, that it was given up.
        world.views.to = to
        world.views.tell(a, b)
        await b.opened()
        world.views.chain = (to, *world.views.chain)
        world.views.to = world.views.granted("b1")
    world.views.tell(b)
    if world.views.to is None:
        assert await a.publish("1") == 1, "it stops by itself"
    world.views.tell(a)
    await until(lambda: (found := b.ownership.report().get("t")) is not None and found.term == world.views.term)
    await b.opened()


@in_a_world
async def what_a_fenced_owner_had_is_set_aside(chance: random.Random, world: World) -> None:
    """CO9"""
    world.make({"acks": "wal"})
    a = await world.start("a1")
    world.views.give("a1")
    world.views.tell(a)
    topic = await a.opened()
    count = chance.randrange(1, 4)
    for number in range(count):
        await a.publish(f"{number}")
    other = TopicTable.open(world.views.store, "t", CLOCK)
    other.claim({0: 99 << 32}, "another's", offsets={0: 1 << 32})
    topic.close("fenced", "another has it")
    world.views.give("b1")
    world.views.tell(a)
    await until(lambda: not a.log.topics() and not a.taking.former.topic_ids())
    folder = Path(world.views.store.root_uri.removeprefix("file://"), "cluster/stranded")
    assert len([*folder.rglob("*.arrow")]) == 1, "what was acknowledged is on this disk alone"


@in_a_world
async def what_a_producer_is_told_outlives_its_owner(chance: random.Random, world: World) -> None:
    """CO10"""
    world.make({})
    a = await world.start("a1")
    world.views.give("a1")
    world.views.tell(a)
    topic = await a.opened()
    count = chance.randrange(1, 4)
    for sequence in range(count):
        a.log.append(topic, body(f"{sequence}", first_sequence=sequence), Producer("p", 0))
    try:
        await a.publish("too far", sequence=count + 3)
    except SiltlogError as refused:
        assert refused.members["next_sequence"] == count
    assert len(values(world.views.store)) == count, "it is told to go on behind what may be lost"
    await a.log.claim_producer(topic, "p")
    fenced = chance.random() < 0.7
    if fenced:
        other = TopicTable.open(world.views.store, "t", CLOCK)
        other.claim({0: 99 << 32}, "another's")
    try:
        await a.flusher.states.ship_epochs(topic, 10)
    except SiltlogError:
        assert fenced
        return
    assert not fenced, "an epoch is told that its next owner has not read"


@in_a_world
async def what_is_not_held_is_kept(chance: random.Random, world: World) -> None:
    """CO11"""
    world.make({"acks": "wal"})
    a = await world.start("a1")
    world.views.give("a1")
    world.views.tell(a)
    await a.opened()
    for number in range(3):
        await a.publish(f"{number}", sequence=number)
    await world.end(a)
    for turn in range(chance.randrange(1, 3)):
        world.views.lose(a.journal)
        a = await world.start(f"a{turn + 2}")
        if chance.random() < 0.7:
            world.views.give(a.journal)
            with _unanswered():
                world.views.tell(a)
                await until(lambda a=a: "t" in a.ownership.report())  # type: ignore[misc]
            await _taken_anew(a, world)
        await world.end(a)
    world.views.lose(a.journal)
    a = await world.start("a9")
    await _taken_anew(a, world)
    assert await a.publish("2 again", sequence=2) == 2, "they are lost, or doubled"


async def _taken_anew(a: Member, world: World) -> None:
    """Under a term above that of the table."""
    world.views.give(a.journal, above=TopicTable.open(world.views.store, "t", CLOCK).snapshot.epochs[0] >> 32)
    term = world.views.term
    world.views.tell(a)

    def decided() -> bool:
        told = a.ownership.report().get("t")
        return told is not None and told.term == term and (told.state != "waiting" or told.floor == 0)

    await until(decided)
    told = a.ownership.report()["t"]
    assert told.state != "waiting", f"its own records are another's: {told}"
    await a.opened()


@contextmanager
def _unanswered() -> Iterator[None]:
    real = TopicTable.claim

    def unanswered(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise Unavailable("the answer was lost")

    with patched.object(TopicTable, "claim", unanswered):
        yield


@in_a_world
async def a_claim_without_an_answer_is_asked_after(chance: random.Random, world: World) -> None:
    """CO12"""
    world.make({})
    a = await world.start("a1")
    real, fate = TopicTable.claim, chance.choice(("landed", "lost", "late"))
    late: list[Callable[[], Any]] = []

    def unanswered(*arguments: Any, **named: Any) -> Any:
        if not late:
            late.append(lambda: real(*arguments, **named))
            if fate == "landed":
                late[0]()
            raise OutcomeUnknown("the answer was lost")
        return real(*arguments, **named)

    with patched.object(TopicTable, "claim", unanswered), patched.object(claiming, "SETTLE_SECONDS", 0.02):
        world.views.give("a1")
        world.views.tell(a)
        await until(lambda: a.ownership.held("t") is Held.OPEN or "t" in a.ownership.report())
        assert a.ownership.report()["t"].floor == 0, "it does not know of its own claim"
        topic = await a.opened()
        assert topic.epochs[-1] >> 32 == world.views.term
        if fate == "late":
            with suppress(SiltlogError):
                late[0]()
        assert topic.table.refresh().epochs[0] == topic.epochs[-1], "a claim lands that nobody knows of"


def an_operators_word_gives_up_what_was_waited_for(seed: int, _: Path) -> None:
    """CO13"""
    chance = random.Random(seed)
    for _n in range(40):
        terms = sorted(chance.sample(range(1, 20), 3))
        chain = tuple(
            TermEntry(term=term, node=f"n{at}", data_dir=f"d{at}", journal=f"j{at}", lost=chance.random() < 0.6)
            for at, term in enumerate(terms)
        )
        last = chance.choice(chain[:-1])
        abandon = chance.choice((0, terms[0], terms[1]))
        epoch = last.term << 32 | 7
        facts = Facts({0: epoch}, {0: -1}, {0: 0})
        entry = TopicEntry(topic_id="t", chain=chain, abandon=abandon)
        found = rules.decide(facts, entry, chain[-1].journal, ())
        gone = isinstance(found, MayClaim) and found.rules[0] is Rule.ABANDONED
        assert gone == (last.lost and last.term <= abandon), f"abandoned up to {abandon}: {found}"


@in_a_world
async def what_was_given_up_is_no_offset_again(chance: random.Random, world: World) -> None:
    """CO13"""
    world.make({"acks": "wal"})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    await a.opened()
    for number in range(count := chance.randrange(1, 5)):
        assert await a.publish(str(number)) == number
    await world.end(a)
    world.views.give("b1")
    world.views.lose("a1")
    world.views.abandon = world.views.chain[0].term
    world.views.tell(b)
    await b.opened()
    first = await b.publish("anew")
    assert first >= count and first % OFFSET_JUMP == 0, f"{first} was acknowledged before"


def topics_of_the_system_ship(seed: int, _: Path) -> None:
    """CG8"""
    chance = random.Random(seed)
    for _n in range(20):
        name = chance.choice((names.OFFSETS_TOPIC, "_jobs", "t", "orders.dlq"))
        level = chance.choice(("", "wal", "table", "object"))
        ships = ownership._ships(name, TopicConfig({"acks": level} if level else {}))
        assert ships == (name != "t" or level != "wal"), f"{name} with acks={level or 'none'}: {ships}"


def _step_without(what: str, when: Callable[[Ownership, str], bool]) -> Callable[[Patch], None]:
    step = Ownership._step

    def mutant(self: Ownership, name: str) -> Any:
        found = step(self, name)
        return None if found == what and when(self, name) else found

    return instead(Ownership, "_step", mutant)


def _right(self: Ownership, name: str) -> TermEntry | None:
    entry = self._entry(name)
    return entry.entitled(self._journal) if entry is not None else None


async def _settled_without_producers(self: Release, topic: TopicLog) -> None:
    await self._log.group_commit.commit()
    await self._flush.run(topic, topic.partitions)


def _leaves_producers(patch: Patch) -> None:
    patch.setattr(Release, "_settled", _settled_without_producers)
    # A claim is beside the table soon after it is made, too.
    patch.setattr(StateWriter, "_write_epochs", nothing_awaited)


def _takes_back(patch: Patch) -> None:
    let_go = Ownership._let_go

    async def mutant(self: Ownership, name: str) -> float:
        pause = await let_go(self, name)
        self._gone.discard(name)
        return pause

    patch.setattr(Ownership, "_let_go", mutant)


def _tells_nobody(patch: Patch) -> None:
    made = Ownership.__init__
    patch.setattr(Ownership, "__init__", lambda self, *of, **rest: made(self, *of, **{**rest, "released": nothing}))


def _keeps_all_the_same(patch: Patch) -> None:
    hand_over = Release.hand_over

    async def mutant(self: Release, topic: TopicLog, hold_seconds_max: float) -> Any:
        return await hand_over(self, topic, 1e9)

    patch.setattr(Release, "hand_over", mutant)


def _released_all_the_same(patch: Patch) -> None:
    """It is given up once the release was sent."""
    hand_over = Release.hand_over

    async def mutant(self: Release, topic: TopicLog, hold_seconds_max: float) -> Any:
        handed = await hand_over(self, topic, 1e9)
        return "kept" if hold_seconds_max < 0 else handed

    patch.setattr(Release, "hand_over", mutant)


def _not_told_that_it_stays(patch: Patch) -> None:
    hand_over = Ownership._hand_over

    async def mutant(self: Ownership, name: str) -> float:
        pause = await hand_over(self, name)
        self._kept.pop(name, None)
        return pause

    patch.setattr(Ownership, "_hand_over", mutant)


def _no_pause(patch: Patch) -> None:
    pause = TopicLog.pause

    @contextmanager
    def mutant(self: TopicLog) -> Iterator[None]:
        with pause(self):
            waits, self.paused = self.paused, None
            yield
            self.paused = waits

    patch.setattr(TopicLog, "pause", mutant)


def _releases_what_is_synced(patch: Patch) -> None:
    """What was sequenced and is not synced yet stays behind."""

    async def settled(self: Release, topic: TopicLog) -> None:
        await self._states.write(topic, at_once=True)

    patch.setattr(Release, "_settled", settled)
    patch.setattr(Flush, "is_last", lambda self, topic: True)


def _gives_up_asking(patch: Patch) -> None:
    async def mutant(*_: Any) -> Any:
        raise OutcomeUnknown("the answer was lost")

    patch.setattr(claiming, "_settled", mutant)


def _not_taken(self: Former, topic: TopicLog) -> None:
    self._topic_logs.remove(topic)


def _plans_without_a_jump(patch: Patch) -> None:
    patch.setattr(plan, "OFFSET_JUMP", 1)


def _ships_as_it_was_made(name: str, config: TopicConfig) -> bool:
    entry = config.entry("acks")
    return entry.value != "wal" or entry.source == "default"


def _misses_nothing(patch: Patch) -> None:
    real = Ownership.__init__

    def mutant(self: Ownership, *parts: Any, **hears: Any) -> None:
        real(self, *parts, **{**hears, "missing": nothing})

    patch.setattr(Ownership, "__init__", mutant)


@in_a_world
async def what_is_not_there_is_said_to_be_missing(chance: random.Random, world: World) -> None:
    """CO14"""
    world.make({})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a, b)
    topic = await a.opened()
    assert (a.missing, b.missing) == ([], [])
    await a.topics.delete("t")
    world.views.lose("a1")
    world.views.give("b1")
    world.views.tell(b)
    if chance.random() < 0.5:
        world.make({}, "0b6ce8e0-9b0e-4b5a-8d3c-2f1f7e1e9f01")
    await until(lambda: len(b.missing) > 1)
    assert {*b.missing} == {("t", topic.topic_id)}, "nobody says which topic is gone"
    assert b.ownership.held("t") is Held.NOT


@in_a_world
async def what_a_server_alone_had_is_asked_for(chance: random.Random, world: World) -> None:
    """CO5"""
    world.make({"acks": "wal"})
    a, b = await world.start("a1"), await world.start("b1")
    world.views.give("a1")
    world.views.tell(a)
    await a.opened()
    sent = [str(number) for number in range(chance.randrange(1, 4))]
    for value in sent:
        await a.publish(value)
    await world.end(a)
    # No view knows of that: it was before there were any.
    world.views.chain = ()
    world.views.give("b1")
    again = await world.start("a2")
    world.views.tell(again, b)
    await until(lambda: b.ownership.waits("t") is not None)
    await until(lambda: again.wanted != [])
    assert {*again.wanted} == {"t"} and b.wanted == []
    world.views.give("a2")
    world.views.tell(again, b)
    await again.opened()
    assert await again.publish("more") == len(sent), "what its WAL has is not there"


MUTANTS: dict[str, Mutant] = {
    "CH1 what was sequenced is not flushed": Mutant(
        a_topic_that_moves_loses_and_doubles_nothing, _releases_what_is_synced
    ),
    "CH1 publishes do not wait": Mutant(a_topic_that_moves_loses_and_doubles_nothing, _no_pause),
    "CH2 producers stay behind": Mutant(a_topic_that_moves_loses_and_doubles_nothing, _leaves_producers),
    "CH3 who let go takes back": Mutant(who_let_go_waits_for_the_next_owner, _takes_back),
    "CH3 nobody is told": Mutant(who_let_go_waits_for_the_next_owner, _tells_nobody),
    "CH5 a hand-over takes as long as it takes": Mutant(
        a_hand_over_is_given_up_before_its_release, _keeps_all_the_same, 1
    ),
    "CH5 it is given up after the release": Mutant(
        a_hand_over_is_given_up_before_its_release, _released_all_the_same, 1
    ),
    "CH5 the beat does not say so": Mutant(a_hand_over_is_given_up_before_its_release, _not_told_that_it_stays, 1),
    "CO4 what it was decided on is not compared": Mutant(
        a_claim_is_made_on_what_it_was_decided_on, instead(claiming, "_decided_on", lambda snapshot: iter(()))
    ),
    "CO5 nobody asks for what he alone has": Mutant(
        what_a_server_alone_had_is_asked_for, instead(ownership, "is_here_alone", lambda *_: False)
    ),
    "CO8 who is named no more stays": Mutant(
        who_is_named_no_more_hands_over, _step_without("hand_over", lambda self, name: _right(self, name) is None), 2
    ),
    "CO8 any term will do": Mutant(
        who_is_named_no_more_hands_over, _step_without("hand_over", lambda self, name: _right(self, name) is not None)
    ),
    "CO9 nobody looks at what the WAL has": Mutant(
        what_a_fenced_owner_had_is_set_aside, instead(Ownership, "_look_at_former", nothing_awaited)
    ),
    "CO9 nothing is set aside": Mutant(
        what_a_fenced_owner_had_is_set_aside, instead(Taking, "_set_aside", nothing_awaited)
    ),
    "CO10 a sequence is told before the table has it": Mutant(
        what_a_producer_is_told_outlives_its_owner, instead(Log, "in_table", nothing_awaited)
    ),
    "CO10 an epoch is told whoever has the table": Mutant(
        what_a_producer_is_told_outlives_its_owner, instead(TopicLog, "check_owned", nothing), 1
    ),
    "CO11 what is not held is forgotten": Mutant(what_is_not_held_is_kept, instead(TopicLogs, "keep", nothing)),
    "CO11 a take that fails forgets": Mutant(what_is_not_held_is_kept, instead(Former, "not_taken", _not_taken)),
    "CO12 nobody asks": Mutant(a_claim_without_an_answer_is_asked_after, _gives_up_asking),
    "CO13 a word is for ever": Mutant(
        an_operators_word_gives_up_what_was_waited_for,
        instead(rules, "_given_up", lambda waits, entry: entry.abandon > 0),
    ),
    "CO13 nobody hears the word": Mutant(
        an_operators_word_gives_up_what_was_waited_for, instead(rules, "_given_up", lambda waits, entry: False)
    ),
    "CO13 nothing is jumped": Mutant(what_was_given_up_is_no_offset_again, _plans_without_a_jump),
    "CO14 what is not there is waited for": Mutant(what_is_not_there_is_said_to_be_missing, _misses_nothing),
    "CG8 a topic of the system is as it was made": Mutant(
        topics_of_the_system_ship, instead(ownership, "_ships", _ships_as_it_was_made)
    ),
}


@pytest.mark.rule("CH1", "CH2", "CH3", "CH5", "CO4", "CO5", "CO8", "CO9", "CO10", "CO11", "CO12", "CO13", "CO14", "CG8")
@pytest.mark.chaos
@pytest.mark.parametrize("play", plays(MUTANTS), ids=lambda play: play.__name__)
def test_owners_keep_their_rules(play: Play, tmp_path: Path) -> None:
    hold(play, seeds(1), tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_rig, "WAIT_SECONDS", 1.0)
    noticed(MUTANTS[name], tmp_path)
