"""Finding the Java that Spark needs: 17 or newer, with the module that Spark 4 is started with."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.loading import environment_of_programs, variable

VERSION_MIN = 17
MODULE = "jdk.incubator.vector"
"""Spark 4.2 is started with it; JDKs cut down by jlink lack it."""
PROBE_SECONDS_MAX = 30
INSTALL = (
    f"install a full JDK or JRE {VERSION_MIN} or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put `java` on PATH or its folder into JAVA_HOME; "
    "publishing and consuming need no Java"
)


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    home: Path | None
    """JAVA_HOME when that is where it was found."""
    version: int


def find_java(java_home: str | None = None, path: str | None = None) -> Java:
    """The Java of `java_home` (default: JAVA_HOME), else the `java` on `path` (default: PATH).

    Raises ConfigError, one sentence that says what was found and what to install.
    """
    java_home = variable("JAVA_HOME") if java_home is None else java_home
    tried = []
    for executable, home in _candidates(java_home, path):
        found = _probe(executable, home)
        if isinstance(found, Java):
            return found
        tried.append(found)
    raise ConfigError(f"Spark needs Java {VERSION_MIN} or newer: {'; '.join(tried) or 'there is none'}; {INSTALL}")


def _candidates(java_home: str | None, path: str | None) -> list[tuple[Path, Path | None]]:
    candidates: list[tuple[Path, Path | None]] = []
    if java_home:
        candidates.append((Path(java_home) / "bin" / "java", Path(java_home)))
    on_path = shutil.which("java", path=path)
    if on_path:
        candidates.append((Path(on_path), None))
    return candidates


def _probe(executable: Path, home: Path | None) -> Java | str:
    """Asks `executable` for its version; returns the Java, or a text that says why it will not do."""
    name = f"JAVA_HOME={home}" if home else str(executable)
    try:
        asked = subprocess.run(
            [executable, "--list-modules"],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS_MAX,
            check=False,
            env=environment_of_programs(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{name} has no java that starts"
    modules = dict(line.strip().partition("@")[::2] for line in asked.stdout.splitlines())
    version = _major(modules.get("java.base", ""))
    if version is None:
        return f"{name} is older than Java 9" if asked.returncode else f"{name} does not say its version"
    if version < VERSION_MIN:
        return f"{name} is Java {version}"
    if MODULE not in modules:
        return f"{name} is Java {version} without the module {MODULE}"
    return Java(executable, home, version)


def _major(version: str) -> int | None:
    digits = version.split(".")[0].split("-")[0].split("+")[0]
    return int(digits) if digits.isdigit() else None
