"""A data dir that was copied, and its original, on one root: what either acknowledged is in the table or set aside."""

import shutil
from pathlib import Path

import pytest
from evidence import Found, read_table
from failure_rig import NEVER_FLUSHED, StartServer, refused, set_aside
from publishers import Wire

from siltlog.infra import names
from siltlog.server_process import ServerProcess

JUMP = 1 << 32
RECORDS = "/v1/topics/logs/records"


def copy_of(server: ServerProcess, name: str, make_server: StartServer, **settings: object) -> ServerProcess:
    """A server on a copy of the data dir as it is now, on the same root."""
    copy = make_server(name, root=server.root, **settings)
    left_out = shutil.ignore_patterns(names.LOCK_FILE, names.VALKEY_FOLDER, names.SOCKET_FILE)
    shutil.copytree(server.data_dir, copy.data_dir, ignore=left_out)
    return copy


def publish(server: ServerProcess, *values: str, acks: str = "wal") -> list[Found]:
    """What was acknowledged, where it is said to be."""
    body = {"records": [{"value": value} for value in values]}
    reply = Wire(server.url).call("POST", f"{RECORDS}?acks={acks}", body)
    assert reply.status == 200, reply
    placed = reply.document["records"]
    return [Found(partition, offset, value) for (partition, offset), value in zip(placed, values, strict=True)]


@pytest.fixture
def original(make_server: StartServer, tmp_path: Path) -> ServerProcess:
    """Runs, and has two records in the table of a topic."""
    server = make_server("original", root=(tmp_path / "lake").as_uri(), **NEVER_FLUSHED)
    server.start()
    Wire(server.url).create("logs", 1)
    assert publish(server, "a", "b", acks="table") == [(0, 0, "a"), (0, 1, "b")]
    return server


@pytest.mark.slow
@pytest.mark.rule("S4")
@pytest.mark.parametrize("end", ["killed", "running"])
def test_what_the_original_acknowledged_after_the_copy_is_set_aside(
    original: ServerProcess, make_server: StartServer, end: str
) -> None:
    shared = publish(original, "shared")
    copy = copy_of(original, "copy", make_server)
    own = publish(original, "own-1", "own-2")
    if end == "killed":
        original.kill()
    copy.start()
    theirs = publish(copy, "theirs-1", "theirs-2", "theirs-3", acks="table")
    if end == "running":
        # It is fenced by now or will be; either way it may not come back beside the copy.
        original.kill()
    assert "topic logs, partitions 0:" in refused(original)
    assert copy.stop() == 0
    original.start()
    assert set_aside(original) == own
    again = publish(original, "again", acks="table")
    assert again[0].offset > theirs[-1].offset
    assert original.stop() == 0
    there = read_table(original.root, "logs")
    assert [row.value for row in there] == ["a", "b", "shared", "theirs-1", "theirs-2", "theirs-3", "again"]
    assert [row for row in there if row.value == "shared"] == shared


@pytest.mark.slow
@pytest.mark.rule("S1", "S2")
def test_a_copy_that_is_behind_what_the_original_flushed_is_refused(
    original: ServerProcess, make_server: StartServer
) -> None:
    copy = copy_of(original, "copy", make_server)
    publish(original, "flushed", acks="table")
    acknowledged = publish(original, "in the log only")
    original.kill()
    said = refused(copy)
    assert "topic logs, partitions 0: this data dir is an older copy of the one that owns them" in said
    assert "Partition 0 has offsets up to 2 in its table, and this data dir brought it those up to 1." in said

    # The original is none the worse for it.
    original.start()
    onward = publish(original, "onward", acks="table")
    assert onward[0].offset == acknowledged[0].offset + 1
    original.kill()

    copy.start("--take-over")
    assert publish(copy, "jumped", acks="table") == [(0, JUMP, "jumped")]
    copy.kill()
    assert "another server, or another data dir, owns them" in refused(original)
    assert [row.value for row in read_table(original.root, "logs")] == [
        *("a", "b", "flushed", "in the log only", "onward", "jumped")
    ]
    assert set_aside(original) == set_aside(copy) == []


@pytest.mark.slow
def test_a_data_dir_that_moved_goes_on_whether_its_server_was_stopped_or_killed(
    original: ServerProcess, make_server: StartServer
) -> None:
    publish(original, "unflushed")
    original.kill()
    moved = copy_of(original, "moved", make_server)
    moved.start()
    assert publish(moved, "after a kill", acks="table") == [(0, 3, "after a kill")]
    assert moved.stop() == 0
    further = copy_of(moved, "further", make_server)
    further.start()
    assert publish(further, "after a stop", acks="table") == [(0, 4, "after a stop")]
    assert further.stop() == 0
    # And back again, to where nothing is left to say.
    original.start()
    assert publish(original, "back", acks="table") == [(0, 5, "back")]
    for server in (original, moved, further):
        assert set_aside(server) == []
