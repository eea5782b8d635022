"""What SIGHUP has a server do: read its files again, those of the settings and those of TLS."""

import asyncio

import msgspec

from siltlog.infra.node import Node
from siltlog.infra.security.access import LOCAL
from siltlog.infra.security.audit.chain import Audited
from siltlog.server.audit_log import AuditLog
from siltlog.server.settings.configuration import Configuration
from siltlog.server.tls import Tls
from siltlog.server.watching.supervisor import Supervisor


class Reloading:
    """What is wrong with a file leaves what it said before, and says so in the log. Used on one event loop."""

    def __init__(
        self,
        configuration: Configuration,
        tls: Tls | None,
        audit: AuditLog | None,
        node: Node,
        supervisor: Supervisor,
    ) -> None:
        self._configuration = configuration
        self._tls = tls
        self._audit = audit
        self._node = node
        self._supervisor = supervisor
        self._under_way: set[asyncio.Task[None]] = set()

    def __call__(self) -> None:
        task = asyncio.get_running_loop().create_task(self._reload())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _reload(self) -> None:
        with self._supervisor.reloading():
            problems = [await self._configuration.reload(self._record)]
            if self._tls is not None:
                problems.append(await self._tls.reload())
        self._node.metrics.reloads["refused" if any(problems) else "applied"] += 1

    def _record(self, changed: str) -> None:
        if self._audit is not None:
            resource = f"config/{self._node.settings.node_id}"
            done = Audited(request_id="", principal=LOCAL, operation="reload", resource=resource, outcome="done")
            self._audit.note(msgspec.structs.replace(done, detail=changed))
