"""A log that keeps what is said."""

from typing import Any


class KeptLog:
    """Stands where structlog's logger does."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.warnings: list[str] = []

    def info(self, event: str, **values: Any) -> None:
        self.said.append((event, values))

    debug = error = info

    def warning(self, event: str, **values: Any) -> None:
        self.warnings.append(event)
        self.info(event, **values)

    def events(self) -> list[str]:
        return [event for event, _ in self.said]
