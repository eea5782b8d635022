"""The OpenAPI 3.1 document, made of the operations, the Structs they name, and the one table of errors."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from siltlog.infra import names
from siltlog.infra.errors import KINDS
from siltlog.infra.http.answers import Problem
from siltlog.infra.http.operations import (
    ANYBODY,
    Content,
    Operation,
    Parameter,
    Reply,
    in_header,
)

TAGS = {
    "Publish": "Records in, acknowledged, exactly once where asked for.",
    "Read": "Records out, from the newest to the oldest.",
    "Push": "Records as they come, for browsers and curl, and over WebSockets.",
    "Topics": "Each is a Delta table.",
    "Groups": "The server assigns partitions; heartbeats carry the assignment.",
    "Jobs": "What compaction, retention and the others did, and when they run next.",
    "Access": "Who may do what: API keys, roles, entries and quotas.",
    "Node": "Health, metrics, limits.",
}
TEXT = """\
A log that settles into Delta: records are acknowledged from a local write-ahead log, and seconds later they are rows
of an open Delta table.

Replies, enums and error codes may grow within `/v1`: clients ignore what they do not know. Unknown query parameters
are refused with 400, unknown members of a request with 422. Times come in as RFC 3339 with an offset or as
integer milliseconds, and go out as RFC 3339 in UTC with microseconds. `HEAD` is there where `GET` is."""

_SCHEME_TEXT = (
    "An API key. Asked for where the server has `SILT_AUTH=on`; elsewhere everybody may do everything. The page at "
    "`/ui/` has the cookie of its login instead, which counts for nothing but that page."
)
EVERYWHERE = (
    "invalid_parameter",
    "credential_in_url",
    "origin_not_allowed",
    "tls_required",
    "unknown_host",
    "rate_limited",
    "internal",
    "overloaded",
)
"""Error codes that any operation may answer, whatever it does."""
OF_CALLERS = ("unauthenticated", "forbidden", "csrf", "page_only_shows", "access_unavailable", "identity_unavailable")
"""Error codes of every operation that is not for anybody; two of them only by the login of the page."""
OF_CHANGES = ("audit_unavailable",)
"""Error codes of every operation that changes something that is recorded."""
OF_PATHS = ("not_found",)
"""Error codes that any operation with a name in its path may answer too."""
OF_OWNERS = ("not_owner", "owner_away", "topic_unavailable", "ack_timeout")
"""Error codes of every operation that the owner of a topic does."""
RETRYING = (429, 503, 507)
_ASKING = {401: ("WWW-Authenticate",)}
_SCHEME = "bearer"

HEADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    names.HEADER_REQUEST_ID: ("Names the request in problems and in the server's log.", {"type": "string"}),
    names.HEADER_VIEW: ("In a cluster: the newest view that the node knows; views only rise.", {"type": "integer"}),
    names.HEADER_NEXT_OFFSET: ("Read on from here.", {"type": "integer"}),
    names.HEADER_LOG_START_OFFSET: ("The lowest offset that is left.", {"type": "integer"}),
    names.HEADER_TABLE_OFFSET: ("Everything below it is in the Delta table.", {"type": "integer"}),
    names.HEADER_HIGH_WATERMARK: ("Everything below it is visible.", {"type": "integer"}),
    "WWW-Authenticate": ("How to say who one is.", {"type": "string"}),
    "Set-Cookie": ("The session of the page.", {"type": "string"}),
    "ETag": ("The version of what was answered, for If-Match.", {"type": "string"}),
    "Location": ("The path of what was created.", {"type": "string"}),
    "Retry-After": ("Whole seconds to wait before trying again.", {"type": "integer"}),
}
_ROUTE = in_header(
    names.HEADER_ROUTE,
    "In a cluster: `direct` asks to be told which node owns the topic (421) where another does, instead of being "
    "answered by way of this one.",
)
_SCHEMAS = "#/components/schemas/"


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The document of these operations, in their order."""
    schemas = _Schemas(operations)
    errors = _Errors()
    paths: dict[str, dict[str, Any]] = {}
    for stated in operations:
        paths.setdefault(stated.path, {})[stated.method.lower()] = _operation(stated, schemas, errors)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Siltlog",
            "version": version("siltlog"),
            "description": TEXT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "responses": dict(sorted(errors.components.items())),
            "headers": {name: {"description": text, "schema": schema} for name, (text, schema) in HEADERS.items()},
            "securitySchemes": {_SCHEME: {"type": "http", "scheme": _SCHEME, "description": _SCHEME_TEXT}},
        },
    }


def encoded(whole: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(whole), indent=1)


