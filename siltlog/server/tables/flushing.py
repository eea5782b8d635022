"""What this node says of the flushes of a topic that it has."""

from siltlog.infra.clock import Clock
from siltlog.infra.errors import SiltlogError
from siltlog.ingest.log.log import Log
from siltlog.server.tables.health import Flushing


def flushing_of(log: Log, clock: Clock, name: str) -> Flushing | None:
    """None of a topic that this node does not have."""
    try:
        topic = log.topic(name)
    except SiltlogError:
        return None
    since = [at for part in topic.partitions if (at := part.head.oldest_unflushed_seconds) is not None]
    lag_ms = max(round((clock.monotonic() - min(since)) * 1000), 0) if since else None
    if topic.state in ("unavailable", "fenced"):
        return Flushing(f"the topic takes no records: {topic.availability.reason}", lag_ms)
    return Flushing(f"the last flush to the table failed: {topic.flush_error}" if topic.flush_error else "", lag_ms)
