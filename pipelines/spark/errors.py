"""The errors of Spark: which there are, what they were caused by, and what to tell of one."""

from collections.abc import Callable
from contextlib import suppress

from siltlog.infra.store.disk_space import says_full
from siltlog.infra.store.s3_denied import says_denied


def spark_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that Spark raises, also when its JVM is gone."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException, ConnectionError


def lacks_space(error: Exception) -> bool:
    """Whether a full disk is why Spark failed: what it says itself is only that a task did."""
    return _has_cause(error, says_full)


def is_denied(error: Exception) -> bool:
    """Whether a permission of S3 is missing."""
    return _has_cause(error, says_denied)


def _has_cause(error: Exception, says: Callable[[str], bool]) -> bool:
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with suppress(*spark_errors()):  # its JVM may be gone by now
        while cause is not None:
            if says(str(cause.toString())):
                return True
            cause = cause.getCause()
    return False


def reason_of(error: Exception) -> str:
    """Makes one sentence of an error of Spark: without its SQLSTATE, plans and stacks."""
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if isinstance(error, ConnectionError | Py4JNetworkError) or (process is not None and process.poll() is not None):
        return "its JVM ended, perhaps for want of memory"
    java_exception = getattr(error, "java_exception", None)
    text = str(error) if java_exception is None else str(java_exception.toString())
    for end in ("JVM stacktrace", "\n\n", "\n\tat ", " SQLSTATE:"):
        text = text.split(end)[0]
    return " ".join(text.split())