class _Schemas:
    """The Structs that operations name, as components."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        structs = {
            content.shape: None
            for operation in operations
            for content in (*operation.body.values(), *_contents(operation.replies.values()))
            if isinstance(content.shape, type)
        }
        structs[Problem] = None
        _, components = msgspec.json.schema_components(list(structs), ref_template=_SCHEMAS + "{name}")
        self.components = {name: _portable(schema) for name, schema in components.items()}

    def of(self, content: Content) -> dict[str, Any]:
        shape = content.shape
        schema = {"$ref": _SCHEMAS + shape.__name__} if isinstance(shape, type) else _portable(shape)
        if content.example is None:
            return {"schema": schema}
        return {"schema": schema, "example": content.example}


class _Errors:
    """One response for each set of codes that an operation answers with one status."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}

    def of(self, codes: Sequence[str]) -> dict[str, str]:
        """A reference to the response of `codes`, which have one status."""
        name = ".".join(codes)
        self.components.setdefault(name, self._response(codes))
        return {"$ref": f"#/components/responses/{name}"}

    def response(self, codes: Sequence[str]) -> dict[str, Any]:
        return self._response(codes)

    @staticmethod
    def _response(codes: Sequence[str]) -> dict[str, Any]:
        status = KINDS[codes[0]].status
        assert all(KINDS[code].status == status for code in codes)
        code = {"type": "string", "x-extensible-enum": list(codes)}
        schema = {"allOf": [{"$ref": _SCHEMAS + "Problem"}, {"properties": {"error_code": code}}]}
        return {
            "description": "\n".join(f"- `{code}`: {KINDS[code].title}." for code in codes),
            "headers": _headers([*(["Retry-After"] if status in RETRYING else []), *_ASKING.get(status, ())]),
            "content": {names.MEDIA_PROBLEM: {"schema": schema}},
        }


def _operation(operation: Operation, schemas: _Schemas, errors: _Errors) -> dict[str, Any]:
    responses = {status: _reply(reply, schemas) for status, reply in operation.replies.items()}
    for status, codes in _by_status(operation).items():
        if status in responses:
            also = errors.response(codes)
            responses[status]["content"] |= also["content"]
            responses[status]["description"] += "\n" + also["description"]
        else:
            responses[status] = errors.of(codes)
    said: dict[str, Any] = {
        "operationId": operation.operation_id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.text}\n\nNeeds {operation.needed}.",
        "security": [{_SCHEME: []}] if operation.access != ANYBODY else [],
    }
    parameters = [*operation.parameters, *([] if operation.at_owner == "no" else [_ROUTE])]
    if parameters:
        said["parameters"] = [_parameter(parameter) for parameter in parameters]
    if operation.body:
        content = {media: schemas.of(each) for media, each in operation.body.items()}
        said["requestBody"] = {"required": operation.body_required, "content": content}
    return {**said, "responses": {str(status): responses[status] for status in sorted(responses)}}


def _by_status(operation: Operation) -> dict[int, list[str]]:
    of_callers = () if operation.access == ANYBODY else OF_CALLERS
    of_changes = () if operation.changes == "nothing" else OF_CHANGES
    of_owners = () if operation.at_owner == "no" else OF_OWNERS
    of_paths = OF_PATHS if "{" in operation.path else ()
    wanted = {*EVERYWHERE, *of_callers, *of_changes, *of_owners, *of_paths, *operation.errors}
    found: dict[int, list[str]] = {}
    for code, kind in KINDS.items():
        if code in wanted:
            found.setdefault(kind.status, []).append(code)
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.text,
        "required": parameter.required,
        "schema": _portable(parameter.schema),
    }
    return said if parameter.example is None else {**said, "example": parameter.example}


def _reply(reply: Reply, schemas: _Schemas) -> dict[str, Any]:
    said: dict[str, Any] = {"description": reply.text, "headers": _headers(reply.headers)}
    if reply.content:
        said["content"] = {media: schemas.of(content) for media, content in reply.content.items()}
    return said


def _headers(own: Iterable[str]) -> dict[str, Any]:
    everywhere = (names.HEADER_REQUEST_ID, names.HEADER_VIEW)
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*everywhere, *own)}


def _contents(replies: Iterable[Reply]) -> Iterable[Content]:
    return [content for reply in replies for content in reply.content.values()]


def _portable(schema: Any) -> Any:
    r"""A schema for others than Python: `\Z` of a pattern is `$` in ECMA-262, titles that repeat a name go, and so does
    the indentation of docstrings, which they have before Python 3.13."""
    if isinstance(schema, Mapping):
        kept = {
            name: _portable(value) for name, value in schema.items() if name != "title" or not isinstance(value, str)
        }
        if isinstance(kept.get("pattern"), str):
            kept["pattern"] = kept["pattern"].replace("\\Z", "$")
        if isinstance(kept.get("description"), str):
            kept["description"] = inspect.cleandoc(kept["description"])
        return kept
    if isinstance(schema, list | tuple):
        return [_portable(value) for value in schema]
    return schema
