"""A file that a command reads: a path on this machine, or any location that fsspec can open (`s3://…`, `https://…`)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import click
import xxhash

from siltlog.cli.session import needs
from siltlog.infra.errors import ConfigError
from siltlog.infra.store.s3_denied import denied

SAMPLE_BYTES = 1024 * 1024
_PATTERN = re.compile(r"[*?\[]")
_MODIFIED = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")
"""Names that file systems of fsspec give to a value that changes with the content, the surest first."""


def checked(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An option's callback: a path must be a file that is there, a location is tried when it is opened."""
    if value is not None and "://" not in value:
        click.Path(exists=True, dir_okay=False, readable=True).convert(value, param, ctx)
    return value


def endings(location: str) -> list[str]:
    """Splits the endings off a name: `day.csv.gz` has `.csv` and `.gz`."""
    return [suffix.lower() for suffix in PurePosixPath(location.partition("?")[0]).suffixes]


def opened(location: str) -> BinaryIO:
    """The file, for reading at any place. Raises OSError, or ConfigError that says why it cannot be read."""
    if "://" not in location:
        return Path(location).open("rb")
    files, path = _found(location)
    with _readable(location):
        stream: BinaryIO = files.open(path, "rb")
    return stream


def files_below(location: str) -> dict[str, str] | None:
    """The files of a folder, or that a pattern names: by their names within it, their locations. None for one file.

    Raises OSError, ConfigError; where there is nothing, too.
    """
    if "://" not in location:
        path = Path(location)
        if path.is_dir():
            return {file.relative_to(path).as_posix(): str(file) for file in path.rglob("*") if file.is_file()}
        if path.exists() or not _PATTERN.search(location):
            return None
        # Path.glob takes no pattern that is absolute.
        named = [file for file in glob(location, recursive=True) if Path(file).is_file()]  # noqa: PTH207
        return {file.removeprefix(_fixed(location)): file for file in named}
    files, inner = _found(location)
    with _readable(location):
        if _PATTERN.search(inner):
            found = {path.removeprefix(_fixed(inner)): path for path in files.glob(inner)}
        elif files.isdir(inner):
            found = {path.removeprefix(inner.rstrip("/") + "/"): path for path in files.find(inner)}
        else:
            return None
        return {name: str(files.unstrip_protocol(path)) for name, path in found.items() if not path.endswith("/")}


def _fixed(pattern: str) -> str:
    """The folder that all have in common that a pattern names."""
    return pattern[: pattern.rfind("/", 0, re.search(_PATTERN, pattern).start()) + 1]  # type: ignore[union-attr]


def content_mark(location: str) -> str | None:
    """Tells one content from another without reading all of it: by size, time of change, beginning and end.

    The same for a file that was moved. None for what cannot be read twice, such as a pipe.
    """
    if "://" not in location:
        path = Path(location)
        if not path.is_file():
            return None
        state = path.stat()
        size, modified = state.st_size, str(state.st_mtime_ns)
    else:
        files, inner = _found(location)
        with _readable(location):
            info = files.info(inner)
        size = info.get("size")
        modified = next((str(info[name]) for name in _MODIFIED if info.get(name)), "")
        if size is None or not modified:
            return None
    digest = xxhash.xxh3_128(f"{size} {modified} ".encode())
    with opened(location) as stream:
        digest.update(stream.read(SAMPLE_BYTES))
        stream.seek(max(0, size - SAMPLE_BYTES))
        digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def size_of(location: str) -> int | None:
    """Returns the size in bytes; None where that is not known before it is read."""
    if "://" not in location:
        path = Path(location)
        return path.stat().st_size if path.is_file() else None
    files, inner = _found(location)
    with _readable(location):
        size = files.info(inner).get("size")
    return None if size is None else int(size)


def _found(location: str) -> tuple[Any, str]:
    with needs("server", f"reading {location}"):
        import fsspec
    with _readable(location):
        files, path = fsspec.core.url_to_fs(location, **_options(location))
    return files, path


def _options(location: str) -> dict[str, Any]:
    """Returns the settings for S3, which hold for every location there; other file systems have their own."""
    if not location.startswith("s3://"):
        return {}
    from siltlog.cli.server_options import take_settings

    settings = take_settings({}).settings
    options: dict[str, Any] = {"endpoint_url": settings.s3_endpoint} if settings.s3_endpoint else {}
    return options | ({"client_kwargs": {"region_name": settings.s3_region}} if settings.s3_region else {})


@contextmanager
def _readable(location: str) -> Iterator[None]:
    """Each file system of fsspec has errors of its own: all but OSError become a sentence, denials of S3 too."""
    try:
        yield
    except PermissionError as error:
        if not location.startswith("s3://"):
            raise
        raise denied(getattr(error.__cause__, "operation_name", "GetObject"), location, str(error)) from error
    except OSError:
        raise
    except Exception as error:
        raise ConfigError(f"{location} cannot be read: {error}") from error
