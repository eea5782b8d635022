"""Brings what is compared into a folder of its own, by the ordinary clients of package registries, once."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path

from benchmarks.compare.system import Missing

KAFKA = "3.9.1"
NATS = "v2.15.2"
INSTALL_SECONDS_MAX = 600.0
LINES_SHOWN = 3
_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>compare</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = """<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version></dependency>"""
KAFKA_BROKER = ("kafka_2.13",)
"""What a broker is made of; all else it brings by itself."""


def kafka_jars(cache: Path, version: str = KAFKA, artifacts: Sequence[str] = KAFKA_BROKER) -> Path:
    """Gives the folder of Kafka's jars. Raises Missing."""
    _needed("java", "Kafka needs Java 17: apt-get install openjdk-17-jre-headless")
    folder = cache / "-".join(("kafka", version, *artifacts[len(KAFKA_BROKER) :]))
    if not folder.exists():
        _needed("mvn", "Kafka is fetched by Maven: apt-get install maven")
        part = _emptied(folder)
        wanted = "".join(_DEPENDENCY.format(artifact=artifact, version=version) for artifact in artifacts)
        (part / "pom.xml").write_text(_POM.format(dependencies=wanted))
        _run(
            "Kafka", ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={part / 'libs'}"], cwd=part
        )
        part.rename(folder)
    return folder / "libs"


def nats_server(cache: Path) -> Path:
    """Gives the server's path. Raises Missing."""
    folder = cache / f"nats-{NATS}"
    if not folder.exists():
        _needed("go", "NATS is built by Go: install Go 1.25 or newer")
        part = _emptied(folder)
        _run("NATS", ["go", "install", f"github.com/nats-io/nats-server/v2@{NATS}"], cwd=part, GOBIN=str(part))
        part.rename(folder)
    return folder / "nats-server"


def rabbitmq_root(cache: Path) -> Path:
    """Gives a folder with Debian's RabbitMQ and the Erlang that it runs on, unpacked. Raises Missing."""
    folder = cache / "rabbitmq"
    if not folder.exists():
        _needed("apt-get", "RabbitMQ is unpacked from Debian's packages, and this is no Debian")
        part = _emptied(folder)
        archives = part / "archives"
        (archives / "partial").mkdir(parents=True)
        own = [f"-oDir::Cache::archives={archives}", "-oDebug::NoLocking=1"]
        _run(
            "RabbitMQ (perhaps: apt-get update)",
            ["apt-get", *own, "--download-only", "--no-install-recommends", "--yes", "install", "rabbitmq-server"],
            cwd=part,
        )
        packages = sorted(archives.glob("*.deb"))
        if not any(package.name.startswith("rabbitmq-server") for package in packages):
            raise Missing("RabbitMQ is installed on this machine already, so apt-get downloads nothing to unpack")
        for package in packages:
            _run("RabbitMQ", ["dpkg-deb", "-x", str(package), str(part)], cwd=part)
        shutil.rmtree(archives)
        # Erlang's own script names the folder that it was packed for.
        script = part / "usr/lib/erlang/bin/erl"
        script.write_text(script.read_text().replace("/usr/lib/erlang", str(folder / "usr/lib/erlang")))
        part.rename(folder)
    return folder


def _emptied(folder: Path) -> Path:
    """A folder beside it, which gets its name once all is there."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    return part


def _needed(command: str, sentence: str) -> None:
    if shutil.which(command) is None:
        raise Missing(sentence)


def _run(what: str, command: Sequence[str], cwd: Path, **variables: str) -> None:
    env: Mapping[str, str] = {**environ, **variables}
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{what} could not be had: {command[0]} did not end in {INSTALL_SECONDS_MAX:.0f} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).strip().splitlines()[-LINES_SHOWN:])
        raise Missing(f"{what} could not be had: {command[0]} said: {said}")
