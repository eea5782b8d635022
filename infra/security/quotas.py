"""Quotas: how much a principal, or a topic, may take a second, and when what is too much may be tried again. Pure.

One number for each bucket, the generic cell rate algorithm (ITU-T I.371): the time at which it will be full again. What
is larger than the whole burst passes when the bucket is full, else it never could, and leaves a debt.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from siltlog.infra import names
from siltlog.infra.security.access import EVERYBODY, LOCAL, Caps, checked_principal

BURST_SECONDS = 2.0
BURST_SECONDS_MAX = 3_600.0
PRINCIPALS_MAX = 10_000
"""Principals that share a quota with others by `*` have buckets of their own; so many are remembered."""
Rate = Literal["publish_bytes_per_s", "read_bytes_per_s", "requests_per_s"]
Scope = Literal["principal", "topic"]


@dataclass(slots=True)
class Bucket:
    """Fills with `per_second`, up to `burst_seconds` of it."""

    per_second: float
    burst_seconds: float = BURST_SECONDS
    full_at: float = 0.0

    def charge(self, amount: float, now: float) -> float:
        """Takes `amount`, and gives 0.0; or takes nothing, and gives the seconds after which it would."""
        cost = amount / self.per_second
        # Without max(), which would be a third of the time: a publish is charged here.
        start = self.full_at if self.full_at > now else now
        wait = start - now
        if cost < self.burst_seconds:
            wait -= self.burst_seconds - cost
        if wait > 0:
            return wait
        self.full_at = start + cost
        return 0.0

    def refund(self, amount: float) -> None:
        """Puts back what was taken just now, for something that was refused after all."""
        self.full_at -= amount / self.per_second

    def owe(self, amount: float, now: float) -> None:
        """Takes `amount` whatever is there: for what could only be counted once it had come."""
        self.full_at = max(self.full_at, now) + amount / self.per_second

    def wait(self, now: float) -> float:
        """Seconds until something may be taken."""
        return max(self.full_at - now - self.burst_seconds, 0.0)


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds what one principal, or what all together do to one topic; `*` is each that no other quota names.

    What is None has no bound.
    """

    principal: str | None = None
    topic: str | None = None
    publish_bytes_per_s: float | None = None
    read_bytes_per_s: float | None = None
    requests_per_s: float | None = None
    burst_seconds: float = BURST_SECONDS
    topics_max: int | None = None
    partitions_max: int | None = None
    groups_max: int | None = None

    def caps(self) -> Caps:
        return Caps(self.topics_max, self.partitions_max, self.groups_max)


def checked_quota(quota: Quota) -> Quota:
    """Raises ValueError for a quota that could never bound anything, or would let nothing pass."""
    if (quota.principal is None) == (quota.topic is None):
        raise ValueError("it is of a principal or of a topic: name one of them")
    if quota.principal is not None:
        checked_principal(quota.principal)
        if quota.principal.startswith("group:"):
            raise ValueError("a quota is of one principal, or of each (*): a group has none")
    elif quota.topic != EVERYBODY and (problem := names.readable_topic_problem(quota.topic or "")):
        raise ValueError(problem)
    rates = (quota.publish_bytes_per_s, quota.read_bytes_per_s, quota.requests_per_s)
    caps = [cap for cap in quota.caps() if cap is not None]
    if caps and quota.principal is None:
        raise ValueError("topics_max, partitions_max and groups_max are of a principal")
    if any(cap < 0 for cap in caps):
        raise ValueError("a cap is 0 or more")
    if not caps and all(rate is None for rate in rates):
        raise ValueError(
            "it bounds nothing: give publish_bytes_per_s, read_bytes_per_s, requests_per_s, topics_max, partitions_max "
            "or groups_max"
        )
    if any(rate is not None and not 0 < rate < float("inf") for rate in rates):
        raise ValueError("a rate is above 0; who may do nothing has no right to it")
    if not 0 < quota.burst_seconds <= BURST_SECONDS_MAX:
        raise ValueError(f"burst_seconds is above 0, and at most {BURST_SECONDS_MAX:g}")
    return quota


class Exceeded(NamedTuple):
    """Says whose quota refuses, which one, and after how many seconds it would not."""

    scope: Scope
    name: str
    limit: Rate
    per_second: float
    wait: float


