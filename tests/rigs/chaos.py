"""How far tests go that have chance in them, or only more of the same: `make test-chaos` goes CHAOS times as far."""

import os

import pytest

CHAOS = int(os.environ.get("CHAOS") or 1)
only_with_chaos = pytest.mark.skipif(CHAOS == 1, reason="make test-chaos does it")


def seeds(count: int) -> range:
    """So many of them in every run."""
    return range(count * CHAOS)
