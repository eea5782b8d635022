"""Spark's Python workers, which import pyspark with its bytecode where a test starts Spark within `fast_workers`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SITE = Path(__file__).with_name("spark_site")


@contextmanager
def fast_workers() -> Iterator[pytest.MonkeyPatch]:
    """For what is started in the block; the environment is as before after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SITE), prepend=os.pathsep)
        yield patch
