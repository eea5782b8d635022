"""Bills of materials: what an installation brings along, in CycloneDX, of the locks and checked by them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from release.licences import licences

LOCKS = {
    "client": "requirements/client.txt",
    "server": "requirements/server.txt",
    "pipelines": "requirements/pipelines.txt",
}
"""Locks by what is installed: `siltlog`, `siltlog[server]`, `siltlog[spark]`."""
TOOL = "cyclonedx-py"
_PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class NoTool(Exception):
    """What makes bills is not installed."""


def pins(lock: str) -> dict[tuple[str, str], frozenset[str]]:
    """Hashes by package and version: another Python may have another version."""
    heads = list(_PIN.finditer(lock))
    ends = [*(head.start() for head in heads[1:]), len(lock)]
    return {
        (head[1].lower(), head[2]): frozenset(_HASH.findall(lock, head.end(), end))
        for head, end in zip(heads, ends, strict=True)
    }


def bill(top: Path, lock: str, time_s: str, tool: str | None = None) -> dict[str, Any]:
    """The bill of a lock, always the same. Raises NoTool, and CalledProcessError where the tool refuses the lock."""
    tool = tool or shutil.which(TOOL)
    if tool is None:
        raise NoTool(f"{TOOL} makes bills of materials, and is not on PATH: python3 -m pip install cyclonedx-bom")
    made = subprocess.run(
        [tool, "requirements", str(top / lock), "--pyproject", str(top / "pyproject.toml"), "--output-reproducible"],
        check=True,
        capture_output=True,
        env={"SOURCE_DATE_EPOCH": time_s, "PYTHONWARNINGS": "ignore"},
    )
    document: dict[str, Any] = json.loads(made.stdout)
    known = licences(each["name"] for each in document["components"])
    for component in document["components"]:
        # The index that the lock's packages were found at is not part of what they are.
        component["externalReferences"] = [
            {key: value for key, value in reference.items() if key not in ("url", "comment")}
            | {"url": component["purl"]}
            for reference in component.get("externalReferences", [])
        ]
        if expression := known.get(component["name"]):
            component["licenses"] = [{"expression": expression}]
    return document


def differences(document: dict[str, Any], lock: str) -> list[str]:
    """What the bill and the lock do not say alike."""
    billed = {(each["name"].lower(), each["version"]): _hashes(each) for each in document["components"]}
    pinned = pins(lock)
    found = []
    for name, version in sorted(billed.keys() | pinned.keys()):
        package = f"{name} {version}"
        if (name, version) not in pinned:
            found.append(f"{package} is in the bill and not in the lock")
        elif (name, version) not in billed:
            found.append(f"{package} is in the lock and not in the bill")
        elif billed[name, version] != pinned[name, version]:
            found.append(f"{package} has other hashes in the bill than in the lock")
    return found


def written(document: dict[str, Any]) -> bytes:
    """A bill as its file has it."""
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def _hashes(component: dict[str, Any]) -> frozenset[str]:
    references = component.get("externalReferences", [])
    hashes = [each for reference in references for each in reference.get("hashes", [])]
    return frozenset(each["content"] for each in hashes if each["alg"] == "SHA-256")
