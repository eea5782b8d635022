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
from siltlog.ingest.flush.flush import is_urgent
from siltlog.testing import running_server


def urgent(
    *, awaited: bool = False, much: bool = False, tight: bool = False, draining: bool = False, **topic: object
) -> bool:
    """Whether files of eight bytes are."""
    log = SimpleNamespace(
        draining=draining,
        admission=SimpleNamespace(wal_holds_much=lambda: much),
        head_is_tight=lambda nbytes: tight or nbytes != 8,
    )
    chunks = [SimpleNamespace(nbytes=3), SimpleNamespace(nbytes=5)]
    work = [(SimpleNamespace(awaited=awaited), 0, 2, chunks)]
    own = SimpleNamespace(**{"hidden": False, "paused": None} | topic)
    return is_urgent(cast(Any, log), cast(Any, own), cast(Any, work))


def test_files_that_nobody_waits_for_are_not_urgent() -> None:
    assert not urgent()


@pytest.mark.parametrize(
    "why",
    [{"awaited": True}, {"much": True}, {"tight": True}, {"draining": True}, {"hidden": True}, {"paused": True}],
    ids=str,
)
def test_files_are_urgent_where_somebody_waits_or_room_runs_out(why: dict[str, Any]) -> None:
    assert urgent(**why)


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
