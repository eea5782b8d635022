"""Searches of a log that moves meanwhile, beside what is looked through by hand."""

import asyncio
import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from fake_log import CREATED_US, FakeLog

from siltlog.consumers.reading.cursor import Cursor
from siltlog.consumers.reading.lookup import Lookup
from siltlog.consumers.reading.row_groups import CheckedFiles, RowGroups
from siltlog.consumers.searching import search as searching
from siltlog.consumers.searching.member import Member
from siltlog.consumers.searching.places import Beginning, Place, SearchRange, find_range
from siltlog.consumers.searching.search import Search, Wanted
from siltlog.infra.arrow.record_filter import RecordFilter
from siltlog.infra.errors import CorruptData, Refused, SiltlogError
from siltlog.infra.store.local import LocalStore

T = TypeVar("T")
Place_ = tuple[int, int]
"""Partition and offset."""


class Rig:
    def __init__(self, folder: Path, partitions: int = 1) -> None:
        self.log = FakeLog(LocalStore(str(folder)))
        self.topic = self.log.create("flights", partitions)
        self.view = self.topic.partitions[0]
        self.between: Callable[[], None] = lambda: None

    def fill_files(self, count: int) -> None:
        """Files of four records each, and an empty head."""
        for _ in range(count):
            self.view.append([b"x"] * 4)
            self.view.flush()
            self.view.evict()

    async def run(self, work: Callable[[], T]) -> T:
        """Something may happen between the choice of a file and its reading."""
        self.between()
        return work()

    async def rest(self) -> None:
        self.between()

    def range(
        self, start: Beginning | None = None, end: Place | None = None, partitions: list[int] | None = None
    ) -> SearchRange:
        async def found() -> SearchRange:
            row_groups = RowGroups(self.log.store)
            try:
                lookup = Lookup(self.log.store, row_groups)
                return await find_range(self.log, lookup, "flights", start, end, partitions)
            finally:
                row_groups.close()

        return asyncio.run(found())

    def search(self, wanted: Wanted, within: SearchRange | None = None) -> Search:
        return Search(self.log.store, CheckedFiles(), self.run, self.rest, within or self.range(), wanted)


def finish(search: Search) -> list[Place_]:
    """All that it finds from here on."""

    async def found() -> list[Place_]:
        out: list[Place_] = []
        while not search.complete:
            piece = await search.step()
            if piece.rows is not None:
                out += [(piece.partition, offset) for offset in piece.rows.column("offset").to_pylist()]
            search.reached(piece.partition, piece.next_offset)
        return out

    return asyncio.run(found())


def wanted(
    key: bytes | None = None,
    contains: bytes | None = None,
    path: str | None = None,
    equals: object = None,
    producer_id: str | None = None,
) -> Wanted:
    records = RecordFilter(key, contains, producer_id=producer_id)
    return Wanted(records, None if path is None else Member(path, equals))


