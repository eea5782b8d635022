"""Processes of Python beside a session of Spark: its workers, which import pyspark with its bytecode where a test
starts Spark within `fast_workers`, and other drivers of the same JVM."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).with_name("spark_site")


@contextmanager
def fast_workers() -> Iterator[pytest.MonkeyPatch]:
    """What is started in the block has them; the environment is as before after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SITE), prepend=os.pathsep)
        yield patch


def environment_of_jvm(spark: Any) -> dict[str, str]:
    """Where a process that calls `join_jvm` finds the JVM of a session, and this module."""
    parameters = spark.sparkContext._gateway.gateway_parameters
    return {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))),
    }


def join_jvm() -> None:
    """Makes the session of that JVM the active one of this process, which may be killed without it: a JVM of its own
    takes longer to start than most of what a test has it do."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jvm=jvm, _jconf=context.getConf()))
