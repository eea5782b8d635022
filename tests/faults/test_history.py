"""The checker of histories finds what one log cannot have told."""

import random
from collections.abc import Sequence

import pytest
from chaos import seeds
from history import Ack, Read, Row, complaints

A = Ack("p", "p:0", 0, 0, 1.0, 2.0)
B = Ack("p", "p:1", 0, 1, 3.0, 4.0)
C = Ack("q", "q:0", 0, 2, 3.5, 5.0)
TABLE = [Row(0, 0, "p:0"), Row(0, 1, "p:1"), Row(0, 2, "q:0")]
READ = Read("r", 0, 0, 2, 2, ((0, "p:0"), (1, "p:1")), 4.5, 4.6)


def test_what_one_log_has_told_is_fine() -> None:
    assert complaints([A, B, C], [READ], TABLE, exactly_once={"p:1"}, refused={"z:1"}) == []
    assert complaints([], [], []) == []


@pytest.mark.parametrize(
    ("acks", "reads", "table", "said"),
    [
        ([A, B._replace(offset=0)], [], TABLE, "both acknowledged at (0, 0)"),
        ([A, A._replace(offset=1)], [], TABLE, "p:0 was acknowledged at (0, 0), and at (0, 1)"),
        ([A._replace(offset=1), B._replace(offset=0)], [], [], "p:1 is at 0 of partition 0, and was sent after p:0"),
        ([], [READ], TABLE[:1], "r read p:1 at 1 of partition 0, where nothing is"),
        ([], [READ], [TABLE[0], Row(0, 1, "x:1")], "where x:1 is"),
        ([], [READ._replace(rows=((0, "p:0"),))], TABLE, "and not p:1 at 1"),
        ([], [READ._replace(watermark=1)], TABLE, "up to 2, above 1"),
        ([], [READ, READ._replace(watermark=1, next_offset=0, rows=(), began=9.0)], TABLE, "told 1 as the watermark"),
        ([A, B], [READ._replace(watermark=1, next_offset=0, rows=())], TABLE, "after 1 had been acknowledged"),
        ([], [], [*TABLE, Row(1, 0, "q:0")], "q:0 is in the table 2 times"),
        ([], [], [*TABLE, Row(0, 2, "x:0")], "the table has 2 records at (0, 2)"),
        ([A], [], TABLE[1:], "p:0 was acknowledged at (0, 0) and is not there"),
        ([A._replace(offset=3)], [], TABLE, "p:0 was acknowledged at (0, 3) and is at (0, 0)"),
        ([], [], [TABLE[0], TABLE[2]], "partition 0 has no record at 1, and some above"),
    ],
)
def test_what_cannot_be_is_found(acks: list[Ack], reads: list[Read], table: list[Row], said: str) -> None:
    found = complaints(acks, reads, table)
    assert any(said in one for one in found), found


def test_what_was_refused_or_promised_is_looked_for() -> None:
    assert "p:0 was refused and is at (0, 0)" in complaints([], [], TABLE, refused={"p:0"})
    assert "x:1 was acknowledged in the end and is not there" in complaints([], [], TABLE, exactly_once={"x:1"})
    assert complaints([], [], [TABLE[0], TABLE[2]], gaps=True) == []
    low = READ._replace(watermark=1, next_offset=0, rows=())
    assert complaints([A, B], [low], TABLE, fresh=False) == []
    later = low._replace(began=9.0)
    assert complaints([], [READ, later._replace(node="n2")], TABLE, fresh=False) == []
    assert complaints([], [READ, later], TABLE, fresh=False) != []


@pytest.mark.chaos
@pytest.mark.parametrize("seed", seeds(30))
def test_histories_of_a_log_are_fine_and_hurt_ones_are_not(seed: int) -> None:
    chance = random.Random(seed)
    acks, reads, table = _history(chance)
    assert complaints(acks, reads, table) == []
    doomed = chance.choice([ack for ack in acks if ack.offset > 0])
    hurts = {
        "lost": lambda: complaints(acks, reads, [row for row in table if row.value != doomed.value]),
        "moved": lambda: complaints([*acks, doomed._replace(offset=doomed.offset - 1)], reads, table),
        "doubled": lambda: complaints(acks, reads, [*table, Row(9, 0, doomed.value)]),
        "late": lambda: complaints(
            [*acks, Ack("z", "z:0", doomed.partition, 0, 1e6, 1e6 + 1)], [], [*table, Row(8, 0, "z:0")]
        ),
    }
    for hurt, found in hurts.items():
        assert found(), hurt


def _history(chance: random.Random) -> tuple[list[Ack], list[Read], Sequence[Row]]:
    """Producers that send one record after another, and readers, of a log that is never wrong."""
    acks: list[Ack] = []
    reads: list[Read] = []
    table: list[Row] = []
    now, sent = 0.0, 0
    ends = [0, 0]
    for _ in range(100):
        now += chance.random()
        partition = chance.randrange(2)
        if chance.random() < 0.7:
            value = f"p:{sent}"
            sent += 1
            table.append(Row(partition, ends[partition], value))
            if chance.random() < 0.9:
                acks.append(Ack("p", value, partition, ends[partition], now - chance.random(), now + chance.random()))
            ends[partition] += 1
            now += 2
        else:
            first = chance.randint(0, ends[partition])
            end = chance.randint(first, ends[partition])
            rows = tuple(
                (row.offset, row.value) for row in table if row.partition == partition and first <= row.offset < end
            )
            reads.append(Read("r", partition, first, end, ends[partition], rows, now, now + 0.1))
    return acks, reads, table
