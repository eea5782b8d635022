"""What a version must have before it goes out, each as a sentence that says what is missing; and its notes."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

_SECTION = re.compile(r"^## \[([^\]]+)\](?: - (.*))?$", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


def version_of(top: Path) -> str:
    found: str = tomllib.loads((top / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


def sections(changelog: str) -> dict[str, tuple[str, str]]:
    """Gives, by version, what stands behind its name, and its text."""
    heads = list(_SECTION.finditer(changelog))
    ends = [*(head.start() for head in heads[1:]), len(changelog)]
    return {
        head[1]: (head[2] or "", changelog[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)
    }


def notes(changelog: str, version: str) -> str:
    """The part of the changelog on a version; "" where it has none."""
    return sections(changelog).get(version, ("", ""))[1]


def missing(top: Path) -> list[str]:
    """What keeps the commit that is checked out from being a release; nothing, once all is there."""
    version = version_of(top)
    return [
        *_of_version(top, version),
        *_of_changelog((top / "CHANGELOG.md").read_text("utf-8"), version),
        *_of_git(top, version),
    ]


def _of_version(top: Path, version: str) -> list[str]:
    found = [] if _VERSION.fullmatch(version) else [f"pyproject.toml: {version!r} is no version: 1.2.3, or 1.2.3rc1"]
    described = json.loads((top / "docs" / "openapi.json").read_text("utf-8"))["info"]["version"]
    if described != version:
        found.append(
            f"docs/openapi.json is of version {described}, pyproject.toml of {version}: install the project again "
            "(make setup), then python -m siltlog.server.api > docs/openapi.json"
        )
    return found


def _of_changelog(changelog: str, version: str) -> list[str]:
    parts = sections(changelog)
    if version not in parts:
        return [f"CHANGELOG.md has no part on {version}: name the one on Unreleased so, with the date"]
    date, text = parts[version]
    found = []
    if not _DATE.fullmatch(date):
        found.append(f"CHANGELOG.md: the part on {version} has no date (year-month-day), but {date!r}")
    if not text:
        found.append(f"CHANGELOG.md: the part on {version} is empty")
    if parts.get("Unreleased", ("", ""))[1]:
        found.append(f"CHANGELOG.md: what stands under Unreleased is not told as part of {version}")
    return found


def _of_git(top: Path, version: str) -> list[str]:
    def said(*arguments: str) -> str:
        ran = subprocess.run(["git", *arguments], cwd=top, check=True, capture_output=True, text=True)
        return ran.stdout.strip()

    found = []
    if said("status", "--porcelain", "--untracked-files=no"):
        found.append("there are changes that are not committed: what is built is the last commit")
    if f"v{version}" not in said("tag", "--points-at", "HEAD").split():
        found.append(f"the commit has no tag v{version}: git tag -s v{version}")
    return found
