"""How much of each room the tests run: lines and branches, those of servers and jobs in child processes among them.

`make coverage` runs all tests so, and ends with 1 where a room is below LEAST, or a test failed. With ADD=1 it adds to
what earlier runs counted, so that it can be had in parts. A process that is killed takes what it counted along: what
only such a one ran counts as not run.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).parents[2]
FOLDER = TOP / "build" / "coverage"
ROOMS = ("ingest", "consumers", "pipelines", "infra", "siltlog")
LEAST = 90.0
OMITTED = ("infra/grpc/made/*", "infra/deploy/*")
"""What is made of other files, and what draws dashboards."""
TEST_SECONDS_MAX = 1_200
MONITORED = sys.version_info >= (3, 12)
"""The interpreter itself tells what ran (PEP 669), at next to no cost; before, the tests took twice as long."""
BRANCHES = not MONITORED or sys.version_info >= (3, 14)
"""Between these versions it tells of branches no better than a tracer: lines alone are counted."""
COUNTED = "lines and branches" if BRANCHES else "lines"
SETTINGS = """[run]
branch = {branches}
core = {core}
parallel = True
data_file = {folder}/data
source =
    {sources}
omit =
    {omitted}
# Children are measured from their start, also those that are forked, and save what they counted however they end.
patch =
    subprocess
    fork
    _exit
disable_warnings = no-data-collected, module-not-measured, module-not-imported, couldnt-parse
[report]
ignore_errors = True
exclude_also =
    if TYPE_CHECKING:
    @abstractmethod
    ^\\s*\\.\\.\\.$
[html]
directory = {folder}/html
[json]
output = {folder}/coverage.json
"""


class Share(NamedTuple):
    room: str
    covered: int
    """What is counted of it, as far as it ran."""
    count: int

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.count if self.count else 100.0


def shares(files: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[Share]:
    """Adds up, by room, the files of a report that coverage wrote as JSON; paths are below the top."""
    found = []
    for room in ROOMS:
        summaries = [entry["summary"] for path, entry in files.items() if path.startswith(f"{room}/")]
        covered = sum(each["covered_lines"] + each.get("covered_branches", 0) for each in summaries)
        count = sum(each["num_statements"] + each.get("num_branches", 0) for each in summaries)
        found.append(Share(room, covered, count))
    return found


def below(found: Sequence[Share], least: float) -> list[str]:
    """Says of each room that has too little how much it has."""
    return [f"{share.room} has {share.percent:.1f} %" for share in found if share.percent < least]


def settings(folder: Path) -> Path:
    """Writes what coverage is told; its paths are absolute, as children work elsewhere."""
    path = folder / "coverage.ini"
    indented = "\n    "
    path.write_text(
        SETTINGS.format(
            branches=BRANCHES,
            core="sysmon" if MONITORED else "ctrace",
            folder=folder,
            sources=indented.join(str(TOP / room) for room in ROOMS),
            omitted=indented.join(str(TOP / pattern) for pattern in OMITTED),
        )
    )
    return path


def main() -> None:
    if not os.environ.get("ADD"):
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    rc = f"--rcfile={settings(FOLDER)}"
    coverage = [sys.executable, "-m", "coverage"]
    tests = ["-m", "pytest", "--timeout", str(TEST_SECONDS_MAX), "-o", f"faulthandler_timeout={TEST_SECONDS_MAX + 60}"]
    ran = subprocess.run([*coverage, "run", rc, *tests, *sys.argv[1:]], cwd=TOP, check=False)
    for command in (["combine", "--quiet", "--append"], ["json", "--quiet"], ["html", "--quiet"]):
        subprocess.run([*coverage, command[0], rc, *command[1:]], cwd=TOP, check=True)
    files = json.loads((FOLDER / "coverage.json").read_text("utf-8"))["files"]
    found = shares(files)
    for share in found:
        print(f"{share.room:12}{share.percent:6.1f} %  of {share.count:,} {COUNTED}")
    print(f"Line by line: {FOLDER / 'html' / 'index.html'}")
    least = float(os.environ.get("LEAST") or LEAST)
    if lacking := below(found, least):
        sys.exit(f"Less than {least:g} % is run by the tests: {', '.join(lacking)}.")
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
