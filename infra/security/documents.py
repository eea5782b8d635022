"""The versions of the access document in the object store: found, checked, followed, written.

Each is an object of its own, put only where none is: a change is atomic, and two at once are told apart. The newest
that this cluster's secret sealed counts; any other object only takes its number. A node never goes back behind what it
has seen, and keeps the highest it saw in its data dir: an older document in the bucket is no document.
"""

import hmac
from collections.abc import Callable
from pathlib import Path

import msgspec

from siltlog.infra import names
from siltlog.infra.clock import Clock
from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.security.document import AccessDocument, Sealed, seal, unseal
from siltlog.infra.security.private_file import replace_private
from siltlog.infra.store.once import put_once
from siltlog.infra.store.store import ObjectInfo, ObjectStore
from siltlog.infra.telemetry import Logger

KEPT_VERSIONS = 100
KEPT_MS = 24 * 3_600_000
"""A server that slept may still find the next version after the one it knows."""
LIST_SECONDS = 30.0
"""How often all versions are looked through: one that comes after an object that is none is not found by its number."""
ATTEMPTS_MAX = 10

Change = Callable[[AccessDocument], AccessDocument]
"""Makes a new document of the present one, but for its number and seal; the present one where there is nothing to
change. May raise SiltlogError: nothing is written."""


class _Seen(msgspec.Struct, frozen=True):
    number: int
    mac: bytes


_seen_decoder = msgspec.json.Decoder(_Seen)


class AccessDocuments:
    """Used by one thread at a time; `current` may be read by any."""

    def __init__(
        self, store: ObjectStore, cluster_id: str, mac_key: bytes, seen_file: Path, clock: Clock, logger: Logger
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._mac_key = mac_key
        self._seen_file = seen_file
        self._clock = clock
        self._logger = logger
        self._told: set[int] = set()
        self._noted = b""
        """The seal of the version that the data dir has as the highest that was seen."""
        self._highest = 0
        """The highest number that an object has, whatever it is."""
        self._listed_s = 0.0
        self.current = Sealed(AccessDocument(cluster_id), b"")
        self.looked_s = 0.0
        """When the store was last asked with success, by the monotonic clock."""

    def open(self) -> Sealed:
        """Finds the newest version. Raises ConfigError when it is older than one that was seen here, Unavailable."""
        seen = self._read_seen()
        found = self._newest()
        if seen is not None:
            number, mac = (found.document.number, found.mac) if found is not None else (0, b"")
            is_same = number == seen.number and hmac.compare_digest(mac, seen.mac)
            if number < seen.number or (number == seen.number and not is_same):
                raise ConfigError(
                    f"the access document in {self._store.uri(names.ACCESS_FOLDER)} is version {number}, and this node "
                    f"has seen {seen.number}: an older one was put back, or it was sealed with another secret. Restore "
                    f"version {seen.number}, or, if this loss is meant, remove {self._seen_file}"
                )
        elif found is None and self._highest:
            raise ConfigError(
                f"none of the access documents in {self._store.uri(names.ACCESS_FOLDER)} was sealed with this node's "
                "secret: give it the secret file of the cluster"
            )
        if found is not None:
            self._take(found)
        self.looked_s = self._clock.monotonic()
        return self.current

    def follow(self, *, thoroughly: bool = False) -> Sealed:
        """Looks for newer versions, `thoroughly` through all there are. Raises Unavailable; what is known stays."""
        now = self._clock.monotonic()
        if thoroughly or now - self._listed_s >= LIST_SECONDS:
            found = self._newest()
            if found is not None and found.document.number > self.current.document.number:
                self._take(found)
        else:
            while (following := self._version(self.current.document.number + 1)) is not None:
                self._take(following)
        self.looked_s = now
        self._note()
        return self.current

    def write(self, change: Change, expected: int | None = None) -> Sealed:
        """Makes the next version, durable on return.

        With `expected` only of that version: raises Refused `access_changed` when there is another. Raises Unavailable.
        """
        for _ in range(ATTEMPTS_MAX):
            self.follow(thoroughly=True)
            current = self.current
            if expected is not None and current.document.number != expected:
                break
            made = change(current.document)
            if made is current.document:
                return current
            number = max(self._highest, current.document.number) + 1
            changed = msgspec.structs.replace(
                made,
                cluster_id=self._cluster_id,
                number=number,
                previous_mac=current.mac,
                written_us=self._clock.now_us(),
            )
            content = seal(changed, self._mac_key)
            if put_once(self._store, names.access_object(number), content, self._clock):
                self._take(unseal(content, self._mac_key, self._cluster_id, number))
                self._forget_old()
                return self.current
        raise problem(
            "access_changed",
            f"the access document is at version {self.current.document.number} now; look at it, and try again",
            version=self.current.document.number,
        )

    def _take(self, found: Sealed) -> None:
        self.current = found
        self._highest = max(self._highest, found.document.number)
        self._note()

    def _note(self) -> None:
        """Keeps which version was seen. One that is in force is not undone for want of room on the disk."""
        if self._noted == self.current.mac:
            return
        try:
            replace_private(self._seen_file, msgspec.json.encode(_Seen(self.current.document.number, self.current.mac)))
        except OSError as error:
            self._logger.error("which access document was seen cannot be kept", reason=str(error))
        else:
            self._noted = self.current.mac

    def _newest(self) -> Sealed | None:
        listed = self._list()
        self._listed_s = self._clock.monotonic()
        self._highest = max((_number(info) for info in listed), default=self._highest)
        for info in reversed(listed):
            number = _number(info)
            if number <= self.current.document.number:
                return None
            found = self._version(number)
            if found is not None:
                return found
        return None

    def _list(self) -> list[ObjectInfo]:
        return [info for info in self._store.list(names.ACCESS_FOLDER) if info.path.rpartition("/")[2].isdigit()]

    def _version(self, number: int) -> Sealed | None:
        try:
            content = self._store.get(names.access_object(number))
        except FileNotFoundError:
            return None
        try:
            return unseal(content, self._mac_key, self._cluster_id, number)
        except ValueError as error:
            if number not in self._told:
                self._told.add(number)
                uri = self._store.uri(names.access_object(number))
                self._logger.warning("an access document does not count", object=uri, reason=str(error))
            return None

    def _forget_old(self) -> None:
        before_ms = self._store.clock_ms() - KEPT_MS
        for info in self._list()[:-KEPT_VERSIONS]:
            if info.modified_ms < before_ms:
                self._store.delete(info.path)

    def _read_seen(self) -> _Seen | None:
        try:
            return _seen_decoder.decode(self._seen_file.read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(
                f"{self._seen_file} is damaged: {error}; restore it, or remove it if that is meant"
            ) from None


def _number(info: ObjectInfo) -> int:
    return int(info.path.rpartition("/")[2])
