"""How far tests go that have chance in them, or only more of the same: `make test-chaos` goes CHAOS times as far."""

import os
from typing import Any

import pytest

CHAOS = int(os.environ.get("CHAOS") or 1)
DONE = int(os.environ.get("CHAOS_DONE") or 0)
"""So many rounds of seeds are left out: `.ci/run` has just had them in `make test`."""
only_with_chaos = pytest.mark.skipif(CHAOS == 1, reason="make test-chaos does it")


def more(*values: Any) -> Any:
    """A parameter of the same that another one shows already, and that takes long."""
    return pytest.param(*values, marks=(pytest.mark.chaos, only_with_chaos))


def seeds(count: int) -> range:
    """So many of them in every round."""
    return range(count * DONE, count * CHAOS)
