"""Fetch sessions: what a reader learns by one is what full fetches would tell it."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siltlog.consumers.kafka.sessions import (
    FIRST_EPOCH,
    LAST,
    NEW,
    NO_SESSION,
    NUMBER_MAX,
    FetchSessions,
    Part,
    Room,
    SessionRefused,
    Turn,
    Wish,
)
from siltlog.infra.kafka.errors import KafkaError

NO_ID = bytes(16)
PARTS = [Part(topic, NO_ID, partition) for topic in "ab" for partition in range(3)]


def wish(offset: int) -> Wish:
    return Wish(offset, 100, -1)


@dataclass
class Partition:
    start: int = 0
    end: int = 0
    failed: bool = False


@dataclass(frozen=True)
class Answer:
    """What a fetch says of a partition: offsets of records, bounds, whether it failed."""

    bounds: tuple[int, int]
    records: tuple[int, ...] = ()
    failed: bool = False


@dataclass
class Reader:
    """Knows of each partition what it was told last, as the clients of Kafka do."""

    wanted: dict[Part, int] = field(default_factory=dict)
    """The next offset of each partition that is read."""
    asked: dict[Part, int] = field(default_factory=dict)
    """What the server was told of them."""
    bounds: dict[Part, tuple[int, int]] = field(default_factory=dict)
    session_id: int = NO_SESSION
    epoch: int = NEW

    def fetch(self, sessions: FetchSessions, log: dict[Part, Partition]) -> dict[Part, Answer]:
        """Fetches, and gives what the reader takes the answer to be: of every partition that it reads."""
        changed = {part: wish(at) for part, at in self.wanted.items() if self.asked.get(part) != at}
        forgotten = self.asked.keys() - self.wanted.keys()
        if self.epoch == NEW:
            changed, forgotten = {part: wish(at) for part, at in self.wanted.items()}, set()
        turn = sessions.begin(self.session_id, self.epoch, changed, forgotten, by_id=False)
        assert {part: each.offset for part, each in turn.wishes.items()} == self.wanted
        told = said(turn, log)
        self.asked = dict(self.wanted)
        if turn.session_id == NO_SESSION:
            assert told.keys() == self.wanted.keys()
        self.session_id = turn.session_id
        self.epoch = NEW if turn.session_id == NO_SESSION else self.epoch + 1
        self.bounds = {part: self.bounds.get(part, (-1, -1)) for part in self.wanted}
        # What stands beside an error is passed over.
        self.bounds |= {part: (-1, -1) if answer.failed else answer.bounds for part, answer in told.items()}
        return {part: told.get(part, Answer(self.bounds[part])) for part in self.wanted}


def full(log: dict[Part, Partition], part: Part, offset: int) -> Answer:
    """What a fetch without a session says."""
    found = log[part]
    if found.failed:
        return Answer((found.end, found.start), failed=True)
    return Answer((found.end, found.start), tuple(range(max(offset, found.start), min(offset + 3, found.end))))


def said(turn: Turn, log: dict[Part, Partition]) -> dict[Part, Answer]:
    answers = {part: full(log, part, each.offset) for part, each in turn.wishes.items()}
    return {
        part: answer
        for part, answer in answers.items()
        if turn.is_news(part, answer.bounds, has_records=bool(answer.records), failed=answer.failed)
    }


@pytest.mark.rule("KF21")
@given(st.integers(0, 2**32), st.sampled_from([3, 6, 100]))
def test_the_answers_of_a_session_are_those_of_full_fetches(seed: int, partitions_max: int) -> None:
    chance = random.Random(seed)
    log = {part: Partition() for part in PARTS}
    room = Room(partitions_max)
    sessions, reader = FetchSessions(room), Reader()
    for _ in range(40):
        for part in chance.sample(PARTS, chance.randrange(3)):
            match chance.randrange(3):
                case 0:
                    log[part].end += chance.randrange(5)
                case 1:
                    log[part].start = chance.randint(log[part].start, log[part].end)
                case 2:
                    log[part].failed = not log[part].failed
        part = chance.choice(PARTS)
        if chance.random() < 0.4:
            reader.wanted.pop(part, None) if part in reader.wanted else reader.wanted.setdefault(part, log[part].end)
        elif part in reader.wanted and chance.random() < 0.3:
            reader.wanted[part] = log[part].start
        if chance.random() < 0.05:
            sessions.close()
            sessions, reader.session_id, reader.epoch = FetchSessions(room), NO_SESSION, NEW
        elif chance.random() < 0.1:
            with pytest.raises(SessionRefused):
                sessions.begin(reader.session_id + 1, FIRST_EPOCH, {}, (), by_id=False)
            reader.epoch = NEW if chance.random() < 0.5 else reader.epoch
        found = reader.fetch(sessions, log)
        assert found == {part: full(log, part, at) for part, at in reader.wanted.items()}
        assert room.left == partitions_max - (len(reader.wanted) if reader.session_id else 0)
        for part, answer in found.items():
            reader.wanted[part] += len(answer.records)
    sessions.close()
    assert room.left == partitions_max


def made(sessions: FetchSessions, *parts: Part, by_id: bool = False) -> Turn:
    return sessions.begin(NO_SESSION, NEW, {part: wish(0) for part in parts}, (), by_id=by_id)


@pytest.mark.rule("KF21")
def test_what_is_none_of_the_session_is_refused_and_changes_nothing() -> None:
    sessions = FetchSessions(Room())
    turn = made(sessions, *PARTS)
    for session_id, epoch, by_id, code in (
        (turn.session_id + 1, 1, False, KafkaError.FETCH_SESSION_ID_NOT_FOUND),
        (NO_SESSION, 1, False, KafkaError.FETCH_SESSION_ID_NOT_FOUND),
        (turn.session_id, 2, False, KafkaError.INVALID_FETCH_SESSION_EPOCH),
        (turn.session_id, 1, True, KafkaError.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        with pytest.raises(SessionRefused) as caught:
            sessions.begin(session_id, epoch, {}, PARTS, by_id=by_id)
        assert caught.value.code == code
    assert list(sessions.begin(turn.session_id, 1, {}, (), by_id=False).wishes) == PARTS


@pytest.mark.rule("KF21")
def test_a_fetch_without_a_session_leaves_that_of_its_connection_and_the_last_one_ends_it() -> None:
    room = Room(10)
    sessions = FetchSessions(room)
    turn = made(sessions, *PARTS)
    assert sessions.begin(NO_SESSION, LAST, {PARTS[0]: wish(1)}, (), by_id=False).session_id == NO_SESSION
    assert sessions.begin(turn.session_id, 1, {}, PARTS[1:], by_id=False).wishes == {PARTS[0]: wish(0)}
    last = sessions.begin(turn.session_id, LAST, {PARTS[0]: wish(1)}, (), by_id=False)
    assert (last.session_id, room.left) == (NO_SESSION, 10)
    with pytest.raises(SessionRefused):
        sessions.begin(turn.session_id, 2, {}, (), by_id=False)


@pytest.mark.rule("KF21")
def test_a_new_session_takes_the_place_of_the_one_before_and_has_another_number() -> None:
    room = Room(10)
    sessions, others = FetchSessions(room), FetchSessions(room)
    numbers = [made(each, *PARTS[:3]).session_id for each in (sessions, others, sessions)]
    assert len({*numbers, NO_SESSION}) == 4
    assert room.left == 4
    with pytest.raises(SessionRefused):
        sessions.begin(numbers[0], 1, {}, (), by_id=False)


@pytest.mark.rule("KF21")
def test_without_room_there_is_no_session() -> None:
    room = Room(7)
    sessions, others = FetchSessions(room), FetchSessions(room)
    turn = made(sessions, *PARTS)
    assert made(others, *PARTS[:2]).session_id == NO_SESSION
    assert made(others, PARTS[0]).session_id != NO_SESSION
    more = Part("c", NO_ID, 0)
    grown = sessions.begin(turn.session_id, 1, {more: wish(0)}, (), by_id=False)
    assert (grown.session_id, list(grown.wishes), room.left) == (NO_SESSION, [*PARTS, more], 6)


def test_one_of_nothing_begins_as_any_and_ends_when_it_has_nothing() -> None:
    sessions = FetchSessions(Room())
    turn = made(sessions)
    assert turn.session_id != NO_SESSION
    assert sessions.begin(turn.session_id, 1, {PARTS[0]: wish(0)}, (), by_id=False).session_id == turn.session_id
    assert sessions.begin(turn.session_id, 2, {}, PARTS[:1], by_id=False).session_id == NO_SESSION


def test_epochs_begin_anew_after_the_last() -> None:
    sessions = FetchSessions(Room())
    number = made(sessions, *PARTS).session_id
    assert sessions._session is not None
    sessions._session.epoch = NUMBER_MAX
    for epoch in (NUMBER_MAX, 1, 2):
        sessions.begin(number, epoch, {}, (), by_id=False)
