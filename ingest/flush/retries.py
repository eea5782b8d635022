"""When what failed of a topic is tried again, and for how long what is under way has lasted."""

from collections.abc import MutableMapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from siltlog.infra.clock import Clock
from siltlog.ingest.log.topic import TopicLog

RETRY_SECONDS_BASE = 0.25
RETRY_SECONDS_MAX = 5.0
RETRY_MS_MIN = 50
HANGING_SECONDS = 2.0


class Failures(NamedTuple):
    """A topic's failed flushes since the last that succeeded; times are on the monotonic clock."""

    since_seconds: float
    attempts: int
    pause_seconds: float
    again_seconds: float
    reason: str
    worth_saying: bool = True
    """The first of its kind, or one of fewer and fewer."""

    def another(self, now_seconds: float, reason: str) -> "Failures":
        attempts = self.attempts + 1
        pause = min(RETRY_SECONDS_BASE * 2**attempts, RETRY_SECONDS_MAX)
        rare = attempts & (attempts - 1) == 0
        return Failures(self.since_seconds, attempts, pause, now_seconds + pause, reason, rare or reason != self.reason)


class Retries:
    """Used on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self.succeeded_seconds = 0.0
        """When something last succeeded."""
        self._clock = clock
        # Weak, so that a topic that is deleted goes with all its records in memory.
        self._failures: MutableMapping[TopicLog, Failures] = WeakKeyDictionary()
        self._began_seconds: dict[TopicLog, float] = {}

    def began(self, topic: TopicLog) -> None:
        self._began_seconds[topic] = self._clock.monotonic()

    def ended(self, topic: TopicLog) -> None:
        del self._began_seconds[topic]

    def may_start(self, topic: TopicLog) -> bool:
        """Whether nothing failed of the topic, or long enough ago."""
        failures = self._failures.get(topic)
        return failures is None or self._clock.monotonic() >= failures.again_seconds

    def failed(self, topic: TopicLog, error: Exception) -> Failures:
        now = self._clock.monotonic()
        failures = (self._failures.get(topic) or Failures(now, 0, 0.0, 0.0, "")).another(now, str(error))
        self._failures[topic] = failures
        return failures

    def succeeded(self, topic: TopicLog) -> bool:
        """Forgets what failed of the topic; whether anything had."""
        self.succeeded_seconds = self._clock.monotonic()
        return self._failures.pop(topic, None) is not None

    def retry_ms(self) -> int | None:
        """When a flush may succeed, as far as that is known: None while none fails or hangs."""
        now = self._clock.monotonic()
        if self._failures:
            again = min(failures.again_seconds for failures in self._failures.values()) - now
            return max(int(again * 1000), RETRY_MS_MIN)
        hanging = max((now - began for began in self._began_seconds.values()), default=0.0)
        # As long again as it has lasted.
        return int(min(hanging, RETRY_SECONDS_MAX) * 1000) if hanging > HANGING_SECONDS else None
