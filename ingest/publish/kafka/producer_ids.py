"""The numbers of idempotent producers of Kafka."""

from collections.abc import Callable

_BITS = 63


def new_producer_id(random_bytes: Callable[[int], bytes]) -> int:
    """Draws a number: no two producers get the same, and so nobody keeps who has which."""
    return int.from_bytes(random_bytes(8)) & (1 << _BITS) - 1
