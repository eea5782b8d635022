"""`/v1/access/keys`: API keys, made, replaced and revoked."""

import asyncio
import secrets

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.clock import Clock, parse_us
from siltlog.infra.errors import problem
from siltlog.infra.http.operations import NO_CONTENT, begin_change, in_path, json_answer, json_body, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.security.access import Binding, checked_binding
from siltlog.infra.security.callers.api_keys import KEY_PREFIX
from siltlog.infra.security.document import KeptKey
from siltlog.infra.security.keys import hash_of, make_key
from siltlog.infra.security.secret import PURPOSE_KEYS
from siltlog.server.access import answers, changes
from siltlog.server.access.http import (
    ADMIN,
    BODY_BYTES_MAX,
    BODY_ERRORS,
    CHANGE_ERRORS,
    asks_who,
    checked,
    time_of,
)
from siltlog.server.access.security import Security

_KEY = in_path("id", "The key's id.", example="3kTMd0Jq8xWf")

_create = msgspec.json.Decoder(answers.CreateKey)
_rotate = msgspec.json.Decoder(answers.RotateKey)


class KeysHttp:
    def __init__(self, security: Security | None, clock: Clock) -> None:
        """Without `security` authentication is off."""
        self._security = security
        self._clock = clock

    @operation(
        "POST",
        "/v1/access/keys",
        "createKey",
        "Access",
        "Make an API key",
        "The answer has the key this once; the server keeps a hash of it. `bindings` give roles to its principal, "
        "`key:` and the name.",
        access=ADMIN,
        replies={201: json_answer("The key.", answers.MadeKey)},
        body=json_body(answers.CreateKey, {"name": "etl", "bindings": [{"role": "producer", "prefix": "flights"}]}),
        errors=(*BODY_ERRORS, *CHANGE_ERRORS, "key_exists"),
        changes="in_body",
    )
    async def create(self, request: Request) -> Response:
        Query(request, ())
        security = asks_who(self._security)
        wanted = decode(await body_of(request, BODY_BYTES_MAX), _create)
        name = changes.checked_name(wanted.name)
        now_us = self._clock.now_us()
        expires_us = _expiry(wanted.expires_at, now_us)
        key = make_key(secrets.token_bytes)
        kept = KeptKey(name, hash_of(key, security.secret.key(PURPOSE_KEYS)), now_us, expires_us)
        roles = [(each.role, each.prefix) for each in wanted.bindings]
        told = msgspec.json.encode(wanted.bindings).decode()
        for role, prefix in roles:
            checked(checked_binding, Binding(KEY_PREFIX + name, role, prefix))
        await begin_change(request, "key", name, told)
        document = await security.book.change(changes.with_key(key.key_id, kept, roles, now_us))
        made = answers.MadeKey(key.key_id, name, key.text(), time_of(expires_us), document.number)
        return json_reply(made, 201)

    @operation(
        "POST",
        "/v1/access/keys/{id}/rotate",
        "rotateKey",
        "Access",
        "Replace an API key",
        "Makes another key of the same name; the old one counts for `overlap_ms` more, while its user changes over.",
        access=ADMIN,
        replies={201: json_answer("The new key.", answers.MadeKey)},
        parameters=(_KEY,),
        body=json_body(answers.RotateKey, {"overlap_ms": 86_400_000}),
        body_required=False,
        errors=(*BODY_ERRORS, *CHANGE_ERRORS, "unknown_key"),
        changes="in_path",
    )
    async def rotate(self, request: Request) -> Response:
        Query(request, ())
        security, old_id = asks_who(self._security), request.path_params["id"]
        wanted = decode(await body_of(request, BODY_BYTES_MAX) or b"{}", _rotate)
        now_us = self._clock.now_us()
        key = make_key(secrets.token_bytes)
        key_hash = hash_of(key, security.secret.key(PURPOSE_KEYS))
        change = changes.with_another(key.key_id, key_hash, old_id, now_us + wanted.overlap_ms * 1000, now_us)
        document = await security.book.change(change)
        kept = document.keys[key.key_id]
        made = answers.MadeKey(key.key_id, kept.name, key.text(), time_of(kept.expires_us), document.number)
        return json_reply(made, 201)

    @operation(
        "DELETE",
        "/v1/access/keys/{id}",
        "revokeKey",
        "Access",
        "Revoke an API key",
        "It counts no more on this node at once, and on others within seconds. With the last key of a name goes what "
        "that was given; what denies it something, or bounds it, stays. While the object store is away that is "
        "kept here and written later: 202. Where no administrator is left, the answer says so: 200 instead of 204.",
        access=ADMIN,
        replies={
            **NO_CONTENT,
            200: json_answer("Revoked, with what follows.", answers.Revoked),
            202: json_answer("Revoked here; elsewhere later.", answers.Revoked),
        },
        parameters=(_KEY,),
        errors=("auth_off", "unknown_key"),
        changes="revokes",
    )
    async def revoke(self, request: Request) -> Response:
        Query(request, ())
        security, key_id = asks_who(self._security), request.path_params["id"]
        if key_id not in security.book.document.keys and not security.book.warnings():
            raise changes.unknown_key(key_id)
        written = await asyncio.shield(security.book.revoke(key_id))
        told = changes.without_administrator(security.book.document, [key_id], self._clock.now_us())
        warnings = [told] if told else []
        if written and not warnings:
            return Response(status_code=204)
        return json_reply(answers.Revoked(key_id, written, warnings), 200 if written else 202)


def _expiry(given: str | int | None, now_us: int) -> int | None:
    if given is None:
        return None
    try:
        expires_us = given * 1000 if isinstance(given, int) else parse_us(given)
    except ValueError as error:
        raise problem("invalid_request", f"expires_at: {error}") from None
    if expires_us <= now_us:
        raise problem("invalid_request", "expires_at is in the past; the key would never count")
    return expires_us
