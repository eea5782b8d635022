"""A file that a command reads: a path on this machine, or any location that fsspec can open (`s3://…`, `https://…`)."""

from pathlib import Path, PurePosixPath
from typing import BinaryIO

import click

from siltlog.cli.session import needs
from siltlog.infra.errors import ConfigError


def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An option's callback: a path must be a file that is there, a location is tried when it is opened."""
    if value is not None and "://" not in value:
        click.Path(exists=True, dir_okay=False, readable=True).convert(value, param, ctx)
    return value


def ending(location: str) -> str:
    return PurePosixPath(location).suffix.lower()


def opened(location: str) -> BinaryIO:
    """The file, for reading at any place. Raises OSError, or ConfigError that says why it cannot be read."""
    if "://" not in location:
        return Path(location).open("rb")
    with needs("server", f"reading {location}"):
        import fsspec
    try:
        stream: BinaryIO = fsspec.open(location, "rb").open()
    except OSError:
        raise
    except Exception as error:
        # Each file system of fsspec has errors of its own.
        raise ConfigError(f"{location} cannot be read: {error}") from error
    return stream
