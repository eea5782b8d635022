"""Reads the settings: defaults < siltlog.toml < SILT_* environment < flags. Once.

The only module that reads the environment.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from siltlog.infra import names
from siltlog.infra.child_environment import of_jobs
from siltlog.infra.errors import ConfigError
from siltlog.infra.locations import redis_url
from siltlog.infra.redaction import HIDDEN, without_password
from siltlog.infra.secret_file import open_to_others, read_secret
from siltlog.infra.settings.environment import is_link, misspelt
from siltlog.infra.settings.settings import SCHEDULE_PREFIX, SECRETS, ServerSettings
from siltlog.infra.settings.suggestion import nearest

Source = Literal["default", "file", "environment", "flag"]
FILE_SUFFIX = "_file"
_VARIABLES = frozenset(
    (
        *(names.ENV_PREFIX + name.upper() for name in ServerSettings.model_fields),
        names.ENV_CONFIG,
        *names.ENV_OF_CLIENTS,
    )
)
_TOKENS = (names.ENV_TOKEN, names.ENV_TOKEN_FILE)


class LoadedSettings:
    """The settings and where each came from (`silt config show`)."""

    def __init__(self, settings: ServerSettings, sources: dict[str, Source]) -> None:
        self.settings = settings
        self.sources = sources


def load(flags: dict[str, Any] | None = None) -> LoadedSettings:
    """Reads every source. Raises ConfigError that names the setting, where it came from and what it must be.

    A variable that begins as ours do and is none is an error too: a misspelt one would leave a default in place.
    """
    wrong = misspelt(os.environ, _VARIABLES)  # noqa: TID251
    layers: list[tuple[Source, dict[str, Any]]] = [
        ("file", _file_layer()),
        ("environment", _environment_layer()),
        ("flag", {name: value for name, value in (flags or {}).items() if value is not None}),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, Source] = dict.fromkeys(ServerSettings.model_fields, "default")
    for source, layer in layers:
        for name, value in layer.items():
            values[name] = value
            sources[name] = source
    wrong += _read_secrets(values, sources)
    try:
        settings = ServerSettings(**values)
    except ValidationError as error:
        wrong += [_sentence(part, sources) for part in error.errors()]
    if wrong:
        raise ConfigError("; ".join(wrong))
    return LoadedSettings(settings, sources)


def _read_secrets(values: dict[str, Any], sources: Mapping[str, Source]) -> list[str]:
    """Puts the secrets that files hold into `values`; a sentence for each that cannot be."""
    wrong = []
    for name in SECRETS:
        path = values.get(name + FILE_SUFFIX)
        if values.get(name) and sources[name] == "file":
            problem = open_to_others(config_path().stat())
            wrong += [f"{config_path()} has {name}, and {problem}: chmod 600 {config_path()}"] if problem else []
        if not path or not isinstance(path, str):
            continue
        label = _label(name + FILE_SUFFIX, sources)
        if values.get(name):
            wrong.append(f"{_label(name, sources)} and {label} are both set: unset one of them")
            continue
        try:
            values[name] = read_secret(Path(path).expanduser())
        except ValueError as error:
            wrong.append(f"{label}={path!r} is not valid: {error}")
    return wrong


def config_path() -> Path:
    """The file that SILT_CONFIG names, else siltlog.toml."""
    return Path(os.environ.get(names.ENV_CONFIG) or names.CONFIG_FILE)  # noqa: TID251


def _file_layer() -> dict[str, Any]:
    path = config_path()
    if not path.exists():
        if os.environ.get(names.ENV_CONFIG):  # noqa: TID251
            raise ConfigError(f"SILT_CONFIG names {path}, which does not exist")
        return {}
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    times = content.get("schedule")
    if isinstance(times, dict):
        del content["schedule"]
        content |= {SCHEDULE_PREFIX + job: value for job, value in times.items()}
    return content


def _environment_layer() -> dict[str, Any]:
    layer: dict[str, Any] = {}
    for field in ServerSettings.model_fields:
        value = os.environ.get(names.ENV_PREFIX + field.upper())  # noqa: TID251
        if value:
            layer[field] = value
    return layer


def variable(name: str) -> str | None:
    """An environment variable that is not Siltlog's own (JAVA_HOME, XDG_CACHE_HOME); None when unset or empty."""
    return os.environ.get(name) or None  # noqa: TID251


def environment_with(values: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job: of this process's what it needs, which no secret of a server is, and `values`."""
    secret = {names.ENV_PREFIX + f"{name}{end}".upper() for name in SECRETS for end in ("", FILE_SUFFIX)}
    kept = of_jobs(dict(os.environ), _VARIABLES - secret)  # noqa: TID251
    url = f"{names.ENV_PREFIX}REDIS_URL"
    if url in kept:
        try:
            kept[url] = redis_url(kept[url])
        except ValueError:
            del kept[url]
    return {**kept, **values}


def environment_of_programs() -> dict[str, str]:
    """The environment of what a job starts, such as Java: the job's, without the token that lets it in at a server."""
    return {name: value for name, value in environment_with({}).items() if name not in _TOKENS}


def not_for_programs() -> list[str]:
    """The variables of this process that what a job starts must not see."""
    return [name for name in os.environ.keys() - environment_of_programs().keys() if name]  # noqa: TID251


def shown(name: str, value: Any) -> Any:
    """The value of a setting as it may be told: what is shown is copied into bug reports."""
    if name in SECRETS:
        return HIDDEN if value else ""
    return without_password(value) if (isinstance(value, str) and "@" in value) or name == "redis_url" else value


def _sentence(part: Any, sources: dict[str, Source]) -> str:
    if not part["loc"]:
        return str(part["msg"]).removeprefix("Value error, ")
    name = str(part["loc"][0])
    source = sources.get(name, "default")
    job = name.removeprefix(SCHEDULE_PREFIX)
    label = _label(name, sources)
    if part["type"] == "extra_forbidden":
        meant = nearest(name, ServerSettings.model_fields)
        hint = f"did you mean {meant.removeprefix(SCHEDULE_PREFIX if job != name else '')}?" if meant else ""
        return f"{label} is not a setting; {hint or 'see `silt serve --help`'}"
    value = part["input"]
    if name == "port" and source == "environment" and is_link(str(value)):
        return (
            f"{label}={value!r} is not a port: Kubernetes sets it in every pod beside a service called silt; write "
            "enableServiceLinks: false in the spec of the pod, or give the service another name"
        )
    message = str(part["msg"]).removeprefix("Value error, ")
    return f"{label}={shown(name, value)!r} is not valid: {message}"


def _label(name: str, sources: Mapping[str, Source]) -> str:
    """A setting as whoever set it knows it."""
    where = {"environment": names.ENV_PREFIX + name.upper(), "flag": "--" + name.replace("_", "-")}
    job = name.removeprefix(SCHEDULE_PREFIX)
    in_file = f"{name} in {names.CONFIG_FILE}" if job == name else f"{job} in [schedule] of {names.CONFIG_FILE}"
    return where.get(sources.get(name, "default"), in_file)
