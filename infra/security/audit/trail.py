"""The trail that changes leave: an intent before they are made, and how they ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import msgspec

from siltlog.infra.errors import OutcomeUnknown, SiltlogError
from siltlog.infra.security.audit.chain import Audited, Outcome

Changes = Literal["nothing", "in_path", "in_body", "revokes"]
"""What an operation changes, and so how it is recorded.

`in_path`: what its path names. `in_body`: what its body names, so the handler says it before it acts. `revokes`: it
takes a right away, and is not refused for want of a record.
"""
CHANGE = "change"
"""Where a request's state has the change that it makes."""
MAKES = "makes"
"""Where it has what gives the change that it makes beside what it was sent for."""
DETAIL_CHARS_MAX = 1_000
_FAILED = 500


REVOKES_SECONDS_MAX = 1.0
"""How long what takes a right away waits to be recorded before it is done all the same."""


class Trail(Protocol):
    """Where it is recorded."""

    async def begin(self, intent: Audited) -> None:
        """Returns once the intent is durable. Raises Unavailable `audit_unavailable`: the change must not be made."""

    async def owe(self, intent: Audited, seconds_max: float) -> None:
        """Records the intent of what is not refused, within some seconds or later; never raises."""

    async def end(self, ended: Audited) -> None:
        """Records how a change ended; never raises."""

    def denied(self, denied: Audited, reason: str) -> None:
        """Counts what was refused for who sent it."""

    def came(self, audited: Audited) -> None:
        """Counts a login, or the end of one."""


class Change:
    """A change that one request makes."""

    def __init__(self, trail: Trail, intent: Audited, changes: Changes) -> None:
        self.begun = False
        self._trail = trail
        self._intent = intent
        self._changes = changes

    @property
    def is_in_body(self) -> bool:
        return self._changes == "in_body"

    async def begin(self, resource: str | None = None, detail: str = "") -> None:
        """Returns once it is recorded that the change is about to be made; `resource` where the path does not say it,
        `detail` where it does not say into what.

        Raises Unavailable `audit_unavailable`, unless it takes a right away: that is owed to the log.
        """
        if resource is not None:
            self._intent = msgspec.structs.replace(self._intent, resource=resource, detail=detail[:DETAIL_CHARS_MAX])
        if self._changes == "revokes":
            await self._trail.owe(self._intent, REVOKES_SECONDS_MAX)
        else:
            await self._trail.begin(self._intent)
        self.begun = True

    async def end(self, status: int, detail: str = "") -> None:
        await self._ended("done", status, detail)

    async def fail(self, error: Exception) -> None:
        """Records an error that the change ended with; of one that had not begun there is nothing to record."""
        if not self.begun:
            return
        if not isinstance(error, SiltlogError):
            await self._ended("failed", _FAILED, "internal")
            return
        status = error.status or _FAILED
        failed = isinstance(error, OutcomeUnknown) or status >= _FAILED
        await self._ended("failed" if failed else "refused", status, error.error_code)

    @asynccontextmanager
    async def around(self, resource: str, status: int) -> AsyncIterator[None]:
        """Records it from before it is made to how it ended, with `status` where nothing goes wrong.

        Raises Unavailable `audit_unavailable` before anything is made.
        """
        await self.begin(resource)
        try:
            yield
        except Exception as error:
            await self.fail(error)
            raise
        await self.end(status)

    async def _ended(self, outcome: Outcome, status: int, detail: str) -> None:
        ended = msgspec.structs.replace(self._intent, outcome=outcome, status=status, detail=detail)
        await self._trail.end(ended)
