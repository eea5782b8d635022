"""How a protocol opens a connection, and how one tells that a request was answered."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

IsWhole = Callable[[bytes], bool]
"""Tells whether what came is all of the answer; raises ValueError where it is a refusal."""
CONNECTION = b"@@@@@@"
"""Stands in what is sent for the number of its connection."""


class Wire(NamedTuple):
    replies: Callable[[int], IsWhole]
    """Makes, for a connection, what tells that a request of so many parts was answered in full."""
    opening: Sequence[bytes] = ()
    """What a connection says first, each once the one before was answered."""
    is_open: IsWhole = bool
    """Whether one of `opening` was answered."""
