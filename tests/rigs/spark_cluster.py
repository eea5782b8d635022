"""A Spark standalone cluster on the loopback: a master and two workers of one core each, from the installed pyspark."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from siltlog.pipelines.spark.jars import DELTA, resolve, spark_home
from siltlog.pipelines.spark.java import find_java

WORKERS = 2
WORKER_MEMORY = "600m"
START_SECONDS_MAX = 120.0
JOB_SECONDS_MAX = 600
DAEMON_MEMORY = "128m"
DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SMALL_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "500m",
    # For seconds of work the optimising compiler costs more than it brings.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(WORKERS),
    "spark.databricks.delta.snapshotPartitions": "2",
}


class StandaloneCluster:
    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self._folder = folder
        self._java = find_java()
        master = self._start(processes, "master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            options = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(folder / f"work-{number}"))
            name = f"worker-{number}"
            worker = self._start(processes, name, "org.apache.spark.deploy.worker.Worker", *options, self.url)
            self._said(worker, r"(Successfully registered with master)")

    def submit(self, script: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`spark-submit` of a script to its end."""
        jars = ",".join(str(jar) for jar in resolve(DELTA))
        options = [f"--conf={name}={value}" for name, value in (DELTA_CONF | SMALL_CONF).items()]
        command: Sequence[str] = (
            str(spark_home() / "bin" / "spark-submit"), "--master", self.url, "--jars", jars, *options, str(script)
        )  # fmt: skip
        return subprocess.run(
            [*command, *arguments],
            env=self._environment(),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=JOB_SECONDS_MAX,
            check=False,
        )

    def _environment(self) -> dict[str, str]:
        home = {"JAVA_HOME": str(self._java.home)} if self._java.home else {}
        return os.environ | home | {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            "SPARK_DAEMON_JAVA_OPTS": DAEMON_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
        }  # fmt: skip

    def _start(self, processes: ExitStack, name: str, kind: str, *options: str) -> tuple["subprocess.Popen[str]", Path]:
        log = self._folder / f"{name}.log"
        command = [
            str(spark_home() / "bin" / "spark-class"),
            kind,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *options,
        ]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, env=self._environment(), cwd=self._folder, stdout=output, stderr=output, text=True
            )
        processes.callback(_end, process)
        return process, log

    def _said(self, started: tuple["subprocess.Popen[str]", Path], pattern: str) -> str:
        process, log = started
        deadline = time.monotonic() + START_SECONDS_MAX
        while (found := re.search(pattern, log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)
        return found[1]


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    with ExitStack() as processes:
        yield StandaloneCluster(folder, processes)
