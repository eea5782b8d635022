"""What the document says of one operation: one method at one path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from siltlog.infra import names
from siltlog.infra.http.requests import INTEGER_MAX

Schema = Mapping[str, Any]
Shape = type | Schema
"""A msgspec Struct, or a JSON Schema where no Struct says it."""
Method = Literal["DELETE", "GET", "PATCH", "POST", "PUT"]

NAME: Schema = {"type": "string", "pattern": f"^{names.NAME_PATTERN.pattern}$"}
TEXT: Schema = {"type": "string"}
TIME: Schema = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}]}
ANYTHING: Schema = {}


def whole(minimum: int = 0, maximum: int = INTEGER_MAX, default: int | None = None) -> Schema:
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return schema if default is None else {**schema, "default": default}


def cut(minimum: int, default: int) -> Schema:
    """A whole number of which too much is cut rather than refused."""
    return {"type": "integer", "minimum": minimum, "default": default}


def choice(*choices: str, default: str | None = None) -> Schema:
    schema = {"type": "string", "enum": list(choices)}
    return schema if default is None else {**schema, "default": default}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: Literal["path", "query", "header"]
    text: str
    schema: Schema
    example: Any = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """A body of one media type, one way or the other; `example` is a JSON value or the text of the body."""

    shape: Shape
    example: Any = None


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: Sequence[str] = ()
    """Names of `document.HEADERS`."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`errors` are codes of `infra/errors.py` beside those that every operation has."""

    method: Method
    path: str
    operation_id: str
    tag: str
    summary: str
    text: str
    replies: Mapping[int, Reply]
    parameters: Sequence[Parameter] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_required: bool = True
    errors: Sequence[str] = ()


def path(name: str, text: str, schema: Schema = NAME, example: Any = None) -> Parameter:
    return Parameter(name, "path", text, schema, example, required=True)


def query(name: str, text: str, schema: Schema = TEXT, example: Any = None, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", text, schema, example, required)


def header(name: str, text: str, schema: Schema = TEXT, example: Any = None) -> Parameter:
    return Parameter(name, "header", text, schema, example)


def json_reply(text: str, shape: Shape, *headers: str) -> Reply:
    return Reply(text, {names.MEDIA_JSON: Content(shape)}, headers)


def json_body(shape: Shape, example: Any) -> Mapping[str, Content]:
    return {names.MEDIA_JSON: Content(shape, example)}


NO_CONTENT = {204: Reply("Done.")}
TOPIC = path("topic", "The topic's name.", example="flights")
GROUP = path("group", "The group's name.", example="reporting")
MEMBER = path("member", "The member's id, which its client chose: a UUID of its own.")
LIST_QUERY = (
    query("prefix", "Only names that begin with this."),
    query("after", "Only names after this one: the last reply's `next`."),
    query("limit", "How many at most; more than 1,000 is cut.", cut(1, 100)),
)
