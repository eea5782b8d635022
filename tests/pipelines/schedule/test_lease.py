"""The right to run the schedule: one at a time, taken over from who is gone, and what was run goes with it."""

import tempfile
import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_server import S3Server
from schedule_rig import MovedClock

from siltlog.infra import names
from siltlog.infra.settings.cron import Cron
from siltlog.infra.store.store import ObjectStore, Put, open_store
from siltlog.pipelines.schedule.lease import KEPT_ENTRIES, JobState, OpenRun, ScheduleLease, newest_entry, states

LEASE_MS = 90_000
JOBS = {"retain": JobState("5 * * * *", 17)}


def lease(store: ObjectStore, clock: MovedClock, runner: str) -> ScheduleLease:
    return ScheduleLease(store, str(uuid.uuid4()), runner, clock, LEASE_MS)


def test_it_says_of_each_job_what_was_handled_and_what_is_open() -> None:
    crons = {job: Cron("5 * * * *") for job in ("compact", "retain", "vacuum")}
    open_runs = {
        "retain": OpenRun(4, "a", "hand"),
        "vacuum": OpenRun(5, "b", "schedule"),
        "audit": OpenRun(6, "c", "hand"),
    }
    assert states(crons, {"retain": 3}, {"compact": "no Java"}, open_runs, 9) == {
        "compact": JobState("5 * * * *", 9, unavailable="no Java"),
        "retain": JobState("5 * * * *", 3, 4, "a", by_hand=True),
        "vacuum": JobState("5 * * * *", 9, 5, "b"),
    }


def test_one_has_it_and_another_gets_it_once_it_is_given_back(store: ObjectStore) -> None:
    clock = MovedClock(0)
    first, second = lease(store, clock, "a"), lease(store, clock, "b")
    assert first.take() and first.held
    assert not second.take() and not second.held
    assert first.renew(JOBS)
    first.release(JOBS)
    assert not first.held
    assert second.take() and second.jobs == JOBS
    assert not first.take()
    found = newest_entry(store)
    assert found is not None and found[1].runner == "b"


@pytest.mark.rule("H1")
def test_from_one_that_is_gone_it_is_taken_after_a_whole_lease_of_silence(store: ObjectStore) -> None:
    clock = MovedClock(0)
    gone, waits = lease(store, clock, "a"), lease(store, clock, "b")
    assert gone.take()
    clock.advance(LEASE_MS / 1000 - 1)
    assert not waits.take(), "it has not watched it for long enough itself"
    assert gone.renew(JOBS)
    clock.advance(LEASE_MS / 1000 - 1)
    assert not waits.take(), "it was renewed"
    clock.advance(LEASE_MS / 1000)
    assert not gone.held, "who has it counts from before it wrote"
    assert waits.take() and waits.jobs == JOBS
    assert not gone.renew({}) and not gone.held
    assert waits.renew(JOBS)


def test_from_one_that_is_known_to_be_gone_it_is_taken_at_once(store: ObjectStore) -> None:
    clock = MovedClock(0)
    gone = ScheduleLease(store, "former", "a", clock, LEASE_MS)
    assert gone.take() and gone.renew(JOBS)
    other = ScheduleLease(store, "other", "b", clock, LEASE_MS, former="somebody else")
    assert not other.take()
    again = ScheduleLease(store, "again", "a", clock, LEASE_MS, former="former")
    assert again.take() and again.jobs == JOBS
    assert not gone.renew({}), "what is not gone after all loses it"


def test_who_could_not_hear_that_it_wrote_has_it(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovedClock(0)
    one = lease(store, clock, "a")
    put = store.put_if_absent
    monkeypatch.setattr(store, "put_if_absent", lambda path, data: [put(path, data), Put.EXISTS][1])
    assert one.take() and one.held


@pytest.mark.rule("H2")
def test_a_writer_that_comes_after_many_others_does_not_have_it(store: ObjectStore) -> None:
    """Its number was deleted meanwhile, so it can be written again."""
    clock = MovedClock(0)
    slow, quick = lease(store, clock, "a"), lease(store, clock, "b")
    assert slow.take()
    slow.release({})
    assert quick.take()
    for _ in range(3 * KEPT_ENTRIES):
        assert quick.renew(JOBS)
    assert len(store.list(names.SCHEDULE_FOLDER)) <= KEPT_ENTRIES + 1
    assert not slow._write(3, {}) and not slow.held
    assert quick.renew(JOBS)


def test_what_cannot_be_read_is_nobodys(store: ObjectStore) -> None:
    store.put_if_absent(names.schedule_object(41), b"half of an ent")
    store.put_if_absent(f"{names.SCHEDULE_FOLDER}/readme", b"not a number")
    one = lease(store, MovedClock(0), "a")
    assert one.take()
    found = newest_entry(store)
    assert found is not None and found[0] == 42


@pytest.mark.rule("H1")
def test_of_many_that_want_it_at_once_one_gets_it(store: ObjectStore) -> None:
    clock = MovedClock(0)
    contenders = [lease(store, clock, str(number)) for number in range(8)]
    barrier = threading.Barrier(len(contenders))
    got: list[bool] = []

    def take(contender: ScheduleLease) -> None:
        barrier.wait(60)
        got.append(contender.take())

    threads = [threading.Thread(target=take, args=(contender,)) for contender in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got.count(True) == 1 and len(got) == len(contenders)
    assert sum(contender.held for contender in contenders) == 1


@pytest.mark.rule("H1")
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["take", "renew", "release", "nothing"]), st.integers(0, 120)),
        max_size=40,
    )
)
def test_never_do_two_hold_it(steps: list[tuple[int, str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, clock = open_store(f"file://{folder}/lake"), MovedClock(0)
        contenders = [lease(store, clock, str(number)) for number in range(3)]
        for number, what, seconds in steps:
            contender = contenders[number]
            if what == "take":
                contender.take()
            elif what == "renew" and contender.held:
                assert contender.renew(JOBS), "nobody else may have taken what is held"
            elif what == "release":
                contender.release(JOBS)
            assert sum(each.held for each in contenders) <= 1
            clock.advance(seconds)


@pytest.mark.s3
def test_on_s3(s3_server: S3Server) -> None:
    store = open_store(s3_server.root_uri("lease"), s3_endpoint=s3_server.endpoint, s3_region=s3_server.region)
    clock = MovedClock(0)
    first, second = lease(store, clock, "a"), lease(store, clock, "b")
    assert first.take() and not second.take()
    assert first.renew(JOBS)
    first.release(JOBS)
    assert second.take() and second.jobs == JOBS