CASES: list[tuple[Wanted, Callable[[bytes | None, bytes | None], bool]]] = [
    (wanted(), lambda key, value: True),
    (wanted(key=b"a"), lambda key, value: key == b"a"),
    (wanted(contains=b"tea"), lambda key, value: value is not None and b"tea" in value),
    (wanted(producer_id="sends a"), lambda key, value: key == b"a"),
    (wanted(path="/id", equals=1), lambda key, value: value is not None and json.loads(value)["id"] == 1),
    (
        wanted(key=b"b", contains=b"cup", path="/id", equals=0),
        lambda key, value: key == b"b" and value is not None and b"cup" in value and json.loads(value)["id"] == 0,
    ),
]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("case", range(len(CASES)))
def test_finds_what_is_there_while_the_log_moves(tmp_path: Path, seed: int, case: int) -> None:
    dice = random.Random(f"{seed} {case}")
    rig = Rig(tmp_path, 2)
    sought, takes = CASES[case]
    there: dict[Place_, tuple[bytes | None, bytes | None]] = {}

    def append() -> None:
        view = dice.choice(rig.topic.partitions)
        first, count = view.high_watermark, dice.randint(1, 6)
        keys = [dice.choice([None, b"a", b"b"]) for _ in range(count)]
        values = [
            None
            if dice.random() < 0.2
            else b'{"id": %d, "item": "%b"}' % (dice.randint(0, 1), dice.choice([b"tea", b"cup"]))
            for _ in range(count)
        ]
        # Each key has a producer of its own.
        view.append(values, keys=keys, producer_ids=[key and f"sends {key.decode()}" for key in keys])
        pairs = zip(keys, values, strict=True)
        there.update({(view.partition, first + at): pair for at, pair in enumerate(pairs)})

    def settle() -> None:
        view = dice.choice(rig.topic.partitions)
        match dice.randint(0, 3):
            case 0:
                view.flush(dice.randint(view.bounds().table_offset, view.high_watermark))
            case 1:
                view.evict()
            case 2:
                files = rig.topic.snapshot.files_of(view.partition)
                if len(files) > 1:
                    at = dice.randrange(len(files) - 1)
                    view.rewrite(files[at : at + 2], vacuum=True)
            case 3:
                append()

    for _ in range(25):
        append()
        settle()
    within = rig.range()
    ends = dict(within.ends)
    rig.between = settle
    found = finish(search := rig.search(sought, within))
    expected = [at for at, pair in sorted(there.items()) if at[1] < ends[at[0]] and takes(*pair)]
    assert sorted(found) == expected
    for partition in (0, 1):
        offsets = [offset for of, offset in found if of == partition]
        assert offsets == sorted(offsets)
    assert search.looked_at == search.of == sum(ends.values())
    assert search.cursor() is None


def test_only_columns_that_are_asked_about_are_read_of_what_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    read: list[list[str]] = []
    reads = searching.read_row_group
    monkeypatch.setattr(
        searching,
        "read_row_group",
        lambda *given, columns, offset: read.append(list(columns)) or reads(*given, columns=columns, offset=offset),
    )
    for key in (b"a", b"b"):
        rig.view.append([b"x"] * 3, keys=[key] * 3)
        rig.view.flush()
        rig.view.evict()
    assert finish(rig.search(wanted(key=b"b"))) == [(0, 3), (0, 4), (0, 5)]
    assert read[:2] == [["offset", "key"], ["offset", "key"]]
    assert len(read) == 3
    read.clear()
    assert finish(rig.search(wanted(contains=b"no"))) == []
    assert read == [["offset", "value"]] * 2


