"""`/v1/access/audit`: the end of what this node has audited, to be noted where nobody who writes its log can reach."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.answers import Whole
from siltlog.infra.http.operations import json_answer, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import json_reply
from siltlog.server.audit_log import AuditLog


class AuditEnd(msgspec.Struct):
    """The last record that this node wrote to `_audit`."""

    anchor: Annotated[str | None, Meta(description="`chain:seq:mac`; null before there is a record")]
    chain: str | None
    seq: Whole
    mac: str | None
    unwritten: Annotated[int, Meta(ge=0, description="Records that wait to be written")]


class AuditHttp:
    def __init__(self, audit: AuditLog | None) -> None:
        """Answers that authentication is off without `audit`."""
        self._audit = audit

    @operation(
        "GET",
        "/v1/access/audit",
        "describeAudit",
        "Access",
        "The end of the audit log",
        "What to note elsewhere: `silt access log --verify --anchor` tells by it whether the end of `_audit` was cut.",
        access=on_cluster("admin"),
        replies={200: json_answer("The end.", AuditEnd)},
        errors=("auth_off",),
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        if self._audit is None:
            raise problem("auth_off", "this server asks nobody who he is, so it audits nothing; see SILT_AUTH")
        last = self._audit.anchor
        if last is None or not last.mac:
            return json_reply(AuditEnd(None, None, 0, None, self._audit.unwritten))
        return json_reply(AuditEnd(last.text(), last.chain, last.seq, last.mac, self._audit.unwritten))
