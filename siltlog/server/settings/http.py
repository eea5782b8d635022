"""`/v1/config`: the settings of this node, told and changed."""

from typing import Annotated, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from pydantic.fields import FieldInfo
from starlette.requests import Request
from starlette.responses import Response

from siltlog.infra.errors import problem
from siltlog.infra.http.operations import begin_change, in_header, json_answer, json_body, on_cluster, operation
from siltlog.infra.http.query import Query
from siltlog.infra.http.requests import body_of, decode, json_reply
from siltlog.infra.settings.changed import HOT, changed_path
from siltlog.infra.settings.loading import Source
from siltlog.infra.settings.settings import SECRETS, ServerSettings
from siltlog.server.settings.configuration import Configuration

BODY_BYTES_MAX = 64 * 1024
_IF_MATCH = "If-Match"
_ETAG = "ETag"
_MATCH = in_header(_IF_MATCH, "The version that the change is made of; refused when there is another by now.")


Unit = Literal["ms", "bytes", ""]


class SettingState(msgspec.Struct):
    """One setting of a node."""

    value: Annotated[str | int, Meta(description="What holds; of a secret only that there is one")]
    origin: Annotated[
        Source,
        Meta(description="`file` is siltlog.toml, `changed` what was changed while the server ran"),
    ]
    place: Annotated[str, Meta(description="The file, variable or flag that sets it; empty for a default")]
    restart: Annotated[bool, Meta(description="A change takes a restart to act")]
    waiting: Annotated[bool, Meta(description="It was written otherwise since, and that waits for a restart")]
    about: Annotated[str, Meta(description="What it is, in a sentence or a few")]
    default: Annotated[str | int, Meta(description="What it is where nothing sets it; empty where it is made or found")]
    unit: Annotated[Unit, Meta(description="The unit of the value; empty for what is no amount, or a number of things")]
    choices: Annotated[list[str], Meta(description="What it may be, where that is one of a few words")]


class Config(msgspec.Struct):
    """The settings of the node that answers."""

    version: Annotated[str, Meta(description="Another one after each change")]
    path: Annotated[str, Meta(description="The file of this node in which changes are kept")]
    settings: dict[str, SettingState]


class ChangeConfig(msgspec.Struct, forbid_unknown_fields=True):
    changes: Annotated[
        dict[str, int | str | None],
        Meta(description="By setting what it is to be, amounts with a unit if wanted; null takes back a change"),
    ]


_change = msgspec.json.Decoder(ChangeConfig)


class ConfigHttp:
    def __init__(self, configuration: Configuration, node_id: str) -> None:
        self._configuration = configuration
        self._node_id = node_id

    @operation(
        "GET",
        "/v1/config",
        "describeConfig",
        "Node",
        "The settings of this node",
        "Each with where it comes from and whether a change takes a restart. Secrets are not told.",
        access=on_cluster("describe"),
        replies={200: json_answer("The settings.", Config, _ETAG)},
    )
    async def describe(self, request: Request) -> Response:
        Query(request, ())
        return self._told()

    @operation(
        "PATCH",
        "/v1/config",
        "changeConfig",
        "Node",
        "Change settings of this node",
        "All of them or none; they hold at once, and after a restart: they are kept in settings.toml of the data "
        "directory, over siltlog.toml and under the environment and flags. Five changes a minute.",
        access=on_cluster("alter"),
        replies={200: json_answer("They hold.", Config, _ETAG)},
        parameters=(_MATCH,),
        body=json_body(ChangeConfig, {"changes": {"flush_ms": 500, "log_level": None}}),
        errors=(
            *("malformed_body", "request_timeout", "request_too_large", "invalid_request", "invalid_config"),
            *("overridden", "needs_restart", "config_changed", "rate_limited", "disk_full"),
        ),
        changes="in_body",
    )
    async def change(self, request: Request) -> Response:
        Query(request, ())
        expected = _if_match(request)
        wanted = decode(await body_of(request, BODY_BYTES_MAX), _change)

        async def record(told: str) -> None:
            await begin_change(request, "config", self._node_id, told)

        await self._configuration.change(wanted.changes, expected, record)
        return self._told()

    def _told(self) -> Response:
        configuration = self._configuration
        settings = {}
        for name, field in ServerSettings.model_fields.items():
            origin, place = configuration.source(name)
            value, waits = configuration.told(name), configuration.waits(name)
            settings[name] = SettingState(value, origin, place, name not in HOT, waits, *_described(name, field))
        path = changed_path(configuration.settings.data_dir)
        document = Config(configuration.version, str(path), settings)
        return json_reply(document, headers={_ETAG: f'"{configuration.version}"'})


def _described(name: str, field: FieldInfo) -> tuple[str, str | int, Unit, list[str]]:
    """Tells what a setting is: its description, its default, its unit, and the words that it may be."""
    default = field.default
    told = default if isinstance(default, int) else "" if name in SECRETS else str(default)
    choices = list(get_args(field.annotation)) if get_origin(field.annotation) is Literal else []
    unit: Unit = "ms" if "ms" in name.split("_") else "bytes" if "bytes" in name.split("_") else ""
    return " ".join((field.description or "").split()), told, unit, choices


def _if_match(request: Request) -> str | None:
    given = request.headers.get(_IF_MATCH)
    if given is None or given.strip() == "*":
        return None
    version = given.strip().removeprefix("W/").strip('"')
    if not version:
        raise problem("invalid_parameter", f"{_IF_MATCH} is a version, as GET /v1/config says it", parameter=_IF_MATCH)
    return version
