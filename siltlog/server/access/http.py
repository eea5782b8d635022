"""`/v1/access`: who may do what, told and changed."""

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra import names
from siltlog.infra.clock import Clock, format_us
from siltlog.infra.errors import problem
from siltlog.infra.http.operations import (
    ANY_CALLER,
    Access,
    begin_change,
    in_header,
    in_path,
    json_answer,
    json_body,
    on_cluster,
    operation,
)
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.security.access import (
    CLUSTER,
    LOCAL,
    RIGHTS,
    Binding,
    Entry,
    Kind,
    Subject,
    checked_binding,
    checked_entry,
    checked_principal,
)
from siltlog.infra.security.grant import grant_of
from siltlog.infra.security.quotas import Quota, checked_quota
from siltlog.server.access import answers, changes
from siltlog.server.access.security import Security

BODY_BYTES_MAX = 256 * 1024
_KINDS: Mapping[changes.Part, Literal["binding", "acl", "quota"]] = {
    "bindings": "binding",
    "entries": "acl",
    "quotas": "quota",
}
"""What the audit log calls them."""
_BY: Mapping[str, Literal["key", "token", "certificate", "socket"]] = {
    "key": "key",
    "user": "token",
    "cert": "certificate",
    LOCAL: "socket",
}
"""How a caller is known, by the kind of his principal."""
_IF_MATCH = "If-Match"
BODY_ERRORS = ("malformed_body", "request_timeout", "request_too_large", "invalid_request")
CHANGE_ERRORS = ("auth_off", "access_changed", "access_unavailable", "ack_timeout")
ADMIN: Access = on_cluster("admin")
_ID = in_path("id", "The name of this one, chosen by who makes it.", example="etl")
_MATCH = in_header(_IF_MATCH, "The version that the change is made of; refused when there is a newer one.")
_BINDING = {"principal": "key:etl", "role": "producer", "prefix": "flights"}
_ENTRY = {"principal": "group:analysts", "kind": "topic", "name": "flights", "operations": ["read"]}
_QUOTA = {"principal": "key:etl", "publish_bytes_per_s": 10_000_000}
_CHANGED = {200: json_answer("It holds.", answers.Version)}

_check = msgspec.json.Decoder(answers.Check)
_binding = msgspec.json.Decoder(Binding)
_entry = msgspec.json.Decoder(Entry)
_quota = msgspec.json.Decoder(Quota)


