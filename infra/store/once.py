"""An object put once, for whoever needs no more than yes or no: answers that were lost are found out."""

from siltlog.infra.clock import Clock, SystemClock
from siltlog.infra.errors import problem
from siltlog.infra.store.store import ObjectStore, Put

ATTEMPTS_MAX = 5
_BACKOFF_S = 0.2
"""Doubles: three seconds in all, beside what the attempts take."""


def put_once(store: ObjectStore, path: str, data: bytes, clock: Clock | None = None) -> bool:
    """Whether `data`, which nobody else writes there, is the object; False, and nothing written, where another is.

    Raises Unavailable as long as that is not known: then the object may come yet.
    """
    clock = clock or SystemClock()
    for attempt in range(ATTEMPTS_MAX):
        if attempt:
            clock.sleep(_BACKOFF_S * 2 ** (attempt - 1))
        put = store.put_if_absent(path, data)
        if put is Put.WRITTEN:
            return True
        if put is Put.EXISTS:
            try:
                # Of an attempt before it no answer came: the object may be that one's.
                return attempt > 0 and store.get(path) == data
            except FileNotFoundError:
                continue  # deleted since
    raise problem(
        "topic_unavailable",
        f"whether {store.uri(path)} was written is not known: {ATTEMPTS_MAX} times the store gave no answer, or said "
        "that it is in trouble itself (a status of 500 or more); its own log may say why",
    )
