"""A reader that follows partitions through anything, and remembers all that it was ever shown."""

import threading
import time

from evidence import Found, read_once
from publishers import LOST, PAUSE_S, Wire


class Watcher(threading.Thread):
    """Reads on from the last offset it saw; a server that is away is waited for."""

    def __init__(self, url: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"watcher-{topic}", daemon=True)
        self.seen: set[Found] = set()
        self.failure: BaseException | None = None
        self._wire = Wire(url)
        self._topic = topic
        self._offsets = [0] * partitions
        self._stopping = threading.Event()

    def finish(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive(), f"{self.name} cannot finish"

    def run(self) -> None:
        while not self._stopping.is_set() and self.failure is None:
            for partition in range(len(self._offsets)):
                try:
                    rows, self._offsets[partition], _ = read_once(
                        self._wire, self._topic, partition, self._offsets[partition], "&wait_ms=5"
                    )
                except LOST:
                    time.sleep(PAUSE_S)
                except BaseException as error:
                    self.failure = error
                else:
                    self.seen.update(rows)

    def check(self, found: list[Found]) -> None:
        """What was shown once is there, at its offset, for good."""
        assert self.failure is None, self.failure
        assert self.seen
        gone = self.seen - set(found)
        assert not gone, f"{len(gone)} records were shown and are not there: {sorted(gone)[:3]}"
