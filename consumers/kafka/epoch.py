"""The epoch of a group, 31 bits, as Kafka's clients have it: its generation, a time in milliseconds at whole seconds.

Seconds since 2020 fit until 2088, and those by which a busy group runs ahead of the time with them.
"""

BEGINS_MS = 1_577_836_800_000
"""2020-01-01 00:00 UTC."""
SECOND_MS = 1_000
EPOCH_MAX = 2**31 - 1


def epoch_of(generation: int) -> int:
    """Returns 0 for that of a group which had no member yet.

    Generations that are no whole seconds are those of former releases. They count as the next second: who names that
    names one which was never issued, and is told everything anew.
    """
    return max(-((BEGINS_MS - generation) // SECOND_MS), 0)


def generation_of(epoch: int) -> int:
    return BEGINS_MS + epoch * SECOND_MS if epoch > 0 else 0
