"""What a node reports in its beats: each room says its part."""

from collections.abc import Callable

from siltlog.infra.cluster.beat import Report

Part = Callable[[Report], Report]


class Reports:
    """Used on one event loop. Until a room says anything the node is not ready, and is given no topic."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Has `part` put its own into every report."""
        self._parts.append(part)

    def __call__(self) -> Report:
        report = Report(ready=bool(self._parts))
        for part in self._parts:
            report = part(report)
        return report
