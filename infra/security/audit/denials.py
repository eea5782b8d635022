"""What was refused to callers, counted before it is recorded: one record says how often, or a flood would be the log.

Pure. Callers beyond the bound are counted together, each code for itself.
"""

from typing import NamedTuple

import msgspec

from siltlog.infra.security.audit.chain import Audited

CALLERS_MAX = 100
"""So many of (caller, operation, code) are told apart before they are recorded."""


class _Kind(NamedTuple):
    principal: str
    credential: str
    address: str
    operation: str
    detail: str


class Denials:
    """Counts what is alike until it is taken."""

    def __init__(self) -> None:
        self._first: dict[_Kind, Audited] = {}
        self._counts: dict[_Kind, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, denied: Audited) -> None:
        """Counts one more; of those that are alike the first is the one that is recorded."""
        kind = _Kind(denied.principal, denied.credential, denied.address, denied.operation, denied.detail)
        if kind not in self._counts and len(self._counts) >= CALLERS_MAX:
            kind = _Kind("", "", "", "", denied.detail)
            denied = Audited(
                request_id="", principal="", operation="", outcome=denied.outcome, status=denied.status,
                detail=denied.detail,
            )  # fmt: skip
        self._first.setdefault(kind, denied)
        self._counts[kind] = self._counts.get(kind, 0) + denied.count

    def take(self) -> list[Audited]:
        """Gives what was counted, and begins anew."""
        taken = [msgspec.structs.replace(first, count=self._counts[kind]) for kind, first in self._first.items()]
        self._first, self._counts = {}, {}
        return taken
