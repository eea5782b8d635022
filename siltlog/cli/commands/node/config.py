"""`silt config`: the server's settings, where each came from, what changes while it runs, a file to write them in."""

from pathlib import Path

import click

from siltlog.cli.output import grid, pairs
from siltlog.cli.server_options import take_settings
from siltlog.cli.session import EXIT_FOUND_WRONG, Session, client_options, needs, output_option, pass_session
from siltlog.infra import names
from siltlog.infra.client.calls import Document
from siltlog.infra.errors import ConfigError


@click.group()
def config() -> None:
    """The settings of a server: show them, change them while it runs, check them, begin a file of them."""


@config.command(epilog="Example:  SILT_PORT=7171 silt config show")
@click.option("--running", is_flag=True, help="Of the server that runs at --url, not of one that is started here.")
@client_options
@pass_session
def show(session: Session, running: bool) -> None:
    """Show every setting, its value and where it came from.

    Defaults are overruled by siltlog.toml (or the file SILT_CONFIG names), that by what was changed while a server ran
    (settings.toml of its data directory), that by SILT_* variables, those by flags of `silt serve`.
    """
    if running:
        with session.admin() as admin:
            _print_running(session, admin.config())
        return
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


def _print_running(session: Session, document: Document) -> None:
    rows = [
        {
            "setting": name,
            "value": str(one["value"]),
            "source": one["place"] or one["origin"],
            "change": "takes a restart" if one["restart"] else "at once",
        }
        for name, one in document["settings"].items()
    ]
    waiting = [name for name, one in document["settings"].items() if one["waiting"]]
    told = {"version": document["version"], "waiting for a restart": ", ".join(waiting) or "nothing"}
    session.output.document(
        document,
        value=[f"{row['setting']}={row['value']}" for row in rows],
        tables=[grid(rows, ("setting", "value", "source", "change")), pairs(told)],
    )


_VERSION = click.option("--version", help="Only if this is still the version, as `silt config show --running` says it.")


@config.command("set", epilog="Example:  silt config set flush_ms=500ms connections_max=20000")
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
@_VERSION
@client_options
@pass_session
def set_(session: Session, changes: tuple[str, ...], version: str | None) -> None:
    """Change settings of the server that runs at --url, all of them or none.

    They act at once, and after a restart. Most settings take a restart instead: those are refused.
    """
    wanted: dict[str, int | str | None] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{change!r} is no change: write NAME=VALUE, such as flush_ms=500ms")
        if name in wanted:
            raise click.UsageError(f"{name} is there twice")
        wanted[name] = value
    _change(session, wanted, version)


@config.command(epilog="Example:  silt config unset flush_ms")
@click.argument("settings", metavar="NAME...", nargs=-1, required=True)
@_VERSION
@client_options
@pass_session
def unset(session: Session, settings: tuple[str, ...], version: str | None) -> None:
    """Take changes of the server that runs at --url back: what siltlog.toml says holds again, else the default."""
    _change(session, dict.fromkeys(settings), version)


def _change(session: Session, changes: dict[str, int | str | None], version: str | None) -> None:
    with session.admin() as admin:
        document = admin.change_config(changes, version)
    held = {name: document["settings"][name]["value"] for name in changes}
    told = [f"{name}={value}" for name, value in held.items()]
    session.output.document({"version": document["version"], "settings": held}, value=told, tables=[pairs(held)])


@config.command(epilog="Example:  silt config check && silt serve")
@output_option
@pass_session
def check(session: Session) -> int:
    """Check the settings and the data directory; exit status 3 when something is wrong."""
    problems: list[str] = []
    try:
        settings = take_settings({}, serves=True).settings
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
