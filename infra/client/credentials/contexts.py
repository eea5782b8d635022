"""Servers that a person logged in to, by name, each with what lets him in: a file that is his alone."""

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from siltlog.infra import names
from siltlog.infra.client.address import config_folder
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.errors import ConfigError

_OTHERS = 0o077
_MEMBERS = ("url", "token", "ca", "cert")


@dataclass(frozen=True, slots=True)
class Context:
    """`cert` is a file, or two by a comma."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All of them, and the name of the one that holds where no server is named."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    @property
    def chosen(self) -> Context | None:
        return None if self.current is None else self.by_name.get(self.current)

    def with_one(self, name: str, context: Context) -> "Contexts":
        return Contexts({**self.by_name, name: context}, name)

    def using(self, name: str) -> "Contexts":
        return replace(self, current=self._known(name))

    def without(self, name: str) -> "Contexts":
        self._known(name)
        left = {other: context for other, context in self.by_name.items() if other != name}
        return Contexts(left, None if self.current == name else self.current)

    def of(self, name: str) -> Context:
        return self.by_name[self._known(name)]

    def _known(self, name: str) -> str:
        if name not in self.by_name:
            there = ", ".join(self.by_name) or "none; `silt login` makes one"
            raise ConfigError(f"there is no context {name!r}; there are: {there}")
        return name


def contexts_file() -> Path:
    """Raises ConfigError for a user who has no home."""
    folder = config_folder()
    if folder is None:
        raise ConfigError("there is no home directory to keep contexts in: set HOME or XDG_CONFIG_HOME")
    return folder / names.CONTEXTS_FILE


def read_contexts(path: Path) -> Contexts:
    """Reads the file; none at all are in one that is not there. Raises ConfigError where others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if mode & _OTHERS:
        raise ConfigError(f"{path} has tokens, and others may read it: chmod 600 {path}")
    try:
        return _contexts(tomllib.loads(content.decode("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError, AttributeError):
        # What is wrong with it may be beside a token, so it is not shown.
        raise ConfigError(f"{path} is not as `silt login` writes it: mend it, or remove it and log in anew") from None


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replaces the file by one that its owner alone may read; all of it or nothing. Raises ConfigError."""
    lines = [] if contexts.current is None else [f"current = {json.dumps(contexts.current)}\n"]
    for name, context in contexts.by_name.items():
        lines.append(f"\n[contexts.{json.dumps(name)}]\n")
        values = {member: getattr(context, member) for member in _MEMBERS}
        lines += [f"{member} = {_text(value)}\n" for member, value in values.items() if value is not None]
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write("".join(lines))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            with suppress(FileNotFoundError):
                fresh.unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def context_for(urls: Iterable[str]) -> Context | None:
    """The context whose servers these are, the current one first. Raises ConfigError as `read_contexts` does."""
    folder = config_folder()
    if folder is None:
        return None
    contexts = read_contexts(folder / names.CONTEXTS_FILE)
    candidates = [contexts.chosen, *contexts.by_name.values()]
    return next((one for one in candidates if one is not None and set(urls) <= set(Endpoints(one.url).urls)), None)


def _text(value: str) -> str:
    """Writes a basic string of TOML, which has every escape of JSON's but that for halves of a character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _contexts(document: Mapping[str, Any]) -> Contexts:
    by_name = {str(name): Context(**members) for name, members in document.get("contexts", {}).items()}
    for context in by_name.values():
        if not all(isinstance(value, str | None) for value in (context.url, context.token, context.ca, context.cert)):
            raise ValueError("a member is no text")
        Endpoints(context.url)
    return Contexts(by_name, document.get("current"))
