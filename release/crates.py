"""The crates that the native codec is made of, as cargo tells of them: where they lie, and a bill of materials."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from release.bill import NoTool
from release.licences import allowed

LICENCE_OF_RUST = "MIT OR Apache-2.0"


class NotAllowed(Exception):
    """A crate in the wheel is under a licence that nobody has allowed."""


def cargo(folder: Path, *arguments: str) -> str:
    """What cargo says in a folder. Raises NoTool."""
    if shutil.which("cargo") is None:
        raise NoTool("Rust's cargo, 1.85 or newer, builds the native codec, and is not on PATH")
    return subprocess.run(["cargo", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def described(folder: Path) -> dict[str, Any]:
    """What `cargo metadata` tells of the crate in a folder that has a Cargo.lock, and of all that it needs here."""
    [system] = re.findall(r"^host: (\S+)$", cargo(folder, "--version", "--verbose"), re.MULTILINE)
    arguments = ("metadata", "--format-version", "1", "--locked", "--filter-platform", system)
    told: dict[str, Any] = json.loads(cargo(folder, *arguments))
    return told


def crates_bill(told: Mapping[str, Any], lock: str, rust: str, time_s: str) -> dict[str, Any]:
    """The bill of a crate's wheel, in CycloneDX: Rust's own library, and the crates that cargo told of.

    What is in the wheel is `required`, what is there for the build alone `excluded`. `rust` is the compiler's version.
    Raises NotAllowed.
    """
    hashes = {(each["name"], each["version"]): each.get("checksum") for each in tomllib.loads(lock)["package"]}
    root: str = told["resolve"]["root"]
    within = _within(told, root)
    components = {package["id"]: _component(package, package["id"] in within) for package in told["packages"]}
    own = components.pop(root)
    for component in components.values():
        digest = hashes[component["name"], component["version"]]
        component["hashes"] = [{"alg": "SHA-256", "content": digest}]
    components["std"] = {
        "type": "library",
        "name": "std",
        "version": rust,
        "scope": "required",
        "licenses": [{"expression": LICENCE_OF_RUST}],
        "purl": f"pkg:generic/rust-std@{rust}",
    }
    refused = sorted(
        f"{each['name']} is under {licence or 'no licence'}"
        for each in components.values()
        if each["scope"] == "required" and not allowed(licence := each["licenses"][0]["expression"])
    )
    if refused:
        raise NotAllowed(f"in the wheel of {own['name']}, {'; '.join(refused)}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(int(time_s), UTC).isoformat(), "component": own},
        "components": sorted(components.values(), key=lambda each: (each["name"], each["version"])),
    }


def _within(told: Mapping[str, Any], root: str) -> set[str]:
    """The ids of what is linked into a crate: neither macros, which run in the compiler, nor what builds something."""
    macros = {
        package["id"]
        for package in told["packages"]
        if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    needs = {
        node["id"]: [need["pkg"] for need in node["deps"] if any(kind["kind"] is None for kind in need["dep_kinds"])]
        for node in told["resolve"]["nodes"]
    }
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        crate = waiting.pop()
        if crate not in seen and crate not in macros:
            seen.add(crate)
            waiting += needs[crate]
    return seen


def _component(package: Mapping[str, Any], is_within: bool) -> dict[str, Any]:
    # Old crates say by a stroke what expressions of SPDX say by OR.
    licence = (package["license"] or "").replace("/", " OR ")
    return {
        "type": "library",
        "name": package["name"],
        "version": package["version"],
        "scope": "required" if is_within else "excluded",
        "licenses": [{"expression": licence}],
        "purl": f"pkg:cargo/{package['name']}@{package['version']}",
    }
