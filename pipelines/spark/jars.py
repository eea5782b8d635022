"""The jars that Spark lacks (Delta, S3A): resolved once into a cache folder, then only looked at.

Resolution is Ivy's, which comes with Spark; starting a session with a folder of jars is faster than
`spark.jars.packages` and needs no network.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.loading import environment_of_programs, variable
from siltlog.pipelines.spark.java import Java, find_java

DELTA_VERSION = "4.4.0"
HADOOP_VERSION = "3.5.0"
"""Must be that of the Hadoop client inside pyspark."""
AWS_SDK_VERSION = "2.35.4"
MANIFEST = "manifest.json"
RESOLVE_SECONDS_MAX = 900
ATTEMPTS_MAX = 2
COMMAND = "python -m siltlog.pipelines.setup"
"""Makes sure of all of them."""

_ORGANISATIONS_IN_SPARK = (
    "org.scala-lang",
    "org.apache.parquet",
    "org.apache.logging.log4j",
    "org.apache.httpcomponents",
    "org.roaringbitmap",
    "org.slf4j",
    "org.xerial.snappy",
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "com.github.luben",
    "com.google.code.findbugs",
    "commons-codec",
    "commons-logging",
    "commons-pool",
    "io.airlift",
    "io.netty",
    "javax.annotation",
)


@dataclass(frozen=True, slots=True)
class JarSet:
    """Maven modules, what of their dependencies Spark already has, and the name of their cache folder."""

    name: str
    version: str
    modules: tuple[tuple[str, str, str], ...]
    """(organisation, module, version)"""
    excluded: tuple[tuple[str, str], ...]
    """(organisation, module or `*`)"""

    @property
    def folder(self) -> str:
        """Another for every other list of modules, so that no session mixes two."""
        digest = hashlib.sha256(self.ivy_file().encode()).hexdigest()[:8]
        return f"{self.name}-{self.version}-{digest}"

    def ivy_file(self) -> str:
        lines = [
            '<ivy-module version="2.0">',
            f'<info organisation="siltlog" module={quoteattr(self.name)}/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
        ]
        for organisation, module, version in self.modules:
            place = f"org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(version)}"
            lines.append(f'<dependency {place} conf="default->default"/>')
        for organisation, module in self.excluded:
            lines.append(f"<exclude org={quoteattr(organisation)} module={quoteattr(module)}/>")
        return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


IN_SPARK = (
    *((organisation, "*") for organisation in _ORGANISATIONS_IN_SPARK),
    ("org.apache.hadoop", "hadoop-client-api"),
    ("org.apache.hadoop", "hadoop-client-runtime"),
    ("software.amazon.awssdk", "bundle"),
)
"""What a set for a session of Spark leaves out."""

DELTA = JarSet("delta", DELTA_VERSION, (("io.delta", "delta-spark_4.2_2.13", DELTA_VERSION),), IN_SPARK)

S3A = JarSet(
    "s3a",
    f"{HADOOP_VERSION}-{AWS_SDK_VERSION}",
    (
        ("org.apache.hadoop", "hadoop-aws", HADOOP_VERSION),
        *(
            ("software.amazon.awssdk", module, AWS_SDK_VERSION)
            for module in ("s3", "s3-transfer-manager", "apache-client", "netty-nio-client", "sts")
        ),
        ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
        ("software.amazon.eventstream", "eventstream", "1.0.1"),
        ("org.reactivestreams", "reactive-streams", "1.0.4"),
    ),
    IN_SPARK,
)
"""The SDK's bundle, which is 686 MB, is left out."""


def cache_folder() -> Path:
    return Path(variable("XDG_CACHE_HOME") or Path.home() / ".cache") / "siltlog"


def jars_of(jar_set: JarSet, cache: Path | None = None) -> list[Path] | None:
    """The jars of `jar_set` when all of them are in the cache as they were downloaded, else None."""
    folder = (cache or cache_folder()) / "jars" / jar_set.folder
    try:
        sizes: dict[str, int] = json.loads((folder / MANIFEST).read_text("utf-8"))
        jars = [folder / name for name in sorted(sizes)]
        return jars if all(jar.stat().st_size == sizes[jar.name] for jar in jars) else None
    except (OSError, ValueError):
        return None


def resolve(jar_set: JarSet, java: Java | None = None, cache: Path | None = None) -> list[Path]:
    """The jars of `jar_set`, downloaded when they are not there; safe beside others that resolve the same.

    Raises ConfigError when there is no Java, no pyspark, or they cannot be downloaded.
    """
    found = jars_of(jar_set, cache)
    if found is not None:
        return found
    java = java or find_java()
    folder = (cache or cache_folder()) / "jars" / jar_set.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        found = jars_of(jar_set, cache)
        if found is None:
            _download(jar_set, java, folder)
            found = jars_of(jar_set, cache)
    assert found is not None
    return found


def _download(jar_set: JarSet, java: Java, folder: Path) -> None:
    """Downloads under the lock. The folder appears whole or not at all."""
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(leftover)
    work = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    fetched = work / "fetched"
    fetched.mkdir(parents=True)
    (work / "ivy.xml").write_text(jar_set.ivy_file(), "utf-8")
    command: list[str | Path] = [java.executable, f"-Divy.default.ivy.user.dir={work / 'ivy'}", "-jar", _ivy_jar()]
    command += ["-ivy", work / "ivy.xml", "-cache", work / "ivy", "-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{fetched}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"]
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=RESOLVE_SECONDS_MAX,
                check=False,
                env=environment_of_programs(),
            )
            failure = "" if run.returncode == 0 else _reason(run.stdout + run.stderr)
        except subprocess.TimeoutExpired:
            failure = f"no answer in {RESOLVE_SECONDS_MAX} s"
        if not failure:
            break
        if attempt == ATTEMPTS_MAX:
            shutil.rmtree(work, ignore_errors=True)
            raise ConfigError(
                f"the {jar_set.name} jars for Spark could not be downloaded ({failure}): "
                f"check the network, then run `{COMMAND}`; it is needed once"
            )
    sizes = {jar.name: jar.stat().st_size for jar in fetched.glob("*.jar")}
    (fetched / MANIFEST).write_text(json.dumps(sizes, indent=1, sort_keys=True), "utf-8")
    if folder.exists():
        os.rename(folder, work / "damaged")  # noqa: PTH104
    os.rename(fetched, folder)  # noqa: PTH104
    shutil.rmtree(work, ignore_errors=True)


def _reason(log: str) -> str:
    """The lines of Ivy's log that say what went wrong."""
    lines = [line.strip(": \t") for line in log.splitlines()]
    telling = [line for line in lines if "not found" in line or "Exception" in line or "FAILED" in line]
    return "; ".join((telling or [line for line in lines if line])[:2]) or "Ivy said nothing"


def _ivy_jar() -> Path:
    found = next(iter((spark_home() / "jars").glob("ivy-*.jar")), None)
    if found is None:
        raise ConfigError(f"{spark_home()} is no whole pyspark: install it again with `pip install 'siltlog[spark]'`")
    return found


def spark_home() -> Path:
    """The folder of the installed pyspark. Raises ConfigError when there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("this needs Spark, which is not installed: `pip install 'siltlog[spark]'`")
    return Path(spec.origin).parent


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
