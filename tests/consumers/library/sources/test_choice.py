from collections.abc import Sequence

import pyarrow as pa
import pytest

from siltlog.consumers.library.sources.choice import FAR_BYTES, NEAR_BYTES, PROBE_RECORDS, RETRY_S, TABLE, FarBehind
from siltlog.consumers.library.sources.server import SERVER, Fetched, FetchPlan, Wanted
from siltlog.infra.client.record import TopicPartition
from siltlog.infra.clock import SystemClock
from siltlog.infra.columns import FETCH_SCHEMA
from siltlog.infra.errors import ConfigError, SiltlogError, problem
from siltlog.infra.records import Bounds

AT = TopicPartition("t", 0)
TABLE_OFFSET = 10**9
RECORD_BYTES = 1_000


class Table:
    """A source that gives or raises what it is told to."""

    def __init__(self) -> None:
        self.answer: Sequence[Fetched] | SiltlogError = []
        self.plans: list[FetchPlan] = []

    def read(self, plan: FetchPlan) -> Sequence[Fetched]:
        self.plans.append(plan)
        if isinstance(self.answer, SiltlogError):
            raise self.answer
        return self.answer


class Rig:
    def __init__(self) -> None:
        self.table = Table()
        self.clock = ManualClock()
        self.far = FarBehind(self.table, self.clock)

    def chosen(self, behind: int, at: TopicPartition = AT) -> str:
        bounds = Bounds(0, TABLE_OFFSET, TABLE_OFFSET + 10**6)
        return self.far.choose(Wanted(at, TABLE_OFFSET - behind, None, bounds), "wal")

    def read(self, answer: Sequence[Fetched] | SiltlogError) -> list[Fetched]:
        self.table.answer = answer
        return self.far.read(FetchPlan(TABLE, (), "wal", 10, 10, 500))


class ManualClock(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def rig() -> Rig:
    return Rig()


def rows_of(nbytes: int) -> Fetched:
    """One record of about so many bytes."""
    empty = FETCH_SCHEMA.empty_table().to_pydict()
    rows = pa.table({**{name: [None] for name in empty}, "value": [b"v" * nbytes]}, schema=FETCH_SCHEMA)
    return Fetched(AT, 1, rows)


def refused(code: str) -> Fetched:
    return Fetched(AT, 0, None, None, problem(code, "said"))


def test_the_server_is_asked_until_it_has_said_how_far_the_table_goes(rig: Rig) -> None:
    assert rig.far.choose(Wanted(AT, 0, None, None), "wal") == SERVER
    assert rig.chosen(PROBE_RECORDS - 1) == SERVER
    assert rig.chosen(PROBE_RECORDS) == TABLE


def test_what_records_weigh_decides_once_it_is_known(rig: Rig) -> None:
    part = rows_of(RECORD_BYTES)
    assert part.rows is not None
    assert rig.read([part]) == [part]
    far, near = FAR_BYTES // part.rows.nbytes + 1, NEAR_BYTES // part.rows.nbytes + 1
    assert rig.chosen(far - 2) == SERVER
    assert rig.chosen(far) == TABLE
    # Once begun it goes on until little is left, and then not at once again.
    assert rig.chosen(near) == TABLE
    assert rig.chosen(near - 2) == SERVER
    assert rig.chosen(near) == SERVER
    assert rig.chosen(far - 2) == SERVER
    assert rig.chosen(far - 2, TopicPartition("other", 0)) == TABLE


def test_it_never_waits(rig: Rig) -> None:
    rig.read([rows_of(1)])
    assert [plan.wait_ms for plan in rig.table.plans] == [0]
    # Nothing where something was said to be: the server is asked for a moment, not the files again and again.
    rig.read([])
    assert rig.chosen(10**8) == SERVER
    rig.clock.now += 2
    assert rig.chosen(10**8) == TABLE


@pytest.mark.rule("R5")
@pytest.mark.parametrize(
    "failure",
    [ConfigError("out of reach"), problem("topic_unavailable", "away"), [refused("corrupt_data")]],
    ids=["out-of-reach", "away", "damaged"],
)
def test_what_fails_is_left_to_the_server_for_a_while(rig: Rig, failure: list[Fetched] | SiltlogError) -> None:
    assert rig.read(failure) == []
    assert rig.chosen(10**8) == SERVER
    rig.clock.now += RETRY_S + 1
    assert rig.chosen(10**8) == TABLE


@pytest.mark.parametrize("code", ["offset_out_of_range", "unknown_topic"])
def test_what_the_server_says_of_a_position_is_passed_on(rig: Rig, code: str) -> None:
    part = refused(code)
    assert rig.read([part]) == [part]
    assert rig.chosen(10**8) == TABLE
