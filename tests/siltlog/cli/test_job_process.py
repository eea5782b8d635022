"""How a long job gives way, beyond its own process."""

import subprocess
import sys
from pathlib import Path

import pytest

AUTOGROUP = Path("/proc/self/autogroup")
GIVE_WAY = """
import sys
from pathlib import Path
from siltlog.cli.job_process import _give_way
_give_way(10, sys.argv[1])
print(Path("/proc/self/autogroup").read_text().split()[-1])
"""


@pytest.mark.rule("H10")
@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this machine does not share its time among sessions")
@pytest.mark.parametrize(("job", "niceness"), [("compact", "5"), ("retain", "0")], ids=["long", "quick"])
def test_the_session_of_a_long_job_gives_way_too(job: str, niceness: str) -> None:
    command = [sys.executable, "-c", GIVE_WAY, job]
    ran = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=True, timeout=240)
    assert ran.stdout.strip() == niceness
