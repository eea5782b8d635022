"""The server's settings as flags: one `--flag` for each that is no secret, found when a command needs them."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import click

from siltlog.cli.session import Extra, command_said, needs
from siltlog.infra import names
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.units import unit_kind

if TYPE_CHECKING:
    from siltlog.infra.settings.loading import LoadedSettings

_PREFIX = "setting_"


class ServerCommand(click.Command):
    """A command whose options are its own and every server setting, but for secrets."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        return [*own[:-1], *_settings_as_options(), own[-1]]  # --help stays the last


def take_settings(values: dict[str, Any], extra: Extra = "server", *, serves: bool = False) -> "LoadedSettings":
    """Reads the settings of every source, flags included; what is wrong with one is a usage error (exit 2).

    `extra` has all that the command needs, of which settings are the first. `serves`: they are for a server, which may
    be a node of a cluster.
    """
    with needs(extra, command_said()):
        from siltlog.infra.settings import loading
    flags = {name.removeprefix(_PREFIX): value for name, value in values.items() if name.startswith(_PREFIX)}
    try:
        return loading.load_server(flags) if serves else loading.load(flags)
    except ConfigError as error:
        raise click.UsageError(error.detail, ctx=click.get_current_context(silent=True)) from None


@cache  # click asks for them more than once
def _settings_as_options() -> Sequence[click.Option]:
    with needs("server", command_said()):
        from siltlog.infra.settings.settings import SECRETS, ServerSettings
    options = []
    for name, field in ServerSettings.model_fields.items():
        if name in SECRETS:
            continue  # every user of the machine sees the arguments of every process
        described = f"{field.description}  " if field.description else ""
        default = field.get_default()
        shown = f"; default: {default}" if str(default) else ""
        options.append(
            click.Option(
                [f"--{name.replace('_', '-')}", _PREFIX + name],
                metavar=_metavar(name, field.annotation),
                help=f"{described}[{names.ENV_PREFIX}{name.upper()}{shown}]",
            )
        )
    return options


def _metavar(name: str, annotation: Any) -> str:
    choices = getattr(annotation, "__args__", ())
    if choices and all(isinstance(choice, str) for choice in choices):
        return "|".join(choices)
    if annotation is int:
        return {"duration": "DURATION", "size": "SIZE", None: "NUMBER"}[unit_kind(name)]
    return str(getattr(annotation, "__name__", "TEXT")).upper().replace("STR", "TEXT")
