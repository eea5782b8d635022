"""What else the machine does while something is measured."""

import os
import time
from pathlib import Path


class Usage:
    """How much of the processors others used since it was made."""

    def __init__(self) -> None:
        self._busy, self._own, self._wall = self._now()

    def others(self) -> float:
        busy, own, wall = self._now()
        used = (busy - self._busy) - (own - self._own)
        return max(0.0, used / ((wall - self._wall) * (os.cpu_count() or 1)))

    def _now(self) -> tuple[float, float, float]:
        stat = Path("/proc/stat")
        own = sum(os.times()[:4])
        if not stat.exists():
            return own, own, time.monotonic()
        fields = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:]]
        busy = sum(fields) - fields[3] - fields[4] - sum(fields[8:])
        return busy / os.sysconf("SC_CLK_TCK"), own, time.monotonic()
