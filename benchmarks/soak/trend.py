"""Whether a series of samples grows without bound, or goes up and down, or has come to rest."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

WARMUP_SHARE = 1 / 3
"""What is sampled first is not looked at: caches fill, and nothing was merged or removed yet."""
GROWTH_MAX = 0.25


class Trend(NamedTuple):
    first: float
    """The median of the first third of what is looked at."""
    last: float
    grows: bool


def trend(samples: Sequence[float], allowance: float) -> Trend:
    """It grows where each third of it is above the one before, the last one by more than a quarter and `allowance`.

    What goes up and down, as between two compactions, has a low in each third: all of a third must be above the median
    of the one before. Raises ValueError for fewer samples than three of each third.
    """
    looked_at = samples[int(len(samples) * WARMUP_SHARE) :]
    third = len(looked_at) // 3
    if third < 3:
        raise ValueError(f"{len(samples)} samples are too few to tell whether they grow")
    parts = looked_at[:third], looked_at[third : 2 * third], looked_at[-third:]
    medians = [median(part) for part in parts]
    rises = all(min(later) > before for before, later in zip(medians, parts[1:], strict=False))
    growth = medians[2] - medians[0]
    return Trend(medians[0], medians[2], rises and growth > max(allowance, GROWTH_MAX * medians[0]))
