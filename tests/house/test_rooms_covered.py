"""What `make coverage` makes of a report."""

import configparser
from pathlib import Path

from rooms_covered import LEAST, ROOMS, TOP, Share, below, settings, shares


def _entry(lines: int, statements: int, branches: int = 0, branches_in_all: int = 0) -> dict[str, dict[str, int]]:
    counts = {"covered_lines": lines, "num_statements": statements}
    return {"summary": {**counts, "covered_branches": branches, "num_branches": branches_in_all}}


def test_a_room_is_all_its_files_by_lines_and_branches() -> None:
    files = {"ingest/a.py": _entry(80, 100, 10, 20), "ingest/b/c.py": _entry(10, 20), "infra/x.py": _entry(1, 1)}
    assert shares(files)[:2] == [Share("ingest", 100, 140), Share("consumers", 0, 0)]
    assert [share.room for share in shares(files)] == list(ROOMS)


def test_lines_are_enough_where_no_branches_are_counted() -> None:
    assert shares({"ingest/a.py": {"summary": {"covered_lines": 8, "num_statements": 10}}})[0] == Share("ingest", 8, 10)


def test_a_room_with_too_little_is_named() -> None:
    found = [Share("ingest", 899, 1000), Share("infra", 900, 1000), Share("siltlog", 0, 0)]
    assert below(found, LEAST) == ["ingest has 89.9 %"]
    assert below(found, 0) == []


def test_children_are_measured_wherever_they_work(tmp_path: Path) -> None:
    told = configparser.ConfigParser()
    told.read(settings(tmp_path))
    assert {"subprocess", "fork", "_exit"} <= set(told["run"]["patch"].split())
    assert told["run"]["source"].split() == [str(TOP / room) for room in ROOMS]
    assert Path(told["run"]["data_file"]).is_absolute()
