"""`python -m siltlog.consumers.sql PARENT SOCKET SOCKET ...` runs one query (`child.py`)."""

import sys
from typing import Any


class _WithoutPandas:
    """Where pandas is installed, Arrow imports it, which takes as long as all else, and is for nothing here."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    sys.meta_path.insert(0, _WithoutPandas())
    from siltlog.consumers.sql.child import run

    run()


if __name__ == "__main__":
    main()
