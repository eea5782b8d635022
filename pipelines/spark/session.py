"""A local Spark session that starts fast, reads Delta and S3, and verifies what it reads.

Under `spark-submit`, or where a session is active already, that one is used as it is.
"""

import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from siltlog.infra.errors import ConfigError, problem
from siltlog.infra.settings.loading import not_for_programs, variable
from siltlog.infra.store.scratch_folder import scratch_folder
from siltlog.infra.store.store import ObjectStore
from siltlog.pipelines.spark.errors import reason_of, spark_errors
from siltlog.pipelines.spark.jars import DELTA, S3A, cache_folder, jars_of, resolve, spark_home
from siltlog.pipelines.spark.java import Java, find_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "2g"
LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
LOG_CHARS_SHOWN = 600
SCRATCH_BYTES_MIN = 16 * 1024 * 1024
"""Free where temporary files are, before Spark is started."""
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit: the JVM is there already, and so are its settings."""

READING = {
    "spark.sql.session.timeZone": "UTC",
    # Off by default in Parquet: without them a flipped page reads as data.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.hadoop.parquet.page.write-checksum.enabled": "true",
    # The default, INT96, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Times before 1900 are times like others.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Settings that the jobs rely on; set on a session that is not ours as well."""

STARTING = {
    "spark.master": "local[*]",
    "spark.app.name": "siltlog",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}

TWICE_TOLD = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of pyspark that print the stack of every error that is raised as well."""

SHORT_JOB_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A job of seconds pays more for the optimising compiler and a parallel collector than they bring."""


@contextmanager
def spark_session(
    store: ObjectStore, *, short_job: bool = True, archive_to: Path | None = None
) -> "Iterator[SparkSession]":
    """The active Spark session, able to reach `store`, or a local one that ends with the block.

    With `archive_to` its JVM writes the classes that it loaded there as it ends. Raises ConfigError, one sentence that
    says what to install, when Spark, Java or the jars are missing; Unavailable `disk_full` when temporary files have no
    space.
    """
    spark_home()
    from pyspark import SparkContext
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    ours = SparkContext._active_spark_context is None and not variable(GATEWAY_PORT)
    with ExitStack() as stack:
        if ours:
            try:
                scratch = stack.enter_context(scratch_folder("spark"))
            except OSError as error:
                raise ConfigError(f"Spark has no place for temporary files: {error}") from error
            if shutil.disk_usage(scratch).free < SCRATCH_BYTES_MIN:
                # pyspark waits for ever for a JVM that cannot write down where it listens.
                raise problem(
                    "disk_full",
                    f"Spark needs {SCRATCH_BYTES_MIN // 1024**2} MiB for temporary files in {tempfile.gettempdir()}; "
                    "free space on its disk, or name another folder in TMPDIR",
                )
            spark = _start(store, short_job, archive_to, scratch)
            stack.callback(_stop, spark)
        else:
            spark = SparkSession.builder.getOrCreate()
        for name in TWICE_TOLD:
            PySparkLogger.getLogger(name).disabled = True
        try:
            for name, value in READING.items():
                _set(spark, name, value)
            for name, value in s3a_settings(store).items():
                _set(spark, f"spark.hadoop.{name}", value)
        except spark_errors() as error:
            raise ConfigError(f"Spark ended as it started: {reason_of(error)}") from error
        yield spark


def _set(spark: "SparkSession", name: str, value: str) -> None:
    if name.startswith("spark.hadoop."):
        # Keys for S3 go here and not into the JVM's arguments, which every user of the machine can read.
        spark.sparkContext._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
    else:
        spark.conf.set(name, value)


