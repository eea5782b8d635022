"""The reference of the command line, made of the help of each command."""

from collections.abc import Iterator

import click

from siltlog.cli.main import silt

WIDTH = 96
_HEAD = """# Command line

`silt` is the server, its jobs, and a client of them. What a command prints is for people; `-o json` is for programs,
and keeps its names. Exit statuses: 0 done, 1 failed, 2 misused, 3 ran and found something wrong, 130 interrupted.
"""


def page() -> str:
    """Writes what `--help` prints, a section for each command that has no commands of its own."""
    return "\n".join([_HEAD, *_sections(silt, None, "silt")])


def _sections(command: click.Command, parent: click.Context | None, name: str) -> Iterator[str]:
    context = click.Context(command, parent, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    path = context.command_path
    if not isinstance(command, click.Group):
        yield f"### {path}\n\n```text\n{command.get_help(context)}\n```\n"
        return
    yield f"## {path}\n\n```text\n{command.get_help(context)}\n```\n"
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from _sections(found, context, each)
