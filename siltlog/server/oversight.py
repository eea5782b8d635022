"""Builds what watches over the callers of a node: the audit log, and the guard before each operation."""

from dataclasses import dataclass

from siltlog.consumers.assembly import Consumers
from siltlog.consumers.reading.view import LogView, SystemLog
from siltlog.infra import names
from siltlog.infra.http.part import Part
from siltlog.infra.node import Node
from siltlog.infra.security.access import LOCAL
from siltlog.infra.security.audit.chain import PURPOSE, Audited
from siltlog.infra.security.guard import Guard
from siltlog.infra.security.quotas import Quotas
from siltlog.server.access.login_http import LoginHttp
from siltlog.server.access.provider_http import ProviderHttp
from siltlog.server.access.security import Security
from siltlog.server.audit_http import AuditHttp
from siltlog.server.audit_log import AuditLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight:
    """Without authentication there is nobody to watch over, and so neither of the two."""

    audit: AuditLog | None
    guard: Guard | None
    part: Part


def oversee(node: Node, log: LogView, system: SystemLog, consumers: Consumers, security: Security | None) -> Oversight:
    if security is None:
        off = (AuditHttp(None), LoginHttp(None, None), ProviderHttp(None, None))
        return Oversight(audit=None, guard=None, part=Part(handlers=off))
    audit = AuditLog(
        log,
        consumers.fetcher,
        system,
        key=security.secret.key(PURPOSE),
        node_id=node.settings.node_id,
        seen_file=node.settings.data_dir / names.AUDIT_SEEN_FILE,
        owed_file=node.settings.data_dir / names.AUDIT_OWED_FILE,
        clock=node.clock,
        logger=node.logger,
        metrics=node.metrics,
    )
    quotas = Quotas()
    book = security.book

    def take_quotas() -> None:
        quotas.change(book.document.quotas)

    take_quotas()
    book.access.when_changed(take_quotas)

    def drain() -> None:
        audit.note(
            Audited(request_id="", principal=LOCAL, operation="drain", resource="cluster/cluster", outcome="begun")
        )

    async def close(patient: bool) -> bool:
        audit.stop()
        return True

    guard = Guard(audit, quotas, node.clock, node.metrics)
    handlers = (AuditHttp(audit), LoginHttp(security, guard), ProviderHttp(security, guard))
    return Oversight(
        audit=audit,
        guard=guard,
        part=Part(
            handlers=handlers,
            start=audit.start,
            drain=drain,
            close=close,
        ),
    )
