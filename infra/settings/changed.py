"""`settings.toml` of the data directory: what was changed while the server ran.

It is over siltlog.toml, which is its owner's to write, and under the environment and flags, which cannot change while a
process runs. It holds hot settings alone: what takes a start to act belongs where whoever starts a server looks.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from siltlog.infra import names
from siltlog.infra.errors import ConfigError

HOT = frozenset(
    (
        *("cors_origins", "hosts"),
        *("connections_max", "connections_per_ip_max", "tails_max"),
        *("request_bytes_max", "request_timeout_ms", "record_bytes_max"),
        *("head_bytes_max", "wal_bytes_max"),
        *("flush_ms", "flush_bytes", "flush_files_per_hour", "burst_ms", "requests_budget"),
        *("schedule", "schedule_compact", "schedule_retain", "schedule_vacuum", "schedule_audit"),
        "schedule_catalog",
        *("drain_ms", "log_level", "log_format", "access_log"),
    )
)
"""The settings that act at once when they are changed; for all others a server has to be started again."""
_HEAD = """\
# Written by the server: what was changed while it ran, by `silt config set` or PATCH /v1/config.
# It is over siltlog.toml, and under SILT_* variables and flags. `silt config unset` takes a line out.
"""


def changed_path(data_dir: Path) -> Path:
    return data_dir / names.SETTINGS_FILE


def read_changed(path: Path) -> dict[str, Any]:
    """Raises ConfigError where it is there and cannot be read, or holds what does not belong there."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:
        if not os.access(path.parent, os.X_OK):
            # The data directory of somebody else, in which nothing can be seen.
            return {}
        raise ConfigError(f"{path} cannot be read: give it to the user who runs the server") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; mend it, or remove it to take all changes back") from None
    strange = sorted(content.keys() - HOT)
    if strange:
        raise ConfigError(
            f"{path} has {strange[0]}, which is no setting that a server takes while it runs: remove the line, and "
            f"write it in {names.CONFIG_FILE} if it is a setting"
        )
    return content


def changed_text(changed: Mapping[str, Any]) -> str:
    """Writes settings as TOML: numbers, and strings, which JSON writes as TOML does but for one character."""
    lines = [f"{name} = {_toml(value)}" for name, value in sorted(changed.items())]
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _toml(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
