"""The files of the page, read once and encoded once."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from siltlog.infra.http.coding import encoded
from siltlog.infra.http.media import chosen_coding

DOCUMENT = "index.html"
_VERSION_PLACE = "{version}"
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
    """Reads what the package brings; takes some 50 ms."""
    root = files("siltlog.ui") / "static"
    found = sorted(_found(root))
    digest = hashlib.sha256()
    for folder, name, content in found:
        digest.update(f"{folder}/{name} {len(content)}\n".encode() + content)
    document = (root / DOCUMENT).read_bytes()
    digest.update(document)
    version = digest.hexdigest()[:_VERSION_DIGITS]
    return PageFiles(
        version,
        _shown(DOCUMENT, document.replace(_VERSION_PLACE.encode(), version.encode())),
        {(folder, name): _shown(name, content) for folder, name, content in found},
    )


def _found(root: Traversable) -> Iterator[tuple[str, str, bytes]]:
    for folder in root.iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                if _type_of(file.name):
                    yield folder.name, file.name, file.read_bytes()


def _type_of(name: str) -> str:
    return next((media for suffix, media in _TYPES.items() if name.endswith(suffix)), "")


def _shown(name: str, content: bytes) -> Shown:
    return Shown(
        _type_of(name),
        {"": content, **{coding: encoded(content, coding) for coding in CODINGS}},
    )
