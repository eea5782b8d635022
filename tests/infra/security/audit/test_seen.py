"""The place in the chain outlives the process; a damaged file is told, and not begun anew."""

from pathlib import Path

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.audit.chain import Anchor, start_of
from siltlog.infra.security.audit.seen import SeenAnchor


@pytest.mark.parametrize("anchor", [start_of("c" * 16), Anchor("c" * 16, 7, "ab" * 32)])
def test_what_was_kept_is_read_by_the_next_process(tmp_path: Path, anchor: Anchor) -> None:
    path = tmp_path / "seen"
    assert SeenAnchor(path).read() is None
    SeenAnchor(path).keep(start_of("d" * 16))
    SeenAnchor(path).keep(anchor)
    assert SeenAnchor(path).read() == anchor
    assert path.stat().st_mode & 0o077 == 0, "nobody else reads it"


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "seen"
    path.write_text("c:seven:no")
    with pytest.raises(ConfigError, match="is damaged"):
        SeenAnchor(path).read()
