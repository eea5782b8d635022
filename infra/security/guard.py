"""What stands before each operation besides its access: what a caller may take of the server, and what is recorded."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError, problem
from siltlog.infra.security.audit.chain import Audited
from siltlog.infra.security.audit.trail import Change, Changes, Trail
from siltlog.infra.security.grant import Grant
from siltlog.infra.security.quotas import Exceeded, Limits, Quotas, publishing
from siltlog.infra.telemetry import Metrics

ADDRESS = "address"
"""Where a request's state has the address that it comes from."""
METERED = "metered"
"""Where it has the meter of its answer."""
Receive = Callable[[], Awaitable[Any]]
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
        return Change(self._trail, _audited(operation_id, request, grant), changes)

    def denied(self, operation_id: str, request: Mapping[str, Any], grant: Grant, error: Exception) -> None:
        """Counts a refusal for who sent the request; any other error is nothing to it."""
        if not isinstance(error, SiltlogError) or error.status not in DENIED:
            return
        reason = str(error.members.get("reason") or error.error_code)
        self._trail.denied(_audited(operation_id, request, grant, error.status, reason), reason)

    # What is taken.

    def charge(self, grant: Grant, topic: str | None, *, reads: bool) -> "Meter | None":
        """Takes a request that publishes nothing; gives what counts the bytes of its answer, where a quota is of them.

        Raises Unavailable `rate_limited`; then nothing was taken.
        """
        if not self.quotas.any or grant.identity is None:
            return None
        now = self.now()
        all_limits = self.quotas.both(grant.principal, topic, now)
        for taken, limits in enumerate(all_limits):
            exceeded = limits.asking(now, reads=reads)
            if exceeded is not None:
                for before in all_limits[:taken]:
                    before.not_asked()
                raise self.limited(exceeded)
        metered = tuple(limits for limits in all_limits if limits.read is not None) if reads else ()
        return Meter(metered, self._clock) if metered else None

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
    """Counts the bytes of one answer for the quotas that it is under."""

    def __init__(self, all_limits: tuple[Limits, ...], clock: Clock) -> None:
        self._all = all_limits
        self._clock = clock

    def read(self, nbytes: int) -> float:
        """Takes bytes that were sent, and gives the seconds that a stream pauses before it sends more."""
        now = self._clock.monotonic()
        return max(limits.was_read(nbytes, now) for limits in self._all)


def _audited(
    operation_id: str, request: Mapping[str, Any], grant: Grant, status: int | None = None, detail: str = ""
) -> Audited:
    identity = grant.identity
    resource = "/".join(f"{kind}/{name}" for kind, name in request.get("path_params", {}).items())
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
