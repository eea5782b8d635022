"""Every block of docs/testing.md is a file of tests, and passes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text("utf-8")


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"test_block_{number}.py").write_text(block, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{PAGE.count('def test_')} passed" in ran.stdout
