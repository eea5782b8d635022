"""Reads the settings: defaults < siltlog.toml < {data_dir}/settings.toml < SILT_* environment < flags.

The only module that reads the environment. A server reads once, and again where it is asked to; what is changed while
it runs goes over what was read, whatever has become of the files since.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.locations import redis_url
from siltlog.infra.process.child_environment import OF_TRACES, of_jobs, of_queries
from siltlog.infra.redaction import HIDDEN, without_password
from siltlog.infra.security.secret_file import open_to_others, read_secret
from siltlog.infra.settings.changed import changed_path, read_changed
from siltlog.infra.settings.environment import is_link, misspelt
from siltlog.infra.settings.fit import check_node
from siltlog.infra.settings.settings import SCHEDULE_PREFIX, SECRETS, ServerSettings
from siltlog.infra.settings.suggestion import nearest

Source = Literal["default", "file", "changed", "environment", "flag"]
"""`file` is siltlog.toml; `changed` is what was changed while a server ran, in settings.toml of its data directory."""
FILE_SUFFIX = "_file"
_VARIABLES = frozenset(
    (
        *(names.ENV_PREFIX + name.upper() for name in ServerSettings.model_fields),
        names.ENV_CONFIG,
        *names.ENV_OF_CLIENTS,
    )
)
_TOKENS = (names.ENV_TOKEN, names.ENV_TOKEN_FILE)


@dataclass(frozen=True, slots=True)
class Layers:
    """What each source said, the weakest first; secrets that files hold are read already."""

    file: Mapping[str, Any]
    changed: Mapping[str, Any]
    environment: Mapping[str, Any]
    flag: Mapping[str, Any]
    path: Path
    """The file of the first."""

    def values(self) -> tuple[dict[str, Any], dict[str, Source]]:
        """What holds, and where it comes from."""
        values: dict[str, Any] = {}
        sources: dict[str, Source] = dict.fromkeys(ServerSettings.model_fields, "default")
        layers: list[tuple[Source, Mapping[str, Any]]] = [
            ("file", self.file),
            ("changed", self.changed),
            ("environment", self.environment),
            ("flag", self.flag),
        ]
        for source, layer in layers:
            values |= layer
            sources |= dict.fromkeys(layer, source)
        return values, sources


class LoadedSettings:
    """The settings and where each came from (`silt config show`)."""

    def __init__(
        self, settings: ServerSettings, sources: dict[str, Source], layers: Layers, secrets: Mapping[str, str]
    ) -> None:
        """`secrets` are those that files hold."""
        self.settings = settings
        self.sources = sources
        self.layers = layers
        self._secrets = secrets

    def with_changed(self, changed: Mapping[str, Any]) -> "LoadedSettings":
        """The settings with `changed` in place of what settings.toml said; nothing is read. Raises ConfigError."""
        return _of_server(_settled(replace(self.layers, changed=changed), self._secrets, []))

    def read_again(self) -> "LoadedSettings":
        """Reads all sources again, with the same flags. Raises ConfigError."""
        return load_server(dict(self.layers.flag))

    def place(self, name: str) -> str:
        """Where a setting was set, as whoever set it knows it: a variable, a flag, a file; empty where nobody did."""
        source = self.sources[name]
        if source in ("environment", "flag"):
            return _label(name, self.sources)
        of_files = {"file": self.layers.path.absolute(), "changed": changed_path(self.settings.data_dir)}
        return str(of_files.get(source, ""))


def load(flags: dict[str, Any] | None = None) -> LoadedSettings:
    """Reads every source. Raises ConfigError that names the setting, where it came from and what it must be.

    A variable that begins as ours do and is none is an error too: a misspelt one would leave a default in place.
    """
    wrong = misspelt(os.environ, _VARIABLES)  # noqa: TID251
    path = config_path()
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    layers = Layers(_file_layer(path), {}, _environment_layer(), given, path)
    values, sources = layers.values()
    data_dir = values.get("data_dir") or ServerSettings.model_fields["data_dir"].get_default()
    if isinstance(data_dir, str | Path):
        layers = replace(layers, changed=read_changed(changed_path(Path(data_dir).expanduser().absolute())))
        values, sources = layers.values()
    secrets, problems = _read_secrets(values, sources, path)
    return _settled(layers, secrets, wrong + problems)


def load_server(flags: dict[str, Any] | None = None) -> LoadedSettings:
    """Reads every source for a server that starts or runs. Raises ConfigError as `load` does, and where nodes that
    share a root would lack what they need of each other."""
    return _of_server(load(flags))


def _of_server(loaded: LoadedSettings) -> LoadedSettings:
    try:
        check_node(loaded.settings)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return loaded


def _settled(layers: Layers, secrets: Mapping[str, str], wrong: list[str]) -> LoadedSettings:
    values, sources = layers.values()
    try:
        settings = ServerSettings(**{**values, **secrets})
    except ValidationError as error:
        wrong = wrong + [_sentence(part, sources) for part in error.errors()]
        raise ConfigError("; ".join(wrong)) from None
    if wrong:
        raise ConfigError("; ".join(wrong))
    return LoadedSettings(settings, sources, layers, secrets)


def _read_secrets(
    values: Mapping[str, Any], sources: Mapping[str, Source], config: Path
) -> tuple[dict[str, str], list[str]]:
    """The secrets that files hold; a sentence for each that cannot be read."""
    secrets: dict[str, str] = {}
    wrong = []
    for name in SECRETS:
        path = values.get(name + FILE_SUFFIX)
        if values.get(name) and sources[name] == "file":
            problem = open_to_others(config.stat())
            wrong += [f"{config} has {name}, and {problem}: chmod 600 {config}"] if problem else []
        if not path or not isinstance(path, str):
            continue
        label = _label(name + FILE_SUFFIX, sources)
        if values.get(name):
            wrong.append(f"{_label(name, sources)} and {label} are both set: unset one of them")
            continue
        try:
            secrets[name] = read_secret(Path(path).expanduser())
        except ValueError as error:
            wrong.append(f"{label}={path!r} is not valid: {error}")
    return secrets, wrong


def config_path() -> Path:
    """The file that SILT_CONFIG names, else siltlog.toml."""
    return Path(os.environ.get(names.ENV_CONFIG) or names.CONFIG_FILE)  # noqa: TID251


def _file_layer(path: Path) -> dict[str, Any]:
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
    """The environment of what a job starts, such as Java: the job's, without the token that lets it in at a server, and
    without what is for traces, which the job itself writes."""
    of_job = environment_with({})
    return {name: of_job[name] for name in of_job if name not in _TOKENS and not name.startswith(OF_TRACES)}


def environment_of_queries() -> dict[str, str]:
    """The environment of a process that runs what a caller wrote."""
    return of_queries(dict(os.environ))  # noqa: TID251


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
    where = {
        "environment": names.ENV_PREFIX + name.upper(),
        "flag": "--" + name.replace("_", "-"),
        "changed": f"{name} in {names.SETTINGS_FILE}",
    }
    job = name.removeprefix(SCHEDULE_PREFIX)
    in_file = f"{name} in {names.CONFIG_FILE}" if job == name else f"{job} in [schedule] of {names.CONFIG_FILE}"
    return where.get(sources.get(name, "default"), in_file)


def checked(values: Mapping[str, Any]) -> ServerSettings:
    """The settings of a server of these values alone, as a file would have them. Raises ConfigError."""
    nothing = Layers({}, {}, {}, {}, config_path())
    return _of_server(_settled(replace(nothing, file=values), {}, [])).settings
