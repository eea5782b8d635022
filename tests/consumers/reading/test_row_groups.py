import asyncio
from pathlib import Path

from fake_log import FakeLog

from siltlog.consumers.reading.row_groups import RowGroups
from siltlog.infra.columns import RECORD_SCHEMA
from siltlog.infra.store.local import LocalStore


def test_a_group_that_is_read_from_before_its_first_row_takes_the_place_of_itself(tmp_path: Path) -> None:
    log = FakeLog(LocalStore(str(tmp_path)))
    view = log.create("flights").partitions[0]
    view.append([b"x"] * 8)
    view.flush()
    file = view.rewrite(log.topic("flights").snapshot.files_of(0), without=range(4))
    assert file is not None
    groups = RowGroups(log.store)

    async def test() -> None:
        within = await groups.at("flights", file, 5)
        once = groups.nbytes
        before = await groups.at("flights", file, 1)
        assert (within.first_offset, before.first_offset) == (4, 1)
        assert groups.nbytes == once == before.nbytes
        assert await groups.at("flights", file, 6) is before
        produced = await groups.at("flights", file, 6, producers=True)
        assert produced.batch.num_columns > before.batch.num_columns
        assert groups.nbytes == once + produced.nbytes

    try:
        asyncio.run(test())
    finally:
        groups.close()


def test_a_file_without_rows_there_has_an_empty_group(tmp_path: Path) -> None:
    log = FakeLog(LocalStore(str(tmp_path)))
    view = log.create("flights").partitions[0]
    view.append([b"x"] * 4)
    view.flush()
    [file] = log.topic("flights").snapshot.files_of(0)
    groups = RowGroups(log.store)
    try:
        group = asyncio.run(groups.at("flights", file, 4))
    finally:
        groups.close()
    assert group.batch.num_rows == 0 and group.batch.schema == RECORD_SCHEMA
