"""How a producer publishes: its arguments, checked once, the same for both producers."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from siltlog.infra.client.arrow_body import Compression
from siltlog.infra.client.core import Endpoints
from siltlog.infra.errors import ConfigError

REQUEST_TIMEOUT_MS_MAX = 60_000
Acks = Literal["wal", "table"]
CompressionOption = Compression | Literal["auto"]
"""\"auto\" is lz4, or none towards this machine."""


@dataclass(frozen=True, slots=True)
class PublishOptions:
    acks: Acks | None
    compression: Compression
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int

    def __post_init__(self) -> None:
        """Raises ConfigError that names the argument."""
        if self.acks not in (None, "wal", "table"):
            raise ConfigError(f"acks must be wal or table, not {self.acks!r}: a producer that retries needs an answer")
        if self.compression not in ("none", "lz4", "zstd"):
            raise ConfigError(f"compression must be auto, none, lz4 or zstd, not {self.compression!r}")
        for name, least, most in (
            ("linger_ms", 0, None),
            ("batch_bytes", 1, None),
            ("buffer_bytes", 1, None),
            ("max_block_ms", 0, None),
            ("delivery_timeout_ms", 1, None),
            ("request_timeout_ms", 1, REQUEST_TIMEOUT_MS_MAX),
        ):
            given = getattr(self, name)
            if given < least or (most is not None and given > most):
                raise ConfigError(
                    f"{name} must be at least {least}{f' and at most {most}' if most else ''}, not {given!r}"
                )


def compression_for(endpoints: Endpoints, asked: CompressionOption) -> Compression:
    if asked != "auto":
        return asked
    local = all(urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1") for url in endpoints.urls)
    return "none" if local else "lz4"
