"""Changes access in a process that is killed before or after the step of a number: `killed_change FOLDER STEP`.

Steps are what leaves the process: files of the data directory, and objects of the root.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from siltlog.infra.clock import SystemClock
from siltlog.infra.security import documents as documents_module
from siltlog.infra.security.callers.api_keys import ApiKeys
from siltlog.infra.security.documents import AccessDocuments
from siltlog.infra.store.local import LocalStore
from siltlog.infra.telemetry import logger
from siltlog.server.access import held as held_module
from siltlog.server.access.book import AccessBook
from siltlog.server.access.held import HeldRevocations

HASH_KEY, MAC_KEY = bytes(range(32)), bytes(range(1, 33))
CLUSTER_ID = "c1"


def opened(folder: Path) -> tuple[AccessBook, ApiKeys]:
    """What a node that starts in the folder finds."""
    clock, log = SystemClock(), logger("critical", "json")
    store = LocalStore(str(folder / "root"))
    documents = AccessDocuments(store, CLUSTER_ID, MAC_KEY, folder / "seen", clock, log)
    documents.open()
    keys = ApiKeys(HASH_KEY, clock)
    held = HeldRevocations(folder / "held")
    return AccessBook(documents, held, keys, (keys,), clock=clock, logger=log, stale_ms=60_000), keys


class _Steps:
    def __init__(self, last: int) -> None:
        self._last = last
        self._done = 0

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **more: Any) -> Any:
            self._pass()
            found = act(*arguments, **more)
            self._pass()
            return found

        return step

    def _pass(self) -> None:
        self._done += 1
        if self._done == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, key_id, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    steps = _Steps(last)

    async def revoke() -> None:
        book, _ = opened(folder)
        replace = steps.around(held_module.replace_private)
        held_module.replace_private = documents_module.replace_private = replace
        LocalStore.put_if_absent = steps.around(LocalStore.put_if_absent)  # type: ignore[method-assign]
        print("begun", flush=True)
        written = await book.revoke(key_id)
        print("revoked" if written else "held", flush=True)

    asyncio.run(revoke())


if __name__ == "__main__":
    main()
