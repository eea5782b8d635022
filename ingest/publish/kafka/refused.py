"""Batches of idempotent producers that were refused before anything of the producer was taken in a partition. Pure.

A producer that is not known may begin anywhere, since what is known of one is forgotten some day. Were the second of
its batches in flight taken for the beginning where the first was refused, the first would be told, when it comes again,
that it is there already.
"""

from typing import NamedTuple

REFUSED_MAX = 10_000
"""So many are remembered; then the oldest is forgotten."""
TRIED_SECONDS = 600.0
"""A producer that was refused for the last time so long ago comes no more with those records: clients try for five
minutes at most, unless they are told otherwise. A node may have refused one long before it is given the topic."""


class Sender(NamedTuple):
    """A producer of Kafka in one epoch, and where its batch was to go."""

    topic: str
    partition: int
    producer_id: int
    epoch: int


class _Refused(NamedTuple):
    lowest: int
    """The lowest sequence of what was refused."""
    at: float

    def is_over(self, now: float) -> bool:
        return now - self.at > TRIED_SECONDS


class RefusedBatches:
    def __init__(self) -> None:
        self._first: dict[Sender, _Refused] = {}
        """In the order in which they were refused last."""

    def add(self, sender: Sender, first_sequence: int, now: float) -> None:
        """Says that a batch was refused, `now` by seconds that never go back."""
        before = self._first.pop(sender, None)
        lowest = first_sequence if before is None or before.is_over(now) else min(first_sequence, before.lowest)
        self._first[sender] = _Refused(lowest, now)
        if len(self._first) > REFUSED_MAX:
            del self._first[next(iter(self._first))]

    def has_before(self, sender: Sender, first_sequence: int, now: float) -> bool:
        """Whether one was refused that comes before the batch with this sequence."""
        refused = self._first.get(sender)
        return refused is not None and refused.lowest < first_sequence and not refused.is_over(now)

    def taken(self, sender: Sender) -> None:
        """Says that a batch was appended: from now on its sequences are known."""
        self._first.pop(sender, None)
