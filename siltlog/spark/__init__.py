"""Topics in a Spark session of one's own.

    siltlog.spark.read(spark, "flights")              what its table holds, with the columns of Spark's Kafka source
    siltlog.spark.readStream(spark, "flights")        the same as a stream
    siltlog.spark.register(spark)                     then `format("siltlog")` reads the newest records too, and writes

Names are imported when they are first used: Spark's workers, which only fetch and stage, need no Delta library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from siltlog.spark.source import SiltlogSource, register
    from siltlog.spark.tables import read, readStream

_HOMES = {
    "SiltlogSource": "siltlog.spark.source",
    "read": "siltlog.spark.tables",
    "readStream": "siltlog.spark.tables",
    "register": "siltlog.spark.source",
}

__all__ = ["SiltlogSource", "read", "readStream", "register"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'siltlog.spark' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
