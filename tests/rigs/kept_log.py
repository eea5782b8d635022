"""A log that keeps what is said."""

from typing import Any


class KeptLog:
    """Stands where structlog's logger does."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.said.append((event, values))

    debug = warning = error = info

    def events(self) -> list[str]:
        return [event for event, _ in self.said]