class AccessHttp:
    def __init__(self, security: Security | None, page: Literal["on", "read", "off"], clock: Clock) -> None:
        """Without `security` authentication is off."""
        self._security = security
        self._page = page
        self._clock = clock

    @operation(
        "GET",
        "/v1/access",
        "describeAccess",
        "Access",
        "Who may do what",
        "All but what is kept of the keys' secrets.",
        access=ADMIN,
        replies={200: json_answer("The document.", answers.AccessDocument)},
        errors=("auth_off",),
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        document = asks_who(self._security).book.document
        keys = [
            answers.Key(key_id, key.name, format_us(key.made_us), time_of(key.expires_us))
            for key_id, key in sorted(document.keys.items(), key=lambda each: (each[1].name, each[1].made_us))
        ]
        bindings, entries = dict(document.bindings), dict(document.entries)
        return json_reply(answers.AccessDocument(document.number, keys, bindings, entries, dict(document.quotas)))

    @operation(
        "GET",
        "/v1/access/whoami",
        "whoAmI",
        "Access",
        "Who calls",
        "Whom the server takes the caller for, and the roles he has.",
        access=ANY_CALLER,
        replies={200: json_answer("The caller.", answers.Whoami)},
    )
    async def whoami(self, request: Request) -> Response:
        Query(request, ())
        grant, security = grant_of(request), self._security
        identity = grant.identity
        if security is None or identity is None:
            return json_reply(answers.Whoami(grant.principal, [], "", None, [], "off", page=self._page))
        subject = identity.subject
        bindings = security.book.document.bindings.values()
        roles = [
            answers.GrantedRole(each.role, each.prefix, each.principal)
            for each in bindings
            if subject.answers_to(each.principal)
        ]
        if subject.principal == LOCAL:
            roles.append(answers.GrantedRole("admin", "", LOCAL))
        entries = security.book.document.entries.values()
        return json_reply(
            answers.Whoami(
                subject.principal,
                list(subject.groups),
                identity.credential_id,
                time_of(identity.until_us),
                roles,
                "on",
                [each for each in entries if subject.answers_to(each.principal)],
                "session" if identity.session is not None else _BY[subject.principal.partition(":")[0]],
                self._page,
            )
        )

    @operation(
        "PUT",
        "/v1/access/bindings/{id}",
        "putBinding",
        "Access",
        "Give a role",
        "To a principal, a group (`group:NAME`) or everybody (`*`), for all names or those with a prefix.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        body=json_body(Binding, _BINDING),
        errors=(*BODY_ERRORS, *CHANGE_ERRORS, "last_admin"),
        changes="in_body",
    )
    async def put_binding(self, request: Request) -> Response:
        return await self._put(request, "bindings", _binding)

    @operation(
        "DELETE",
        "/v1/access/bindings/{id}",
        "deleteBinding",
        "Access",
        "Take a role back",
        "The last administrator stays.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        errors=(*CHANGE_ERRORS, "last_admin"),
        changes="in_path",
    )
    async def delete_binding(self, request: Request) -> Response:
        return await self._delete(request, "bindings")

    @operation(
        "PUT",
        "/v1/access/acls/{id}",
        "putAcl",
        "Access",
        "Allow or deny",
        "An entry for a principal, a group (`group:NAME`) or everybody (`*`). One that denies wins.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        body=json_body(Entry, _ENTRY),
        errors=(*BODY_ERRORS, *CHANGE_ERRORS, "last_admin"),
        changes="in_body",
    )
    async def put_acl(self, request: Request) -> Response:
        return await self._put(request, "entries", _entry)

    @operation(
        "DELETE",
        "/v1/access/acls/{id}",
        "deleteAcl",
        "Access",
        "Remove an entry",
        "What it allowed is allowed no more, what it denied may be.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        errors=(*CHANGE_ERRORS, "last_admin"),
        changes="in_path",
    )
    async def delete_acl(self, request: Request) -> Response:
        return await self._delete(request, "entries")

    @operation(
        "PUT",
        "/v1/access/quotas/{id}",
        "putQuota",
        "Access",
        "Bound what somebody takes",
        "A quota of a principal, or of a topic; `*` is each that no other quota names.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        body=json_body(Quota, _QUOTA),
        errors=(*BODY_ERRORS, *CHANGE_ERRORS),
        changes="in_body",
    )
    async def put_quota(self, request: Request) -> Response:
        return await self._put(request, "quotas", _quota)

    @operation(
        "DELETE",
        "/v1/access/quotas/{id}",
        "deleteQuota",
        "Access",
        "Remove a quota",
        "What it bounded is bounded by that of `*`, where there is one.",
        access=ADMIN,
        replies=_CHANGED,
        parameters=(_ID, _MATCH),
        errors=CHANGE_ERRORS,
        changes="in_path",
    )
    async def delete_quota(self, request: Request) -> Response:
        return await self._delete(request, "quotas")

    @operation(
        "POST",
        "/v1/access/check",
        "checkAccess",
        "Access",
        "May somebody do something?",
        "Says which entry or binding decides. `resource` is `topic:NAME`, `group:NAME` or `cluster`.",
        access=ADMIN,
        replies={200: json_answer("The decision.", answers.Checked)},
        body=json_body(answers.Check, {"principal": "key:etl", "operation": "write", "resource": "topic:flights"}),
        errors=(*BODY_ERRORS, "auth_off"),
    )
    async def check(self, request: Request) -> Response:
        Query(request, ())
        security = asks_who(self._security)
        asked = decode(await body_of(request, BODY_BYTES_MAX), _check)
        kind, name = _resource(asked.resource)
        if asked.operation not in RIGHTS[kind]:
            known = ", ".join(sorted(RIGHTS[kind]))
            raise problem("invalid_request", f"{asked.operation[:80]!r} is no right to a {kind}; there are: {known}")
        if asked.principal != LOCAL:
            checked(checked_principal, asked.principal)
        subject = Subject(asked.principal, tuple(asked.groups))
        decision = security.book.access.decide(subject, asked.operation, kind, name)
        return json_reply(answers.Checked(decision.allowed, decision.because))

    async def _put(self, request: Request, part: changes.Part, decoder: Any) -> Response:
        Query(request, ())
        security, part_id = asks_who(self._security), request.path_params["id"]
        expected = _if_match(request)
        wrong = names.name_problem(part_id)
        if wrong is not None:
            raise problem("invalid_request", wrong)
        value = decode(await body_of(request, BODY_BYTES_MAX), decoder)
        if isinstance(value, Entry):
            checked(checked_entry, value)
        elif isinstance(value, Quota):
            checked(checked_quota, value)
        else:
            checked(checked_binding, value)
        await begin_change(request, _KINDS[part], part_id, msgspec.json.encode(value).decode())
        change = changes.with_part(part, part_id, value, self._clock.now_us())
        return json_reply(answers.Version((await security.book.change(change, expected)).number))

    async def _delete(self, request: Request, part: changes.Part) -> Response:
        Query(request, ())
        security, part_id = asks_who(self._security), request.path_params["id"]
        change = changes.without_part(part, part_id, self._clock.now_us())
        return json_reply(answers.Version((await security.book.change(change, _if_match(request))).number))


def asks_who(security: Security | None) -> Security:
    """Raises Refused `auth_off` where nobody is asked who he is."""
    if security is None:
        raise problem(
            "auth_off", "this server asks nobody who he is: everybody may do everything; set SILT_AUTH=on for keys"
        )
    return security


def _if_match(request: Request) -> int | None:
    given = request.headers.get(_IF_MATCH)
    if given is None:
        return None
    number = given.strip().strip('"')
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise problem("invalid_parameter", f"{_IF_MATCH} is a version, such as 12", parameter=_IF_MATCH)
    return int(number)


def _resource(text: str) -> tuple[Kind, str]:
    if text == CLUSTER:
        return "cluster", CLUSTER
    kind, colon, name = text.partition(":")
    if kind not in get_args(Kind) or kind == "cluster" or not colon or not name:
        raise problem("invalid_request", f"{text[:200]!r} is no resource: write topic:NAME, group:NAME or cluster")
    return cast(Kind, kind), name


def checked(check: Any, value: Any) -> None:
    """Raises Refused `invalid_request` where the check says what is wrong with a value."""
    try:
        check(value)
    except ValueError as error:
        raise problem("invalid_request", str(error)) from None


def time_of(micros: int | None) -> str | None:
    return None if micros is None else format_us(micros)
