"""The text of a `siltlog.toml`: every setting with its meaning, as it is by default and commented out."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from siltlog.infra import names
from siltlog.infra.settings.kinds import OFF
from siltlog.infra.settings.settings import SCHEDULE_PREFIX, ServerSettings

SCHEDULE = "schedule"
WIDTH = 100
HEAD = f"""\
# Settings of a Siltlog server. What stands here is overruled by {names.ENV_PREFIX}* variables, and those by flags.
# `silt config show` says what holds, and why; `silt config check` what is wrong.
# Times may have a unit ("7d", "1h30m", "500ms") and sizes too ("64MiB", "4GB"), in quotes then.
"""


def settings_file(chosen: Mapping[str, int | str] | None = None) -> str:
    """Writes settings as TOML, in the order of `ServerSettings`, the schedule as a table at the end.

    Those `chosen` hold as they are there; `schedule` itself is none of them.
    """
    given = chosen or {}
    has_times = any(name.startswith(SCHEDULE_PREFIX) for name in given)
    plain, times = [HEAD], [f"{'' if has_times else '# '}[schedule]\n"]
    for name, field in ServerSettings.model_fields.items():
        if name == SCHEDULE:
            # In a file it is a word or the table of times: TOML has one value for a name.
            times.insert(
                0, f'# {field.description}\n# `{name} = "{OFF}"`, in place of the table, leaves them to others.'
            )
            continue
        into, key = (times, name.removeprefix(SCHEDULE_PREFIX)) if name.startswith(SCHEDULE_PREFIX) else (plain, name)
        meaning = textwrap.indent(textwrap.fill(field.description or "", WIDTH), "# ")
        line = f"{key} = {_toml(given[name])}" if name in given else f"# {key} = {_toml(field.get_default())}"
        into.append(f"{meaning}\n{line}\n")
    return "\n".join([*plain, *times])


def _toml(value: Any) -> str:
    """Numbers, and strings of printable characters, which JSON writes as TOML does."""
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
