"""Has flushes cost no more than `requests_budget` says, and tables as fresh as that buys. Pure: `now` is an argument.

A bucket fills with the price of each flush and runs out by the budget. Topics that wait are served as they would be
due without it; so with each that becomes active all wait longer, and none for longer than the others.
"""

from collections.abc import Sequence
from typing import NamedTuple

from siltlog.infra.settings.topic_config import FLUSH_WAIT_MS_MAX
from siltlog.infra.store import costs

BURST_SECONDS = 10.0
"""The bucket holds what the budget allows in this time: a topic that rested is flushed at once."""
DEBT_SECONDS_MAX = FLUSH_WAIT_MS_MAX / 1000
"""What did not wait for the budget delays what does by this at most, and by the price of the last."""


class Want(NamedTuple):
    """A topic that has something for its table."""

    due_seconds: float
    """When it would be flushed without a budget, on the monotonic clock."""
    files: int


class RequestBudget:
    """The budget of all topics of a server."""

    def __init__(self, dollars_per_month: float) -> None:
        self._per_second = dollars_per_month / costs.SECONDS_PER_MONTH
        self._filled = 0.0
        self._at_seconds = 0.0

    @property
    def on(self) -> bool:
        return self._per_second > 0

    def reconfigure(self, dollars_per_month: float) -> None:
        """Takes another budget; what was spent stays spent."""
        self._per_second = dollars_per_month / costs.SECONDS_PER_MONTH

    def spend(self, files: int, now_seconds: float) -> None:
        """Says that a topic is flushed to so many files."""
        if self.on and files:
            price = costs.flush(files).dollars
            debt_max = self._per_second * DEBT_SECONDS_MAX + self._burst(price)
            self._filled = min(self._left_at(now_seconds) + price, debt_max)
            self._at_seconds = now_seconds

    def ready(self, wants: Sequence[Want], now_seconds: float) -> list[float]:
        """Gives for each topic when the budget has room for it, on the monotonic clock."""
        if not self.on:
            return [0.0] * len(wants)
        times = [0.0] * len(wants)
        level = self._left_at(now_seconds)
        for number in sorted(range(len(wants)), key=lambda number: wants[number].due_seconds):
            price = costs.flush(wants[number].files).dollars
            level += price
            times[number] = now_seconds + (level - self._burst(price)) / self._per_second
        return times

    def _left_at(self, now_seconds: float) -> float:
        return max(0.0, self._filled - (now_seconds - self._at_seconds) * self._per_second)

    def _burst(self, price: float) -> float:
        """A flush that costs more than the bucket holds finds room once it is empty."""
        return max(self._per_second * BURST_SECONDS, price)
