"""The reference of settings, made of those that a server and a topic have."""

from typing import Any

from annotated_types import Ge, Le

from siltlog.infra import names
from siltlog.infra.settings.changed import HOT
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.settings.topic_config import SETTINGS, Setting

_HEAD = """# Settings

A server takes them from `siltlog.toml` (or the file that `SILT_CONFIG` names), over that from variables of its
environment, over that from flags of `silt serve`. What is marked *hot* can be changed
[while the server runs](../operations.md#settings-while-it-runs). In the file a name has no prefix and small letters:
`SILT_FLUSH_MS=500` is `flush_ms = 500`. Amounts may have units: `30s`, `7d`, `4GB`, `64MiB`. What begins with `SILT_`
and is no setting stops a server, and the nearest name is said. `silt config show` lists them with where each came from,
`silt config init` begins a file of them.

## Of a server

| variable | default | |
|---|---|---|
"""
_TOPICS = """
## Of a topic

By `silt topic create --config NAME=VALUE`, `silt topic alter`, or `PATCH /v1/topics/{topic}`; what a topic does not say
itself is as the server says, and else as here. `-1` is without limit where it is allowed.

| name | default | allowed | |
|---|---|---|---|
"""


def page() -> str:
    """Writes a row for each setting."""
    servers = "".join(_server_row(name, field) for name, field in ServerSettings.model_fields.items())
    topics = "".join(_topic_row(name, setting) for name, setting in SETTINGS.items())
    return _HEAD + servers + _TOPICS + topics


def _server_row(name: str, field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    shown = getattr(default, "get_secret_value", lambda: default)()
    bounds = [f"at least {one.ge}" for one in field.metadata if isinstance(one, Ge)]
    bounds += [f"at most {one.le}" for one in field.metadata if isinstance(one, Le)]
    choices = ", ".join(f"`{one}`" for one in getattr(field.annotation, "__args__", ()) if isinstance(one, str))
    more = "; ".join(filter(None, [choices, " and ".join(bounds)]))
    meaning = " ".join((field.description or "").split())
    hot = " *hot*" if name in HOT else ""
    return f"| `{names.ENV_PREFIX}{name.upper()}` | {_code(shown)} | {meaning}{f' ({more})' if more else ''}{hot} |\n"


def _topic_row(name: str, setting: Setting) -> str:
    allowed = ", ".join(f"`{one}`" for one in setting.choices) or f"from {setting.minimum}"
    return f"| `{name}` | {_code(setting.default)} | {allowed} | {setting.meaning} |\n"


def _code(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return f"`{text}`" if text else ""