def test_files_outside_of_the_range_are_not_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(4):
        rig.view.append([b"x"] * 3)
        rig.view.flush()
        rig.view.evict()
    first, *_, last = rig.topic.snapshot.files_of(0)
    rig.topic.delete_objects([first, last])
    within = rig.range(Beginning(timestamp=(CREATED_US + 3_999) // 1000), Place(offset=9))
    assert dict(within.starts) == {0: 12}, "no record is as late"
    within = rig.range(Beginning(offset=3), Place(offset=-3))
    assert finish(rig.search(wanted(), within)) == [(0, offset) for offset in range(3, 9)]
    with pytest.raises(CorruptData):
        finish(rig.search(wanted()))


def test_what_retention_takes_meanwhile_is_hidden(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.fill_files(2)
    search = rig.search(wanted())
    rig.view.retain(6)
    assert finish(search) == [(0, 6), (0, 7)]
    assert search.looked_at == search.of == 8


def test_what_compaction_and_retention_left_nothing_of_is_passed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.fill_files(3)
    rig.view.rewrite(rig.topic.snapshot.files_of(0)[1:], without=range(4, 12))
    assert finish(search := rig.search(wanted())) == [(0, offset) for offset in range(4)]
    assert search.looked_at == 12
    search = rig.search(wanted())
    rig.view.retain(12)
    assert finish(search) == []
    assert search.looked_at == search.of == 12


def test_a_log_start_that_moves_while_the_head_is_asked_is_where_it_goes_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.fill_files(2)
    search = rig.search(wanted())

    async def retain() -> None:
        if not rig.topic.snapshot.starts[0]:
            rig.view.retain(6, vacuum=True)

    rig.log.pause = retain
    assert finish(search) == [(0, 6), (0, 7)]
    assert search.looked_at == search.of == 8


def test_times_and_words_are_places(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 2)
    for view in rig.topic.partitions:
        view.append([b"x"] * 5, timestamps=[CREATED_US + n * 1_000_000 for n in range(5)])
    second = CREATED_US // 1000 + 1_000
    within = rig.range(Beginning(timestamp=second), Place(timestamp=second + 2_000))
    assert (dict(within.starts), dict(within.ends)) == ({0: 1, 1: 1}, {0: 3, 1: 3})
    within = rig.range(Beginning(offset="latest"), None, [1])
    assert (dict(within.starts), dict(within.ends)) == ({1: 5}, {1: 5})
    within = rig.range(Beginning(offset=-2), Place(offset=100))
    assert (dict(within.starts), dict(within.ends)) == ({0: 3, 1: 3}, {0: 5, 1: 5})
    within = rig.range(Beginning(offset=4), Place(offset=2))
    assert dict(within.starts) == dict(within.ends) == {0: 4, 1: 4}


@pytest.mark.parametrize("after", range(6))
def test_a_cursor_goes_on_to_the_same_end(tmp_path: Path, after: int) -> None:
    rig = Rig(tmp_path, 2)
    for view in rig.topic.partitions:
        for _ in range(2):
            view.append([b"x"] * 4)
            view.flush()
            view.evict()
        view.append([b"x"] * 4)
    search = rig.search(wanted(), rig.range(Beginning(offset=1), Place(offset=-1)))

    async def some() -> list[Place_]:
        out: list[Place_] = []
        for _ in range(after):
            piece = await search.step()
            assert piece.rows is not None
            out += [(piece.partition, offset) for offset in piece.rows.column("offset").to_pylist()]
            search.reached(piece.partition, piece.next_offset)
        return out

    found = asyncio.run(some())
    rig.view.append([b"later"])
    cursor = search.cursor()
    if cursor is not None:
        found += finish(rig.search(wanted(), rig.range(Beginning(cursor=cursor))))
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(1, 11)]


CURSORS = [
    Cursor(topic, dict.fromkeys(partitions, 0)).text()
    for topic, partitions in ((str(uuid.UUID(int=1)), [0]), (str(uuid.UUID(int=2)), [0]), (str(uuid.UUID(int=1)), [1]))
]
"""Cursors that differ are not of one range."""


@pytest.mark.parametrize(
    ("start", "end", "partitions", "says"),
    [
        (Beginning(), None, None, "from takes offset or timestamp or cursor"),
        (Beginning(offset=1, timestamp=1), None, None, "offset and timestamp is given"),
        (None, Place(), None, "to takes offset or timestamp"),
        (Beginning(timestamp="soon"), None, None, "timestamp"),
        (Beginning(cursor="AQ"), None, None, "from.cursor is damaged"),
        (Beginning(cursor="AQ.AQ"), None, None, "from.cursor is damaged"),
        (Beginning(cursor="AQ"), Place(offset=1), None, "leave out to and partitions"),
        (Beginning(cursor=f"{CURSORS[0]}.{CURSORS[1]}"), None, None, "from.cursor is damaged"),
        (Beginning(cursor=f"{CURSORS[0]}.{CURSORS[2]}"), None, None, "from.cursor is damaged"),
        (None, None, [0, 0], "twice"),
        (None, None, [7], "partitions 0 to 0, not 7"),
        (None, None, list(range(257)), "257 partitions are more"),
    ],
)
def test_what_is_no_range(
    tmp_path: Path, start: Beginning | None, end: Place | None, partitions: list[int] | None, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        Rig(tmp_path).range(start, end, partitions)


def test_what_nobody_owns_any_more_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.view.append([b"x"] * 4)
    search = rig.search(wanted())
    rig.view.high_watermark = 2

    async def nobody() -> None:
        return None

    monkeypatch.setattr(rig.view, "decided", nobody)
    with pytest.raises(SiltlogError, match="can be read up to 2") as refused:
        finish(search)
    assert refused.value.error_code == "topic_unavailable"
    assert search.cursor() is not None
