"""The files of the page, read once and encoded once."""

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from siltlog.infra.http.coding import encoded
from siltlog.infra.http.media import chosen_coding

DOCUMENT = "index.html"
_VERSION_PLACE = "{version}"
_PRELOADS_PLACE = "{preloads}"
_FIRST = ("app/main.js", "pages/overview.js")
"""What a browser needs first: the rest is what these import, and what that imports."""
_OTHERS = "vendor"
"""The folder of what others wrote, which travels as it is."""
_DOCUMENTATION = re.compile(rb"^[ \t]*/\*\*(?:(?!\*/).)*\*/[ \t]*\n", re.DOTALL | re.MULTILINE)
_IMPORTED = re.compile(rb'from "([^"]+)"')
_VERSION_DIGITS = 16
CODINGS = ("zstd", "gzip")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A file as it travels, in each of the codings that a browser may take."""

    media_type: str
    codings: dict[str, bytes]

    def chosen(self, accept_encoding: str) -> tuple[str, bytes]:
        """Chooses a coding that is taken; an empty name is the file as it is."""
        name = chosen_coding(accept_encoding, CODINGS) or ""
        return name, self.codings[name]


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The document, and the files that it is made of by folder and name. `version` changes when one of them does."""

    version: str
    document: Shown
    files: dict[tuple[str, str], Shown]


def read_files() -> PageFiles:
    """Reads what the package brings, and encodes it: slow, so for a thread."""
    root = files("siltlog.ui") / "static"
    found = sorted(_found(root))
    digest = hashlib.sha256()
    for folder, name, content in found:
        digest.update(f"{folder}/{name} {len(content)}\n".encode() + content)
    document = (root / DOCUMENT).read_text()
    digest.update(document.encode())
    version = digest.hexdigest()[:_VERSION_DIGITS]
    preloads = "\n".join(map(_preload, first_modules({f"{folder}/{name}": content for folder, name, content in found})))
    whole = document.replace(_PRELOADS_PLACE, preloads).replace(_VERSION_PLACE, version)
    return PageFiles(
        version,
        _shown(DOCUMENT, whole.encode()),
        {(folder, name): _shown(name, content) for folder, name, content in found},
    )


def first_modules(modules: Mapping[str, bytes]) -> list[str]:
    """Lists the modules that the first page needs, by folder and name.

    A browser learns what a module imports once it has it, so it would ask in waves, each a round trip later.
    """
    found: dict[str, None] = {}
    waiting = list(_FIRST)
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = None
        folder = posixpath.dirname(path)
        waiting += [posixpath.normpath(f"{folder}/{name.decode()}") for name in _IMPORTED.findall(modules[path])]
    return list(found)


def _preload(path: str) -> str:
    return f'<link rel="modulepreload" href="{_VERSION_PLACE}/{path}">'


def _found(root: Traversable) -> Iterator[tuple[str, str, bytes]]:
    for folder in root.iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                if _type_of(file.name):
                    content = file.read_bytes()
                    yield (
                        folder.name,
                        file.name,
                        content if folder.name == _OTHERS else _DOCUMENTATION.sub(b"", content),
                    )


def _type_of(name: str) -> str:
    return next((media for suffix, media in _TYPES.items() if name.endswith(suffix)), "")


def _shown(name: str, content: bytes) -> Shown:
    return Shown(
        _type_of(name),
        {"": content, **{coding: encoded(content, coding) for coding in CODINGS}},
    )
