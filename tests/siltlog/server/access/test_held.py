"""Revocations of a process that is killed at each of its steps."""

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from killed_change import HASH_KEY, opened

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.keys import ApiKey, hash_of, make_key
from siltlog.server.access.changes import with_key
from siltlog.server.access.held import HeldRevocations

RIGS = Path(__file__).parents[3] / "rigs"
STEPS = 8
"""Before and after: the key is held, the document put, its number noted, the key let go."""


def test_what_was_held_and_cannot_be_read_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "held").write_bytes(b"{")
    with pytest.raises(ConfigError, match="held"):
        HeldRevocations(tmp_path / "held")


def test_what_is_held_outlives_the_process(tmp_path: Path) -> None:
    held = HeldRevocations(tmp_path / "held")
    held.hold(["a"])
    held.hold(["b"])
    held.keep()
    held.release(["a", "c"])
    held.keep()
    held.hold(["d"])
    assert not held.are_kept
    held.release(["d"])
    assert HeldRevocations(tmp_path / "held").ids == held.ids == {"b"}
    assert (tmp_path / "held").stat().st_mode & 0o777 == 0o600


def revoked_by(folder: Path, key: ApiKey, last: int) -> tuple[int, list[str]]:
    """Revokes in a process that is killed at a step; its status and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "killed_change", str(folder), key.key_id, str(last)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=RIGS,
        check=False,
    )
    return done.returncode, done.stdout.split()


@pytest.mark.rule("A30")
@pytest.mark.parametrize("last", [*range(1, STEPS + 1), STEPS + 1])
def test_a_revocation_that_was_begun_is_whole_or_made_anew_whatever_step_it_is_killed_at(
    tmp_path: Path, last: int
) -> None:
    (tmp_path / "root").mkdir()
    key, other = make_key(secrets.token_bytes), make_key(secrets.token_bytes)

    async def make() -> None:
        book, _ = opened(tmp_path)
        for each, name in ((key, "ana"), (other, "bob")):
            kept = KeptKey(name, hash_of(each, HASH_KEY), 0)
            await book.change(with_key(each.key_id, kept, [("admin", "")], 0))

    asyncio.run(make())
    status, said = revoked_by(tmp_path, key, last)
    assert (status, said) == ((0, ["begun", "revoked"]) if last > STEPS else (-9, ["begun"]))

    async def look() -> tuple[bool, bool, bool]:
        book, keys = opened(tmp_path)
        counts = keys.known(key.text()) is not None
        if not counts:
            assert await book.revoke(key.key_id), "what is held is written once it can be"
            anew, keys = opened(tmp_path)
            assert key.key_id not in anew.document.keys
        return counts, keys.known(other.text()) is not None, keys.known(key.text()) is not None

    counts, others, later = asyncio.run(look())
    # Before the key is held nothing has happened; from then on it never counts again.
    assert (counts, others, later) == (last == 1, True, last == 1)
