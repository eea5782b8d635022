"""The name that somebody who wrote another one may have meant."""

from collections.abc import Collection, Iterable

NEAR = 0.65
"""How alike two names must be, from 0 to 1. `ULR` and `URL` have 0.67, `USER` and `URL` 0.57."""


def alike(word: str, known: Iterable[str]) -> str | None:
    """The most alike of `known`, whatever the size of its letters; None where none is near."""
    import difflib

    by_folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=5, cutoff=NEAR)
    # Letters that changed places are the likeliest slip: `prot` is `port` before it is `root`.
    found.sort(key=lambda name: sorted(name) != sorted(word.casefold()))
    return by_folded[found[0]] if found else None


def nearest(word: str, known: Collection[str]) -> str | None:
    """The most alike, else one that goes on where the word ends, or ends where it goes on: `redis_url` of `redis`."""
    found = alike(word, known)
    if found is None:
        found = next((name for name in known if min(len(name), len(word)) > 2 and _begins(name, word)), None)
    return found


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean 'orders'?`, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f"; did you mean {found!r}?"


def _begins(one: str, other: str) -> bool:
    one, other = one.casefold(), other.casefold()
    return one.startswith(other) or other.startswith(one)
