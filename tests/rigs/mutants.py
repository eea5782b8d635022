"""Rules that are switched off one at a time: a play that a seed drives must notice each.

A play raises AssertionError where what the rule promises does not hold. It runs the product's own code, and what a
mutant does otherwise is patched over that for as long as the play lasts.
"""

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Patch = pytest.MonkeyPatch
Play = Callable[[int, Path], None]
"""Plays by a seed, in a folder that is empty."""
SEEDS_MAX = 12
"""A mutant that so many seeds do not notice is none that they would."""


class Mutant(NamedTuple):
    play: Play
    mutate: Callable[[Patch], None]
    first: int = 0
    """The seed to begin with: one that is known to notice it, where each takes time."""


def instead(owner: object, attribute: str, mutant: Any) -> Callable[[Patch], None]:
    """A mutant that is another value of one attribute."""
    return lambda patch: patch.setattr(owner, attribute, mutant)


def nothing(*_: Any, **__: Any) -> None:
    """What a rule did is left out."""


async def nothing_awaited(*_: Any, **__: Any) -> None:
    """Does what `nothing` does, of what is awaited."""


def plays(mutants: Mapping[str, Mutant]) -> list[Play]:
    return list(dict.fromkeys(mutant.play for mutant in mutants.values()))


def hold(play: Play, seeds: range, folder: Path) -> None:
    """The product itself is never noticed: else a mutant that is noticed would tell nothing."""
    for seed in seeds:
        try:
            play(seed, _made(folder / f"{play.__name__}-{seed}"))
        except BaseException as error:
            raise AssertionError(f"{play.__name__}, seed {seed}") from error


def noticed(mutant: Mutant, folder: Path) -> int:
    """The seed that noticed it. What never comes about is noticed, too."""
    with Patch.context() as patch:
        mutant.mutate(patch)
        for seed in range(mutant.first, mutant.first + SEEDS_MAX):
            try:
                mutant.play(seed, _made(folder / str(seed)))
            except (AssertionError, TimeoutError):
                return seed
    raise ValueError(f"{SEEDS_MAX} seeds of {mutant.play.__name__} notice nothing")


_numbers = count()


def _made(folder: Path) -> Path:
    """Another one each time."""
    folder = folder.with_name(f"{folder.name}.{next(_numbers)}")
    folder.mkdir(parents=True)
    return folder
