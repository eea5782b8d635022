import json
import os
import threading
from pathlib import Path

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.pipelines.spark import jars
from siltlog.pipelines.spark.jars import DELTA, HADOOP_VERSION, MANIFEST, S3A, JarSet, jars_of, resolve
from siltlog.pipelines.spark.java import Java

ONE = JarSet("one", "1", (("org.example", "one", "1"),), (("org.other", "*"),))
JAVA = """#!/bin/sh
# Stands for Ivy: takes a moment, then writes two jars where it is told to retrieve them.
for argument; do last="$argument"; done
folder=$(dirname "$last")
echo run >> {log}
sleep 0.2
{fails}
printf 'first' > "$folder/a-1.jar"
printf 'second' > "$folder/b-1.jar"
"""


def java(tmp_path: Path, fails: str = "") -> Java:
    executable = tmp_path / "java"
    executable.write_text(JAVA.format(log=tmp_path / "log", fails=fails))
    executable.chmod(0o755)
    return Java(executable, None, 17)


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "log").read_text().splitlines())


def test_jars_are_downloaded_once(tmp_path: Path) -> None:
    first = resolve(ONE, java(tmp_path), tmp_path)
    assert [jar.name for jar in first] == ["a-1.jar", "b-1.jar"]
    assert resolve(ONE, java(tmp_path), tmp_path) == first == jars_of(ONE, tmp_path)
    assert runs(tmp_path) == 1
    assert sorted(path.name for path in first[0].parent.parent.iterdir()) == [ONE.folder, f"{ONE.folder}.lock"]


def test_those_that_come_together_download_once(tmp_path: Path) -> None:
    executable = java(tmp_path)
    found: list[list[Path]] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(ONE, executable, tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("damage", ["cut", "lost", "no manifest", "half a manifest"])
def test_a_damaged_folder_is_downloaded_again(tmp_path: Path, damage: str) -> None:
    jar = resolve(ONE, java(tmp_path), tmp_path)[0]
    manifest = jar.with_name(MANIFEST)
    if damage == "cut":
        os.truncate(jar, 2)
    elif damage == "lost":
        jar.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:10])
    assert jars_of(ONE, tmp_path) is None
    assert len(resolve(ONE, java(tmp_path), tmp_path)) == 2
    assert runs(tmp_path) == 2


def test_what_a_killed_run_left_is_cleared(tmp_path: Path) -> None:
    leftover = tmp_path / "jars" / f".{ONE.folder}.killed" / "fetched"
    leftover.mkdir(parents=True)
    (leftover / "a-1.jar").write_text("ha")
    resolve(ONE, java(tmp_path), tmp_path)
    assert not leftover.parent.exists()


def test_a_failed_download_says_what_to_do_and_leaves_nothing(tmp_path: Path) -> None:
    failing = java(tmp_path, "echo 'WARN: one;1: not found'; exit 1")
    with pytest.raises(ConfigError, match=r"one jars .*one;1: not found.*python -m siltlog\.pipelines\.setup"):
        resolve(ONE, failing, tmp_path)
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [f"{ONE.folder}.lock"]


def test_a_download_that_fails_once_is_made_again(tmp_path: Path) -> None:
    fails = f'[ "$(wc -l < {tmp_path}/log)" = 1 ] && exit 1'
    assert len(resolve(ONE, java(tmp_path, fails), tmp_path)) == 2
    assert runs(tmp_path) == 2


def test_another_list_of_modules_is_another_folder() -> None:
    other = JarSet("one", "1", ONE.modules, ())
    assert other.folder != ONE.folder
    assert json.dumps(S3A.modules).count(HADOOP_VERSION) == 1


@pytest.mark.spark
def test_the_jars_are_those_that_this_spark_needs() -> None:
    inside = {jar.name for jar in (jars.spark_home() / "jars").iterdir()}
    assert f"hadoop-client-api-{HADOOP_VERSION}.jar" in inside
    found = {jar.name.partition("_")[2] for jar_set in (DELTA, S3A) for jar in resolve(jar_set)}
    assert not found & inside, "a jar that Spark has already is there twice"
