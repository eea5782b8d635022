"""How a producer publishes: its keywords, checked once, the same for both producers."""

from dataclasses import dataclass
from typing import Literal, Self

from siltlog.infra.client.bodies.arrow_body import Compression, CompressionOption, compression_for
from siltlog.infra.client.endpoints import Endpoints
from siltlog.infra.client.keywords import ConnectionKeywords, check_known, options_of
from siltlog.infra.errors import ConfigError

REQUEST_TIMEOUT_MS_MAX = 60_000
Acks = Literal["written", "wal", "object", "table"]


class ProducerKeywords(ConnectionKeywords, total=False):
    """Both producers take these options.

    acks: what an acknowledgement stands for, "written", "wal", "object" or "table"; None is the topic's own level.
    linger_ms: how long a record waits at most for others to travel with.
    batch_bytes: a batch that has so many bytes waits no longer.
    buffer_bytes: so many bytes may wait for their acknowledgement.
    max_block_ms: how long a send waits for room in the buffer before it raises BufferFull.
    delivery_timeout_ms: what is not acknowledged so long after its send has failed.
    request_timeout_ms: how long the server may take for one request.
    compression: "none", "lz4", "zstd", or "auto": lz4, or none towards this machine.
    """

    acks: Acks | None
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    compression: CompressionOption


@dataclass(frozen=True, slots=True)
class PublishOptions:
    compression: Compression
    acks: Acks | None = None
    linger_ms: float = 5
    batch_bytes: int = 1024 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 15_000

    @classmethod
    def of(cls, constructor: str, endpoints: Endpoints, given: ProducerKeywords) -> Self:
        """Raises TypeError for what is no keyword, else as the class does."""
        check_known(constructor, given, ProducerKeywords)
        chosen = options_of(given)
        return cls(**chosen | {"compression": compression_for(endpoints, given.get("compression", "auto"))})

    def __post_init__(self) -> None:
        """Raises ConfigError that names the argument."""
        if self.acks not in (None, "written", "wal", "object", "table"):
            raise ConfigError(
                f"acks must be written, wal, object or table, not {self.acks!r}: a producer that retries needs an "
                "answer"
            )
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
