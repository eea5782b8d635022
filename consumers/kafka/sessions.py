"""Fetch sessions (KIP-227): a reader says once what it reads, and then what has changed; it is told what is new. Pure.

A session belongs to one connection, and ends with it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from siltlog.infra.kafka.errors import KafkaError

PARTITIONS_MAX = 100_000
"""All sessions of a server have no more: what further readers ask for they name with each fetch."""
NO_SESSION = 0
NEW, LAST = 0, -1
"""The epochs of a fetch that makes a session, and of one that ends its session."""
FIRST_EPOCH = 1
NUMBER_MAX = 2**31 - 1
_UNTOLD = (-1, -1)


class Part(NamedTuple):
    """A partition as a fetch names it: by the name of its topic, or by its id."""

    topic: str
    topic_id: bytes
    partition: int


class Wish(NamedTuple):
    """What is to be read of a partition; `leader_epoch` is that which the reader knows, -1 where it knows none."""

    offset: int
    bytes_max: int
    leader_epoch: int


class SessionRefused(Exception):
    """A fetch is none of a session of its connection; on `code` its reader begins anew."""

    def __init__(self, code: KafkaError) -> None:
        super().__init__(code.name)
        self.code = code


class Room:
    """What the sessions of a server share: how many partitions more they may have, and the numbers that tell them
    apart, so that none is taken for that of another connection."""

    def __init__(self, partitions_max: int = PARTITIONS_MAX) -> None:
        self.left = self._all = partitions_max
        self._last_id = NO_SESSION

    def taken(self) -> int:
        return self._all - self.left

    def take(self, count: int) -> bool:
        """Tells whether there was room for so many more."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def new_id(self) -> int:
        self._last_id = self._last_id % NUMBER_MAX + 1
        return self._last_id


class _Session:
    def __init__(self, session_id: int, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        """Its partitions are named by the ids of their topics."""
        self.epoch = FIRST_EPOCH
        """The epoch of the next fetch."""
        self.wishes: dict[Part, Wish] = {}
        self.told: dict[Part, tuple[int, int]] = {}
        """The bounds that its reader knows, of the partitions that it was told of."""


class Turn:
    """One fetch: what it reads, and which answers its reader needs."""

    def __init__(self, wishes: Mapping[Part, Wish], session: _Session | None, *, is_first: bool) -> None:
        self.wishes = wishes
        self._session = session
        self._is_first = is_first

    @property
    def session_id(self) -> int:
        return NO_SESSION if self._session is None else self._session.session_id

    def is_news(self, part: Part, bounds: tuple[int, int], *, has_records: bool, failed: bool) -> bool:
        """Tells whether the answer for a partition is sent, and takes it that it is: high watermark and log start."""
        session = self._session
        if session is None:
            return True
        known = session.told.get(part, _UNTOLD)
        # After an error its reader is told of the bounds, whatever they are.
        session.told[part] = _UNTOLD if failed else bounds
        return self._is_first or has_records or failed or bounds != known


class FetchSessions:
    """The session of one connection, where it has one."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._session: _Session | None = None

    def begin(
        self, session_id: int, epoch: int, wishes: Mapping[Part, Wish], forgotten: Iterable[Part], *, by_id: bool
    ) -> Turn:
        """Takes what a fetch says. Without a session, or with its first fetch, `wishes` are all that is read.

        Raises SessionRefused, and then leaves all as it was.
        """
        own = self._session if self._session is not None and session_id == self._session.session_id else None
        if epoch in (NEW, LAST):
            if own is not None or epoch == NEW:
                self.close()
            made = self._made(wishes, by_id) if epoch == NEW else None
            return Turn(wishes, made, is_first=True)
        if own is None:
            raise SessionRefused(KafkaError.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != own.epoch:
            raise SessionRefused(KafkaError.INVALID_FETCH_SESSION_EPOCH)
        if by_id != own.by_id:
            raise SessionRefused(KafkaError.FETCH_SESSION_TOPIC_ID_ERROR)
        own.epoch = FIRST_EPOCH if epoch == NUMBER_MAX else epoch + 1
        return self._changed(own, wishes, forgotten)

    def close(self) -> None:
        """Ends the session, if there is one."""
        if self._session is not None:
            self._room.left += len(self._session.wishes)
            self._session = None

    def _made(self, wishes: Mapping[Part, Wish], by_id: bool) -> _Session | None:
        """None where there is no room: each fetch then names all of its partitions."""
        if not self._room.take(len(wishes)):
            return None
        self._session = _Session(self._room.new_id(), by_id)
        self._session.wishes |= wishes
        return self._session

    def _changed(self, own: _Session, wishes: Mapping[Part, Wish], forgotten: Iterable[Part]) -> Turn:
        before = len(own.wishes)
        own.wishes |= wishes
        for part in forgotten:
            own.wishes.pop(part, None)
            own.told.pop(part, None)
        now = len(own.wishes)
        if self._room.take(now - before):
            if now:
                return Turn(own.wishes, own, is_first=False)
            before = 0
        # It ends: all that was wished for is read once more, and the reader goes on without one.
        self._room.left += before
        self._session = None
        return Turn(own.wishes, None, is_first=True)