@contextmanager
def spark_settings(spark: "SparkSession", values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the queries that run within the block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


_HADOOP_SSE = {"AES256": "AES256", "aws:kms": "SSE-KMS"}


def s3a_settings(store: ObjectStore) -> dict[str, str]:
    """Hadoop's settings for the bucket of `store`; empty on a local root."""
    place = urlsplit(store.root_uri)
    if place.scheme != "s3":
        return {}
    options = store.storage_options()
    endpoint = options.get("AWS_ENDPOINT_URL", "")
    settings = {"endpoint.region": options.get("AWS_REGION", "")}
    if "AWS_SERVER_SIDE_ENCRYPTION" in options:
        settings |= {
            "encryption.algorithm": _HADOOP_SSE[options["AWS_SERVER_SIDE_ENCRYPTION"]],
            "encryption.key": options.get("AWS_SSE_KMS_KEY_ID", ""),
        }
    if endpoint:
        settings |= {"endpoint": endpoint, "path.style.access": "true"}
    if "AWS_ACCESS_KEY_ID" in options:
        token = options.get("AWS_SESSION_TOKEN", "")
        kind = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        settings |= {
            "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{kind}",
            "access.key": options["AWS_ACCESS_KEY_ID"],
            "secret.key": options["AWS_SECRET_ACCESS_KEY"],
            "session.token": token,
        }
    else:
        settings["aws.credentials.provider"] = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    return {f"fs.s3a.bucket.{place.netloc}.{name}": value for name, value in settings.items() if value}


def has_ended(spark: "SparkSession") -> bool:
    """Whether nothing can be run in it any more."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except spark_errors():
        return True


def _start(store: ObjectStore, short_job: bool, archive_to: Path | None, scratch: Path) -> "SparkSession":
    from pyspark import SparkConf

    java = find_java()
    jars = resolve(DELTA, java)
    on_s3 = urlsplit(store.root_uri).scheme == "s3"
    more = resolve(S3A, java) if on_s3 else jars_of(S3A)
    folders = [found[0].parent for found in (jars, more) if found]
    conf = SparkConf(loadDefaults=False)
    for name, value in (STARTING | READING).items():
        conf.set(name, value)
    # Made with the first query, by default in the working directory of whoever asks.
    conf.set("spark.sql.warehouse.dir", str(scratch))
    # A JVM that is killed removes nothing: neither what it spilled nor the libraries that it unpacked.
    conf.set("spark.local.dir", str(scratch))
    cores = os.cpu_count() or 1
    conf.set("spark.sql.shuffle.partitions", str(cores))
    # Files are named one by one: by default the listing of 1,000 of them is a job of 1,000 tasks.
    conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(4 * cores))
    conf.set("spark.driver.extraClassPath", os.pathsep.join(f"{folder}/*" for folder in folders))
    options = [f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}", f"-Djava.io.tmpdir={scratch}"]
    if not short_job:
        return _launch(java, conf, options)
    options += SHORT_JOB_OPTIONS
    if archive_to is not None:
        return _launch(java, conf, [*options, f"-XX:ArchiveClassesAtExit={archive_to}"])
    archive = class_archive(java, folders)
    if not archive.exists():
        return _launch(java, conf, options)
    with suppress(OSError):
        os.utime(archive)  # archives that nobody uses go (`pipelines/setup/class_archive.py`)
    crash = archive.with_suffix(".crash.log")
    try:
        return _launch(java, conf, [*options, f"-XX:SharedArchiveFile={archive}", f"-XX:ErrorFile={crash}"])
    except ConfigError:
        spark = _launch(java, conf, options)
    # One that a power cut or a full disk left damaged crashes the JVM: it is that, when Spark starts without.
    archive.unlink(missing_ok=True)
    crash.unlink(missing_ok=True)
    return spark


def _launch(java: Java, conf: "SparkConf", options: Sequence[str]) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf.set("spark.driver.extraJavaOptions", " ".join(f'"{option}"' for option in options))
    environment: dict[str, str | None] = {
        **dict.fromkeys(not_for_programs()),
        "JAVA_HOME": str(java.home) if java.home else None,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": None,
        "PYSPARK_SUBMIT_ARGS": None,
        # The Python of its workers: by default the first `python3` on PATH, which may have nothing of ours.
        "PYSPARK_PYTHON": sys.executable,
    }
    with tempfile.TemporaryFile() as output, _environment(environment):
        gateway = None
        try:
            with _interrupt_held():
                gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
            SparkContext(gateway=gateway, conf=conf)
            return SparkSession.builder.getOrCreate()
        except BaseException as error:
            if gateway is not None:
                SparkContext._active_spark_context = SparkSession._instantiatedSession = None
                _end(gateway)
            if not isinstance(error, Exception):
                raise
            raise ConfigError(f"Spark did not start with {java.executable}: {_why(error, output)}") from error


@contextmanager
def _interrupt_held() -> Iterator[None]:
    """Ctrl-C, and a SIGTERM that counts as one, is answered at the end of the block: a JVM that is left while it starts
    would stay for ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    interrupts = [number for number in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda number, _: held.append(number)) for number in interrupts}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt


def _stop(spark: "SparkSession") -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    try:
        spark.stop()
    except spark_errors():  # its JVM is gone
        SparkContext._active_spark_context = SparkSession._instantiatedSession = None
    _end(gateway)


def _end(gateway: Any) -> None:
    """The JVM ends when its standard input does; the next session starts one with its own settings."""
    from pyspark import SparkContext

    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


def class_archive(java: Java, jar_folders: Sequence[Path]) -> Path:
    """Returns the path of the archived classes of a session with these jars (`pipelines/setup/class_archive.py`)."""
    executable = java.executable.resolve()
    parts = (executable, executable.stat().st_mtime_ns, spark_home(), *jar_folders)
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"{digest}.jsa"


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """pyspark hands its JVM the environment of this process, and nothing else reaches the scripts that start it."""
    before = {name: variable(name) for name in values}
    _set_environment(values)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)  # noqa: TID251
        else:
            os.environ[name] = value  # noqa: TID251


def _why(error: Exception, output: IO[bytes]) -> str:
    """What went wrong, and the end of what the JVM said, on one line."""
    output.seek(0)
    said = " ".join(output.read().decode("utf-8", "replace").split())[-LOG_CHARS_SHOWN:]
    return "; it said: ".join(filter(None, (" ".join(str(error).split())[:LOG_CHARS_SHOWN], said)))
