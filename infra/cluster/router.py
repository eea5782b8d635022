"""Where a request for a topic is answered: here, at another node, later, or by nobody now. Pure.

The view entitles, and the topic's own state on this node decides: an owner goes on until it has handed over, also where
a newer view names another.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Held(Enum):
    """The state of a topic on this node."""

    NOT = "not"
    """It is not open here."""
    TAKING = "taking"
    """A claim is under way."""
    OPEN = "open"
    HOLDING = "holding"
    """Publishes wait here for the end of a hand-over."""
    RELEASED = "released"
    """It was owned here, and is handed over."""


class Member(NamedTuple):
    """A node, as a view names it."""

    node: str
    journal: str
    url: str


class Place(NamedTuple):
    """A topic, as a view has it: who owns it, and who is to own it next.

    `away_since_us` says since when an owner is gone whose records nobody else may have; None where that is not so.
    """

    owner: Member | None
    to: Member | None = None
    away_since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """This node answers."""


@dataclass(frozen=True, slots=True)
class There:
    member: Member


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody is about to own it: the next view, or this node's own state, says who."""


@dataclass(frozen=True, slots=True)
class Away:
    node: str
    since_us: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """No view names it, and it is not open here."""


Where = Here | There | Wait | Away | Unknown
HERE, WAIT, UNKNOWN = Here(), Wait(), Unknown()


def where(
    place: Place | None, held: Held, this: str, *, fresh: bool = True, denied: frozenset[str] = frozenset()
) -> Where:
    """Says where a request for a topic goes.

    `this` is the journal of this start of this node. `fresh` says that its own beat is younger than the lease; without
    it an owner does not count: who was taken for lost meanwhile would tell of bounds that are not the newest. Journals
    that are `denied` have said that they do not own it.
    """
    if held is Held.OPEN and fresh:
        return HERE
    if held in (Held.OPEN, Held.TAKING, Held.HOLDING):
        return WAIT
    if place is None:
        return UNKNOWN
    if place.away_since_us is not None and place.owner is not None:
        return Away(place.owner.node, place.away_since_us)
    # Who is to own it next does once the owner has let go. Until then he would only answer that he does not.
    target = place.owner
    if target is None or held is Held.RELEASED or target.journal in denied:
        target = place.to
    if target is None or target.journal == this or target.journal in denied:
        return WAIT
    return There(target)
