"""What stands before each operation besides its access: what a caller may take of the server, and what is recorded."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.metrics.metrics import Metrics
from siltlog.infra.security.audit.chain import Audited
from siltlog.infra.security.audit.trail import Change, Changes, Trail
from siltlog.infra.security.grant import Grant, Identity
from siltlog.infra.security.quotas import Exceeded, Limits, Quotas, publishing

ADDRESS = "address"
"""Where a request's state has the address that it comes from."""
METERED = "metered"
"""Where it has the meter of its answer."""
Receive = Callable[[], Awaitable[Any]]
NAME_CHARS_MAX = 1_000
"""So much of a name is recorded: a stranger may write as much into a path as a head has room for."""
DENIED = frozenset((401, 403))


class Guard:
    """Used on one event loop. Where nobody is asked who he is there is none."""

    def __init__(self, trail: Trail, quotas: Quotas, clock: Clock, metrics: Metrics) -> None:
        self.quotas = quotas
        self._trail = trail
        self._clock = clock
        self._limited = metrics.rate_limited

    # What is recorded.

    def change(self, operation_id: str, changes: Changes, request: Mapping[str, Any], grant: Grant) -> Change:
        """The change that a request makes, by its scope; it has not begun."""
        return Change(self._trail, _audited(operation_id, request, grant.identity), changes)

    def denied(self, operation_id: str, request: Mapping[str, Any], grant: Grant, error: Exception) -> None:
        """Counts a refusal for who sent the request; any other error is nothing to it."""
        if not isinstance(error, SiltlogError) or error.status not in DENIED:
            return
        reason = str(error.members.get("reason") or error.error_code)
        self._trail.denied(_audited(operation_id, request, grant.identity, error.status, reason), reason)

    def came(self, operation_id: str, request: Mapping[str, Any], identity: Identity, status: int) -> None:
        """Counts the login of somebody by a request, or its end."""
        told = _audited(operation_id, request, identity, status)
        self._trail.came(msgspec.structs.replace(told, outcome="done"))

    # What is taken.

    def charge(self, grant: Grant, topic: str | None, *, reads: bool) -> "Meter | None":
        """Takes a request that publishes nothing; gives what counts the bytes of its answer, where it `reads`.

        Raises Unavailable `rate_limited`; then nothing was taken.
        """
        if grant.identity is None:
            return None
        if self.quotas.any:
            self.ask(self.quotas.both(grant.principal, topic, self.now()), reads=reads)
        return Meter(self, grant.principal, topic) if reads else None

    def ask(self, all_limits: tuple[Limits, ...], *, reads: bool) -> None:
        """Takes a request of all of these, or of none: then it raises Unavailable `rate_limited`."""
        now = self.now()
        for taken, limits in enumerate(all_limits):
            exceeded = limits.asking(now, reads=reads)
            if exceeded is not None:
                for before in all_limits[:taken]:
                    before.not_asked()
                raise self.limited(exceeded)

    def charge_publish(
        self, grant: Grant, topic: str, headers: Iterable[tuple[bytes, bytes]], receive: Receive
    ) -> Receive:
        """Takes a publish by its Content-Length; where it has none, what is returned takes the bytes as they come.

        Raises Unavailable `rate_limited`; then nothing was taken.
        """
        if not self.quotas.any:
            return receive
        length = dict(headers).get(b"content-length")
        all_limits = self.quotas.both(grant.principal, topic, self.now())
        exceeded = self.exceeded(all_limits, int(length) if length is not None and length.isdigit() else 0)
        if exceeded is not None:
            raise self.limited(exceeded)
        if length is not None or not all_limits:
            return receive

        async def counted() -> Any:
            message = await receive()
            for limits in all_limits:
                limits.was_published(len(message.get("body", b"")), self.now())
            return message

        return counted

    def exceeded(self, all_limits: tuple[Limits, ...], nbytes: int) -> Exceeded | None:
        """Takes a publish of so many bytes; or nothing, and says whose quota refuses it."""
        return publishing(all_limits, nbytes, self.now())

    def now(self) -> float:
        """Seconds of the clock that buckets go by."""
        return self._clock.monotonic()

    def limited(self, exceeded: Exceeded) -> SiltlogError:
        """Counts a refusal for a quota, and gives it."""
        self._limited[exceeded.scope] = self._limited.get(exceeded.scope, 0) + 1
        return problem(
            "rate_limited",
            f"the {exceeded.scope} {exceeded.name} is above its quota {exceeded.limit}={exceeded.per_second:g}",
            retry_after_ms=max(1, int(exceeded.wait * 1000 + 0.999)),
            scope=exceeded.scope,
            limit=exceeded.limit,
        )


class Meter:
    """Counts the bytes of one answer for the quotas that hold at that moment: streams outlive changes of them."""

    def __init__(self, guard: Guard, principal: str, topic: str | None) -> None:
        """`topic` is None where an answer has several: what is of each is told one by one."""
        self._guard = guard
        self._principal = principal
        self._topic = topic

    def read(self, nbytes: int) -> float:
        """Takes bytes that were sent, and gives the seconds that a stream pauses before it sends more."""
        quotas = self._guard.quotas
        if not quotas.any:
            return 0.0
        now = self._guard.now()
        all_limits = quotas.both(self._principal, self._topic, now)
        return max((limits.was_read(nbytes, now) for limits in all_limits), default=0.0)

    def ask_topics(self, topics: Iterable[str]) -> None:
        """Takes a request to several topics of the quotas of each. Raises Unavailable `rate_limited`."""
        quotas = self._guard.quotas
        if self._topic is None and quotas.any:
            now = self._guard.now()
            found = (quotas.of("topic", topic, now) for topic in topics)
            self._guard.ask(tuple(limits for limits in found if limits is not None), reads=True)

    def read_of(self, topic: str, nbytes: int) -> float:
        """Takes what an answer with several topics has of one."""
        quotas = self._guard.quotas
        if self._topic is not None or not quotas.any:
            return 0.0
        now = self._guard.now()
        limits = quotas.of("topic", topic, now)
        return 0.0 if limits is None else limits.was_read(nbytes, now)


def _audited(
    operation_id: str,
    request: Mapping[str, Any],
    identity: Identity | None,
    status: int | None = None,
    detail: str = "",
) -> Audited:
    resource = "/".join(f"{kind}/{name[:NAME_CHARS_MAX]}" for kind, name in request.get("path_params", {}).items())
    return Audited(
        request_id=request["state"]["request_id"],
        principal="" if identity is None else identity.subject.principal,
        credential="" if identity is None else identity.credential_id,
        address=request["state"][ADDRESS],
        operation=operation_id,
        resource=resource,
        outcome="begun" if status is None else "refused",
        status=status,
        detail=detail,
    )
