"""Files of a flush are written behind whoever publishes and reads, unless somebody waits for the table."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from http_rig import NO_REDIS, Http

from siltlog.infra.process.priority import NICE
from siltlog.ingest.flush.flush import place_of
from siltlog.ingest.flush.threads import Place
from siltlog.testing import running_server


def place(
    *, awaited: bool = False, much: bool = False, tight: bool = False, draining: bool = False, **topic: object
) -> Place:
    """Where files of eight bytes are written."""
    log = SimpleNamespace(
        draining=draining,
        admission=SimpleNamespace(wal_holds_much=lambda: much),
        head_is_tight=lambda nbytes: tight or nbytes != 8,
    )
    partitions = [SimpleNamespace(awaited=False), SimpleNamespace(awaited=awaited)]
    own = SimpleNamespace(**{"hidden": False, "paused": None, "partitions": partitions} | topic)
    return place_of(cast(Any, log), cast(Any, own), 8)


def test_files_that_nobody_waits_for_are_not_urgent() -> None:
    assert place() is Place.BEHIND


@pytest.mark.parametrize("why", [{"much": True}, {"tight": True}, {"draining": True}], ids=str)
def test_files_are_urgent_where_room_runs_out(why: dict[str, Any]) -> None:
    assert place(**why) is Place.BESIDE


@pytest.mark.rule("F10")
@pytest.mark.parametrize("why", [{"awaited": True}, {"hidden": True}, {"paused": True}], ids=str)
def test_files_are_written_apart_where_somebody_waits(why: dict[str, Any]) -> None:
    assert place(**why) is Place.AWAITED
    assert place(**why, much=True, tight=True, draining=True) is Place.AWAITED


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_a_thread_that_writes_files_stands_back(tmp_path: Path) -> None:
    with running_server(data_dir=tmp_path / "data", redis_url=NO_REDIS, flush_ms=1, schedule="off") as server:

        def standing_back() -> set[int]:
            found = set()
            for task in Path(f"/proc/{server.pid}/task").iterdir():
                with suppress(ProcessLookupError):  # it ended meanwhile
                    if os.getpriority(os.PRIO_PROCESS, int(task.name)) >= NICE:
                        found.add(int(task.name))
            return found

        http = Http(server.url)
        http.create("t", 1)
        before = standing_back()
        assert http.publish("t", {"value": "a"}).status == 200
        while http.bounds("t")["table_offset"] == 0:
            assert server.running
        assert standing_back() - before
