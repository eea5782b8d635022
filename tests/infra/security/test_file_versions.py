"""Files that are replaced: their versions, and for how long others may be still to come."""

import os
from pathlib import Path

import pytest
from tls_rig import LaterClock

from siltlog.infra.security.file_versions import SETTLING_SECONDS, are_settling, versions_of


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """Two files, one of which is there."""
    paths = [tmp_path / "server.pem", tmp_path / "server.key"]
    paths[0].write_text("certificate")
    return paths


def test_versions_are_told_apart(pair: list[Path], tmp_path: Path) -> None:
    before = versions_of(pair)
    assert before == versions_of(pair)
    assert before[1] is None
    fresh = tmp_path / "fresh.pem"
    fresh.write_bytes(pair[0].read_bytes())
    fresh.replace(pair[0])
    assert versions_of(pair) != before


def test_files_settle_after_the_last_of_them_came(pair: list[Path]) -> None:
    clock = LaterClock()
    assert are_settling(pair, clock)
    clock.seconds = SETTLING_SECONDS
    assert not are_settling(pair, clock)
    assert not are_settling(pair[1:], clock), "no file is there"


def test_a_file_that_was_written_long_ago_settles_where_it_was_moved(pair: list[Path], tmp_path: Path) -> None:
    old = tmp_path / "renewed.key"
    old.write_text("key")
    os.utime(old, (0, 0))
    old.replace(pair[1])
    assert are_settling(pair[1:], LaterClock())


def test_a_clock_that_is_behind_the_files_calls_nothing_settling(pair: list[Path]) -> None:
    clock = LaterClock()
    clock.seconds = -60
    assert not are_settling(pair, clock)
