"""`silt config`: the server's settings, where each came from, and a file to write them in."""

from pathlib import Path

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.server_options import take_settings
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, needs, output_option, pass_session
from siltlog.infra import names
from siltlog.infra.errors import ConfigError


@click.group()
def config() -> None:
    """The settings of a server started here: show them, check them, begin a file of them."""


@config.command(epilog="Example:  SILT_PORT=7171 silt config show")
@output_option
@pass_session
def show(session: Session) -> None:
    """Show every setting, its value and where it came from.

    Defaults are overruled by siltlog.toml (or the file SILT_CONFIG names), that by SILT_* variables, those by flags of
    `silt serve`.
    """
    loaded = take_settings({})
    from siltlog.infra.settings.loading import shown

    values = {name: shown(name, value) for name, value in loaded.settings.model_dump(mode="json").items()}
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
        with needs("server", "silt config check"):
            from siltlog.doctor.machine import directory_problem
            from siltlog.server.listener import listening_problems
        problems += filter(None, [directory_problem(settings.data_dir)])
        problems += listening_problems(settings)
    session.output.document(
        {"ok": not problems, "problems": problems},
        value=problems,
        tables=[grid([{"result": text} for text in problems or ["the settings are valid"]], ("result",))],
    )
    return EXIT_FOUND_WRONG if problems else 0


@config.command(epilog="Example:  silt config init && silt config show")
@click.option(
    "--path", type=click.Path(dir_okay=False, path_type=Path), help="Default: SILT_CONFIG, else siltlog.toml."
)
@output_option
@pass_session
def init(session: Session, path: Path | None) -> None:
    """Write a file with every setting and what it means, each as it is by default; an existing file is kept."""
    with needs("server", "silt config init"):
        from siltlog.infra.settings.file import settings_file
        from siltlog.infra.settings.loading import config_path
    path = path or config_path()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_file())
    except FileExistsError:
        raise ConfigError(f"{path} exists, and is kept as it is; name another by --path") from None
    session.output.document({"path": str(path)}, value=[str(path)], tables=[pairs({"written": str(path)})])
