"""The numbers that a producer counts of itself."""

import msgspec


class ProducerMetrics(msgspec.Struct, frozen=True, gc=False):
    """Totals since the producer was made, and what is so now."""

    records_acknowledged: int
    records_failed: int
    requests: int
    """Publish requests answered well."""
    requests_failed: int
    """Publish requests that were refused, lost or put off; most are tried again."""
    request_bytes: int
    """The bytes of bodies as they were sent; a request that is repeated counts each time."""
    request_seconds: float
    """The time that publish requests took, from first byte to answer."""
    requests_in_flight: int
    records_buffered: int
    """How many records are not decided yet."""
    bytes_buffered: int
    """The part of `buffer_bytes` in use."""


class ProducerCounts:
    """Counted up as things happen; the caller locks."""

    def __init__(self) -> None:
        self.records_acknowledged = 0
        self.records_failed = 0
        self.requests = 0
        self.requests_failed = 0
        self.request_bytes = 0
        self.request_seconds = 0.0
        self.requests_in_flight = 0

    def sent(self, body_bytes: int) -> None:
        self.request_bytes += body_bytes
        self.requests_in_flight += 1

    def answered(self, seconds: float, good: bool) -> None:
        self.requests_in_flight -= 1
        self.request_seconds += seconds
        if good:
            self.requests += 1
        else:
            self.requests_failed += 1

    def decided(self, acknowledged: int, failed: int) -> None:
        self.records_acknowledged += acknowledged
        self.records_failed += failed

    def snapshot(self, records_buffered: int, bytes_buffered: int) -> ProducerMetrics:
        return ProducerMetrics(
            self.records_acknowledged,
            self.records_failed,
            self.requests,
            self.requests_failed,
            self.request_bytes,
            self.request_seconds,
            self.requests_in_flight,
            records_buffered,
            bytes_buffered,
        )
