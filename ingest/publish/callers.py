"""What the caller of a connection may do: a connection remembers it from its last publish, so that nobody is asked."""

import hmac
from typing import Any

from siltlog.infra.errors import SiltlogError
from siltlog.infra.http.door import Door
from siltlog.infra.security.grant import Caller, Identity
from siltlog.infra.security.quotas import Limits

TOPICS_REMEMBERED_MAX = 1_000


class Remembered:
    """The identity that a connection's last publish had, and the topics that it may write under one version of access.

    A proxy sends many callers' requests over one connection, so it counts for the same credential only.
    """

    __slots__ = ("authorization", "identity", "limits", "quotas_version", "topics", "version")

    def __init__(self, authorization: bytes | None, identity: Identity, version: int) -> None:
        self.authorization = authorization
        self.identity = identity
        self.version = version
        self.topics: dict[str, bool] = {}
        self.limits: dict[str, tuple[Limits, ...]] = {}
        """What bounds it in each topic, under one version of the quotas."""
        self.quotas_version = -1

    def is_of(self, authorization: bytes | None) -> bool:
        if authorization is None or self.authorization is None:
            return authorization is self.authorization
        return hmac.compare_digest(authorization, self.authorization)


class Callers:
    """Asks the door's identification and its guard, where there are any, for what a connection does not remember."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def may_write(self, connection: Any, authorization: bytes | None, topic: str) -> bool:
        """Whether it is known at once that the caller may write the topic; who may not is told so the long way."""
        identification = self._door.identification
        assert identification is not None
        access = identification.access
        remembered: Remembered | None = connection.remembered
        if (
            remembered is None
            or remembered.version != access.version
            or not remembered.is_of(authorization)
            or (remembered.identity.until_us is not None and access.clock.now_us() >= remembered.identity.until_us)
        ):
            peer = connection.peer
            identity = identification.known(
                Caller(
                    b"",
                    address=peer.address,
                    authorization=authorization,
                    local=peer.local,
                    certificate=peer.certificate,
                )
            )
            if identity is None:
                return False
            remembered = connection.remembered = Remembered(authorization, identity, access.version)
            connection.known()
        allowed = remembered.topics.get(topic)
        if allowed is None:
            if len(remembered.topics) >= TOPICS_REMEMBERED_MAX:
                remembered.topics.clear()
            allowed = remembered.topics[topic] = access.allows(remembered.identity.subject, "write", "topic", topic)
        return allowed

    def refusal(self, remembered: Remembered, topic: str, nbytes: int) -> SiltlogError | None:
        """Takes a publish of its caller's quotas; or nothing, and gives what it is told. There are quotas."""
        guard = self._door.guard
        assert guard is not None
        if remembered.quotas_version != guard.quotas.version or len(remembered.limits) >= TOPICS_REMEMBERED_MAX:
            remembered.limits.clear()
            remembered.quotas_version = guard.quotas.version
        all_limits = remembered.limits.get(topic)
        if all_limits is None:
            found = guard.quotas.both(remembered.identity.subject.principal, topic, guard.now())
            all_limits = remembered.limits[topic] = found
        exceeded = guard.exceeded(all_limits, nbytes) if all_limits else None
        return None if exceeded is None else guard.limited(exceeded)