class Limits:
    """The buckets of one principal or topic."""

    __slots__ = ("name", "publish", "quota", "read", "requests", "scope")

    def __init__(self, scope: Scope, name: str, quota: Quota) -> None:
        self.scope: Scope = scope
        self.name = name
        self.quota = quota
        self.publish = _bucket(quota.publish_bytes_per_s, quota)
        self.read = _bucket(quota.read_bytes_per_s, quota)
        self.requests = _bucket(quota.requests_per_s, quota)

    def publishing(self, nbytes: int, now: float) -> Exceeded | None:
        """Takes a request that publishes; or nothing, and says why."""
        requests, publish = self.requests, self.publish
        if requests is not None and (wait := requests.charge(1.0, now)):
            return self._exceeded("requests_per_s", requests, wait)
        if publish is not None and (wait := publish.charge(nbytes, now)):
            if requests is not None:
                requests.refund(1.0)
            return self._exceeded("publish_bytes_per_s", publish, wait)
        return None

    def not_published(self, nbytes: int) -> None:
        """Puts back what `publishing` took."""
        if self.requests is not None:
            self.requests.refund(1.0)
        if self.publish is not None:
            self.publish.refund(nbytes)

    def was_published(self, nbytes: int, now: float) -> None:
        """Takes bytes of a body whose length was not known before they came."""
        if self.publish is not None:
            self.publish.owe(nbytes, now)

    def asking(self, now: float, *, reads: bool) -> Exceeded | None:
        """Takes a request that publishes nothing; or nothing, and says why. One that reads has to wait for its debt."""
        requests, read = self.requests, self.read
        if reads and read is not None and (wait := read.wait(now)):
            return self._exceeded("read_bytes_per_s", read, wait)
        if requests is not None and (wait := requests.charge(1.0, now)):
            return self._exceeded("requests_per_s", requests, wait)
        return None

    def not_asked(self) -> None:
        """Puts back what `asking` took."""
        if self.requests is not None:
            self.requests.refund(1.0)

    def was_read(self, nbytes: int, now: float) -> float:
        """Counts bytes of an answer, and gives the seconds that a stream now pauses."""
        if self.read is None:
            return 0.0
        self.read.owe(nbytes, now)
        return self.read.wait(now)

    def is_idle(self, now: float) -> bool:
        """Nothing is lost when it is forgotten."""
        return all(bucket is None or bucket.full_at <= now for bucket in (self.publish, self.read, self.requests))

    def _exceeded(self, limit: Rate, bucket: Bucket, wait: float) -> Exceeded:
        return Exceeded(self.scope, self.name, limit, bucket.per_second, wait)


class Quotas:
    """Finds the buckets of a principal and of a topic. Used on one event loop."""

    def __init__(self) -> None:
        self.version = 0
        """Rises with each change: what somebody remembers of an older one does not count."""
        self._quotas: dict[tuple[Scope, str], Quota] = {}
        self._limits: dict[tuple[Scope, str], Limits] = {}
        self.any = False
        """There is a quota at all."""

    def change(self, quotas: Mapping[str, Quota]) -> None:
        """Has these hold from now on. Who has the same as before keeps his buckets, and so his debt."""
        found = {key: quota for quota in quotas.values() for key in _keys(quota)}
        if found == self._quotas:
            return
        self._quotas = found
        self.any = bool(found)
        self._limits = {key: limits for key, limits in self._limits.items() if self._quota(*key) == limits.quota}
        self.version += 1

    def of(self, scope: Scope, name: str, now: float) -> Limits | None:
        """The buckets of a principal or topic; None where no quota is of it."""
        limits = self._limits.get((scope, name))
        if limits is None and (quota := self._quota(scope, name)) is not None:
            if len(self._limits) >= PRINCIPALS_MAX:
                self._forget(now)
            limits = self._limits[scope, name] = Limits(scope, name, quota)
        return limits

    def _forget(self, now: float) -> None:
        """Makes room: what is idle goes, and, where that is little, the half that was asked for first."""
        owing = [(key, one) for key, one in self._limits.items() if not one.is_idle(now)]
        self._limits = dict(owing[-(PRINCIPALS_MAX // 2) :])
        self.version += 1

    def both(self, principal: str, topic: str | None, now: float) -> tuple[Limits, ...]:
        """What bounds a principal's request to a topic."""
        found = (self.of("principal", principal, now), None if topic is None else self.of("topic", topic, now))
        return tuple(limits for limits in found if limits is not None)

    def _quota(self, scope: Scope, name: str) -> Quota | None:
        if scope == "principal" and name == LOCAL:
            return None
        if scope == "topic" and len(name) > names.TOPIC_CHARS_MAX:
            # Nothing can have that name, and as many of these as there may be buckets would fill the memory.
            return None
        return self._quotas.get((scope, name)) or self._quotas.get((scope, EVERYBODY))


def publishing(all_limits: tuple[Limits, ...], nbytes: int, now: float) -> Exceeded | None:
    """Takes a request that publishes of every bucket; or of none, and says which refuses."""
    for taken, limits in enumerate(all_limits):
        exceeded = limits.publishing(nbytes, now)
        if exceeded is not None:
            for before in all_limits[:taken]:
                before.not_published(nbytes)
            return exceeded
    return None


def _keys(quota: Quota) -> Iterator[tuple[Scope, str]]:
    if quota.principal is not None:
        yield "principal", quota.principal
    if quota.topic is not None:
        yield "topic", quota.topic


def _bucket(per_second: float | None, quota: Quota) -> Bucket | None:
    return None if per_second is None else Bucket(per_second, quota.burst_seconds)
