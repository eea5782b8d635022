"""Siltlog: a log that settles into Delta. Publish, consume, administrate.

Names are imported when they are first used, so that `import siltlog` costs nothing.
"""

TYPE_CHECKING = False
"""Type checkers take it for true; importing it from `typing` takes longer than all of this."""
if TYPE_CHECKING:
    from typing import Any

    from siltlog.consumers.library.async_consumer import AsyncConsumer
    from siltlog.consumers.library.consumer import Consumer
    from siltlog.consumers.library.record import ConsumerRecord
    from siltlog.infra.client.admin import Admin
    from siltlog.infra.client.async_admin import AsyncAdmin
    from siltlog.infra.client.record import PartitionMetadata, RecordMetadata, TopicPartition
    from siltlog.infra.errors import (
        BufferFull,
        ConfigError,
        CorruptData,
        DeliveryFailed,
        Fenced,
        Forbidden,
        OffsetOutOfRange,
        OutcomeUnknown,
        RecordTooLarge,
        Refused,
        SiltlogError,
        TopicExists,
        Unauthenticated,
        Unavailable,
        UnknownTopic,
    )
    from siltlog.infra.records import Lag
    from siltlog.ingest.library.async_producer import AsyncProducer
    from siltlog.ingest.library.producer import Producer
    from siltlog.table_location import table_uri

    __version__: str

_ERRORS = "siltlog.infra.errors"
_HOMES = {
    "Admin": "siltlog.infra.client.admin",
    "AsyncAdmin": "siltlog.infra.client.async_admin",
    "AsyncConsumer": "siltlog.consumers.library.async_consumer",
    "AsyncProducer": "siltlog.ingest.library.async_producer",
    "BufferFull": _ERRORS,
    "ConfigError": _ERRORS,
    "Consumer": "siltlog.consumers.library.consumer",
    "ConsumerRecord": "siltlog.consumers.library.record",
    "CorruptData": _ERRORS,
    "DeliveryFailed": _ERRORS,
    "Fenced": _ERRORS,
    "Forbidden": _ERRORS,
    "Lag": "siltlog.infra.records",
    "OffsetOutOfRange": _ERRORS,
    "OutcomeUnknown": _ERRORS,
    "PartitionMetadata": "siltlog.infra.client.record",
    "Producer": "siltlog.ingest.library.producer",
    "RecordMetadata": "siltlog.infra.client.record",
    "RecordTooLarge": _ERRORS,
    "Refused": _ERRORS,
    "SiltlogError": _ERRORS,
    "TopicExists": _ERRORS,
    "TopicPartition": "siltlog.infra.client.record",
    "Unauthenticated": _ERRORS,
    "Unavailable": _ERRORS,
    "UnknownTopic": _ERRORS,
    "table_uri": "siltlog.table_location",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BufferFull",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "CorruptData",
    "DeliveryFailed",
    "Fenced",
    "Forbidden",
    "Lag",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "PartitionMetadata",
    "Producer",
    "RecordMetadata",
    "RecordTooLarge",
    "Refused",
    "SiltlogError",
    "TopicExists",
    "TopicPartition",
    "Unauthenticated",
    "Unavailable",
    "UnknownTopic",
    "__version__",
    "table_uri",
]


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("siltlog")
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'siltlog' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
