"""The header that a record is to have, as the commands that read take it: `--header NAME` or `--header NAME=TEXT`."""

import click

Header = tuple[str, str | None]
"""The name, and what one of that name is to have; None: anything."""


def _header(_: click.Context, __: click.Parameter, said: str | None) -> Header | None:
    if said is None:
        return None
    name, equals, text = said.partition("=")
    return name, text if equals else None


header_option = click.option(
    "--header",
    "-H",
    metavar="NAME[=TEXT]",
    callback=_header,
    help="Only records with this header, or with this TEXT in it.",
)
