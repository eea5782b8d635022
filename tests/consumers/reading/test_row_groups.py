import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_log import FakeLog

from siltlog.consumers.reading.row_groups import NICE, RowGroups, run_behind_others
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


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_only_the_threads_that_ask_for_it_stand_back() -> None:
    def own() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = own()
    with ThreadPoolExecutor(1, initializer=run_behind_others) as threads:
        assert threads.submit(own).result() == max(before, NICE)
    assert own() == before
