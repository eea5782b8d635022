"""An operation of the API: a method at a path, what it needs, takes and answers, stated above its handler.

The routes of the server and the OpenAPI document are made of the same statements.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from starlette.requests import Request

from siltlog.infra import names
from siltlog.infra.limits import INTEGER_MAX, PARTITION_MAX
from siltlog.infra.security.access import Kind, Right
from siltlog.infra.security.audit.trail import CHANGE, MAKES, Change, Changes

Schema = Mapping[str, Any]
Shape = type | Schema
"""A msgspec Struct, or a JSON Schema where no Struct says it."""
Method = Literal["DELETE", "GET", "PATCH", "POST", "PUT"]
AtOwner = Literal["no", "yes", "or_here"]
Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Need:
    """A right to what the parameter of the path with the name of `kind` names, or to the cluster.

    With several `rights` all of them are needed.
    """

    kind: Kind
    rights: tuple[Right, ...]


Access = Need | Literal["anybody", "any_caller", "filtered", "in_body"]
"""The right that a caller must have.

`anybody`: also one who did not say who he is. `any_caller`: one who did. `filtered`: the answer has only what the
caller may see. `in_body`: what is named in the body decides, so the handler asks.
"""
_MADE = 201
ANYBODY: Access = "anybody"
ANY_CALLER: Access = "any_caller"
FILTERED: Access = "filtered"
IN_BODY: Access = "in_body"

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
    """`errors` are codes of `infra/errors.py` beside those that every operation has.

    `needs` tells in words what the handler asks for beside `access`. What `changes` something is recorded. What `reads`
    answers with records, whose bytes count for quotas. What is `at_owner` is done by the node that owns the topic;
    `or_here` where that is gone.
    """

    method: Method
    path: str
    access: Access
    operation_id: str
    tag: str
    summary: str
    text: str
    replies: Mapping[int, Reply]
    parameters: Sequence[Parameter] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_required: bool = True
    errors: Sequence[str] = ()
    needs: str = ""
    changes: Changes = "nothing"
    reads: bool = False
    at_owner: AtOwner = "no"

    @property
    def needed(self) -> str:
        """Returns in words what a caller must be allowed to do."""
        access = self.access
        said = _NEEDED[access] if isinstance(access, str) else _rights(access)
        return "; ".join(part for part in (said, self.needs) if part)


_NEEDED: Mapping[str, str] = {
    "anybody": "nothing",
    "any_caller": "any principal",
    "filtered": "any principal",
    "in_body": "",
}


def _rights(need: Need) -> str:
    rights = " and ".join(f"`{right}`" for right in need.rights)
    return f"{need.kind} {rights}"


def operation(
    method: Method,
    path: str,
    operation_id: str,
    tag: str,
    summary: str,
    text: str,
    *,
    access: Access,
    replies: Mapping[int, Reply],
    parameters: Sequence[Parameter] = (),
    body: Mapping[str, Content] | None = None,
    body_required: bool = True,
    errors: Sequence[str] = (),
    needs: str = "",
    changes: Changes = "nothing",
    reads: bool = False,
    at_owner: AtOwner = "no",
) -> Callable[[Handler], Handler]:
    """States above a handler which operation it is."""
    stated = Operation(
        method,
        path,
        access,
        operation_id,
        tag,
        summary,
        text,
        replies,
        parameters,
        body or {},
        body_required,
        errors,
        needs,
        changes,
        reads,
        at_owner,
    )

    def state(handler: Handler) -> Handler:
        handler.operation = stated  # type: ignore[attr-defined]
        return handler

    return state


def operations_of(*parts: type) -> list[Operation]:
    """The operations of some classes of handlers, in the order they are written in."""
    return [stated for part in parts for _, stated in stated_of(part)]


def stated_of(part: type) -> Iterator[tuple[str, Operation]]:
    """Yields the operations of a class of handlers, each with its handler's name, in the order they are written in."""
    for name, method in vars(part).items():
        if isinstance(stated := getattr(method, "operation", None), Operation):
            yield name, stated


async def begin_change(
    request: Request, kind: Kind | Literal["key", "binding", "acl", "quota", "config"], name: str, detail: str = ""
) -> None:
    """Says what a request is about to change that its path does not name, and `detail` into what.

    Raises Unavailable `audit_unavailable`.
    """
    change: Change | None = request.scope["state"].get(CHANGE)
    if change is not None:
        await change.begin(f"{kind}/{name}", detail)


@asynccontextmanager
async def recorded_making(request: Request, kind: Kind, name: str) -> AsyncIterator[None]:
    """Records what a request makes that was not there, from before it does to how that ended.

    Raises Unavailable `audit_unavailable` before anything is made.
    """
    makes: Callable[[], Change] | None = request.scope["state"].get(MAKES)
    if makes is None:
        yield
        return
    async with makes().around(f"{kind}/{name}", _MADE):
        yield


def on_topic(*rights: Right) -> Access:
    return Need("topic", rights)


def on_group(*rights: Right) -> Access:
    return Need("group", rights)


def on_cluster(*rights: Right) -> Access:
    return Need("cluster", rights)


def in_path(name: str, text: str, schema: Schema = NAME, example: Any = None) -> Parameter:
    return Parameter(name, "path", text, schema, example, required=True)


def in_query(name: str, text: str, schema: Schema = TEXT, example: Any = None, *, required: bool = False) -> Parameter:
    return Parameter(name, "query", text, schema, example, required)


def in_header(name: str, text: str, schema: Schema = TEXT, example: Any = None) -> Parameter:
    return Parameter(name, "header", text, schema, example)


def json_answer(text: str, shape: Shape, *headers: str) -> Reply:
    return Reply(text, {names.MEDIA_JSON: Content(shape)}, headers)


def json_body(shape: Shape, example: Any) -> Mapping[str, Content]:
    return {names.MEDIA_JSON: Content(shape, example)}


NO_CONTENT = {204: Reply("Done.")}
TOPIC = in_path("topic", "The topic's name.", example="flights")
PARTITION = in_path("partition", "The partition's number.", whole(0, PARTITION_MAX), 0)
TOPIC_ID = in_query("topic_id", "Refused as unknown when the topic of that name is another than this.")
GROUP = in_path("group", "The group's name.", example="reporting")
MEMBER = in_path("member", "The member's id, which its client chose: a UUID of its own.")
LIST_QUERY = (
    in_query("prefix", "Only names that begin with this."),
    in_query("after", "Only names after this one: the last reply's `next`."),
    in_query("limit", "How many at most; more than 1,000 is cut.", cut(1, 100)),
)
