"""The server's process does without pandas, though it may be installed.

pyarrow imports it at the first conversion between Arrow and Python, to see whether it is given something of it. That is
in the middle of the first publish, takes a second in which nobody gets an answer, and 40 MB for good.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAME = "pandas"


class _Hidden(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _NAME:
            raise ModuleNotFoundError(f"{_NAME} is hidden from this process", name=_NAME)
        return None


def hide_pandas() -> None:
    """Importing it fails from here on as where it is not installed, unless it was imported before."""
    sys.meta_path.insert(0, _Hidden())
