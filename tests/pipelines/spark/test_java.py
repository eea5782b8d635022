from pathlib import Path

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.pipelines.spark.java import MODULE, find_java

FULL = f"java.base@21.0.2\n{MODULE}@21.0.2"


def java_at(home: Path, says: str, code: int = 0) -> str:
    """A JAVA_HOME whose java answers `says` to whatever it is asked."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\nexit {code}\n")
    executable.chmod(0o755)
    return str(home)


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    home = java_at(tmp_path / "home", FULL)
    other = java_at(tmp_path / "other", FULL)
    found = find_java(home, path=f"{other}/bin")
    assert (found.executable, found.home, found.version) == (Path(home) / "bin" / "java", Path(home), 21)


def test_one_that_will_not_do_is_passed_over(tmp_path: Path) -> None:
    old = java_at(tmp_path / "old", "java.base@11.0.1")
    good = java_at(tmp_path / "good", FULL)
    found = find_java(old, path=f"{good}/bin")
    assert (found.executable, found.home) == (Path(good) / "bin" / "java", None)


@pytest.mark.parametrize(
    ("says", "code", "reason"),
    [
        ("java.base@11.0.22", 0, "is Java 11;"),
        ("java.base@17.0.15", 0, f"is Java 17 without the module {MODULE};"),
        ("Unrecognized option: --list-modules", 1, "is older than Java 9;"),
        ("", 0, "does not say its version;"),
    ],
)
def test_what_is_wrong_with_it_is_told_in_one_sentence(tmp_path: Path, says: str, code: int, reason: str) -> None:
    home = java_at(tmp_path / "home", says, code)
    with pytest.raises(ConfigError) as raised:
        find_java(home, path="")
    message = str(raised.value)
    assert message.startswith(f"Spark needs Java 17 or newer: JAVA_HOME={home} {reason} install")
    assert "\n" not in message


def test_without_any_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is none; install .*openjdk-17.*need no Java"):
        find_java("", path=str(tmp_path))
    with pytest.raises(ConfigError, match="has no java that starts"):
        find_java(str(tmp_path), path=str(tmp_path))


@pytest.mark.spark
def test_the_java_of_this_machine_will_do() -> None:
    assert find_java().version >= 17
