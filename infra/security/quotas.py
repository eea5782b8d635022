"""Quotas: how much a principal, or a topic, may take a second, and when what is too much may be tried again. Pure.

One number for each bucket, the generic cell rate algorithm (ITU-T I.371): the time at which it will be full again. What
is larger than the whole burst passes when the bucket is full, else it never could, and leaves a debt.
"""

from dataclasses import dataclass

BURST_SECONDS = 2.0


@dataclass(slots=True)
class Bucket:
    """Fills with `per_second`, up to `burst_seconds` of it."""

    per_second: float
    burst_seconds: float = BURST_SECONDS
    full_at: float = 0.0

    def charge(self, amount: float, now: float) -> float:
        """Takes `amount`, and gives 0.0; or takes nothing, and gives the seconds after which it would."""
        cost = amount / self.per_second
        start = max(self.full_at, now)
        allowed = max(self.burst_seconds - cost, 0.0)
        wait = start - now - allowed
        if wait > 0:
            return wait
        self.full_at = start + cost
        return 0.0

    def owe(self, amount: float, now: float) -> None:
        """Takes `amount` whatever is there: for what could only be counted once it had come."""
        self.full_at = max(self.full_at, now) + amount / self.per_second

    def wait(self, now: float) -> float:
        """Seconds until something may be taken."""
        return max(self.full_at - now - self.burst_seconds, 0.0)
