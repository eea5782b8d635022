"""`silt config`: the server's settings, and where each came from."""

import os
import re
from pathlib import Path
from typing import Any

import click

from siltlog.cli.output import grid
from siltlog.cli.server_options import take_settings
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, output_option, pass_session
from siltlog.infra import names


@click.group()
def config() -> None:
    """The settings of a server started here: show them, check them."""


@config.command(epilog="Example:  SILT_PORT=7171 silt config show")
@output_option
@pass_session
def show(session: Session) -> None:
    """Show every setting, its value and where it came from.

    Defaults are overruled by siltlog.toml (or the file SILT_CONFIG names), that by SILT_* variables, those by flags of
    `silt serve`.
    """
    loaded = take_settings({})
    values = {name: _without_password(value) for name, value in loaded.settings.model_dump(mode="json").items()}
    rows = [
        {
            "setting": name,
            "value": str(value),
            "source": loaded.sources[name],
            "variable": names.ENV_PREFIX + name.upper(),
        }
        for name, value in values.items()
    ]
    session.output.document(
        {"settings": {name: {"value": value, "source": loaded.sources[name]} for name, value in values.items()}},
        value=[f"{names.ENV_PREFIX}{name.upper()}={value}" for name, value in values.items()],
        tables=[grid(rows, ("setting", "value", "source", "variable"))],
    )


@config.command(epilog="Example:  silt config check && silt serve")
@output_option
@pass_session
def check(session: Session) -> int:
    """Check the settings and the data directory; exit status 3 when something is wrong."""
    problems: list[str] = []
    try:
        settings = take_settings({}).settings
    except click.UsageError as error:
        problems.append(error.format_message())
    else:
        problems += _directory_problems(settings.data_dir)
    session.output.document(
        {"ok": not problems, "problems": problems},
        value=problems,
        tables=[grid([{"result": text} for text in problems or ["the settings are valid"]], ("result",))],
    )
    return EXIT_FOUND_WRONG if problems else 0


def _without_password(value: Any) -> Any:
    """What is shown is copied into bug reports: `redis://user:password@host` keeps its password to itself."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", value) if isinstance(value, str) else value


def _directory_problems(data_dir: Path) -> list[str]:
    """Why a server could not keep its data there. Creates nothing."""
    nearest = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    if not nearest.is_dir():
        return [f"data_dir {data_dir}: {nearest} is a file; name a directory by SILT_DATA_DIR"]
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        return [f"data_dir {data_dir}: no permission to write in {nearest}; change its owner, or set SILT_DATA_DIR"]
    return []
