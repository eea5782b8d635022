"""The README as a package index shows it, where the files that it links to are not beside it."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

README = "README.md"
_LINK = re.compile(r"\[([^\]\n]+)\]\((?![a-z][a-z0-9+.-]*:|#)([^)\s]+)\)")


def self_sufficient(text: str, home: str) -> str:
    """`text` with its relative links resolved below `home`; without one they become the text and the path."""

    def link(found: re.Match[str]) -> str:
        shown, path = found[1], found[2]
        if home:
            return f"[{shown}]({home}/{path})"
        return f"`{path}`" if shown.strip("/") in path else f"{shown} (`{path}`)"

    return _LINK.sub(link, text)


class IndexMetadata(MetadataHookInterface):
    """`home` of `[tool.hatch.metadata.hooks.custom]` is where the repository's files are browsed."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        home = str(self.config.get("home", "")).rstrip("/")
        text = self_sufficient((Path(self.root) / README).read_text("utf-8"), home)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if home:
            metadata["urls"] = {
                "Documentation": f"{home}/docs",
                "Changelog": f"{home}/CHANGELOG.md",
                "Source": home,
            }
