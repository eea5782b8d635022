"""The Markdown of the repository as one tree of pages, in which every link leads to a page of the site."""

import os
import posixpath
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

DOCS = "docs"
REST = "repository"
"""Where pages lie that are not of `docs/`."""
LISTING = "index.md"
"""Stands for a folder that has no page of its own."""
_FENCE = re.compile(r"^(`{3,}|~{3,})")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_LANGUAGES = {
    ".css": "css",
    ".html": "html",
    ".json": "json",
    ".py": "python",
    ".sh": "sh",
    ".tf": "terraform",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_AS_THEY_ARE = {".svg", ".png", ".json", ".ipynb"}
"""What a page of `docs/` shows or offers for download; elsewhere such a file is shown as text."""


class Gathered:
    """Copies all pages of `docs/`, and whatever of the repository they lead to, into a folder."""

    def __init__(self, top: Path, folder: Path, made: set[str]) -> None:
        """`made` are pages, by their path in the folder, that somebody else writes."""
        self._top = top
        self._folder = folder
        self._made = made
        self._waiting: list[str] = []
        self._seen: set[str] = set()

    def gather(self, pages: Iterable[str]) -> None:
        """Copies also `pages`, by their paths in the tree; those of somebody else are left out.

        Raises FileNotFoundError for a link to a file that is not there.
        """
        for page in sorted((self._top / DOCS).rglob("*.md")):
            self._want(page.relative_to(self._top).as_posix())
        for name in pages:
            if name.startswith(f"{REST}/"):
                self._want(name.removeprefix(f"{REST}/"))
        while self._waiting:
            self._copy(self._waiting.pop())

    def _want(self, path: str) -> None:
        if path not in self._seen:
            self._seen.add(path)
            self._waiting.append(path)

    def _copy(self, path: str) -> None:
        source, target = self._top / path, self._folder / staged(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name == LISTING and not source.exists():
            target.write_text(self._listing(posixpath.dirname(path)), encoding="utf-8")
        elif path.endswith(".md"):
            target.write_text(self._rewritten(path, source.read_text(encoding="utf-8")), encoding="utf-8")
        elif target.suffix == ".md":
            target.write_text(_shown(path, source.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copy(source, target)

    def _rewritten(self, path: str, text: str) -> str:
        lines, fence = [], ""
        for line in text.splitlines(keepends=True):
            if found := _FENCE.match(line):
                fence = found[1] if not fence else "" if line.startswith(fence) else fence
            lines.append(line if fence or found else _LINK.sub(lambda link: self._link(path, link), line))
        return "".join(lines)

    def _link(self, path: str, link: re.Match[str]) -> str:
        place, mark, anchor = link[2].partition("#")
        if not place or ":" in place:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), place))
        if target.removeprefix(f"{DOCS}/") in self._made:
            return link[0]
        if not (self._top / target).exists():
            raise FileNotFoundError(f"{path} links to {place}, which is not there")
        if (self._top / target).is_dir():
            target += "/README.md" if (self._top / target / "README.md").is_file() else f"/{LISTING}"
        self._want(target)
        relative = os.path.relpath(staged(target), posixpath.dirname(staged(path)) or ".")
        return f"{link[1]}{relative}{mark}{anchor}{link[3]}"

    def _listing(self, path: str) -> str:
        """A page for a folder that has no README: its files, each a link."""
        names = sorted(one.name for one in (self._top / path).iterdir() if one.is_file())
        page = "".join(f"- [{name}]({name})\n" for name in names)
        return self._rewritten(f"{path}/{LISTING}", f"# {path}\n\n{page}")


def staged(path: str) -> str:
    """Where a file of the repository lies in the tree of pages."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if path.endswith(".md") or PurePosixPath(path).suffix in _AS_THEY_ARE:
        return f"{REST}/{path}"
    return f"{REST}/{path}.md"


def _shown(path: str, text: str) -> str:
    """A page that shows a file as it is."""
    fence, file = "`" * 4, PurePosixPath(path)
    language = _LANGUAGES.get(file.suffix, "text")
    return f"# {file.name}\n\n`{path}`\n\n{fence}{language}\n{text}\n{fence}\n"
