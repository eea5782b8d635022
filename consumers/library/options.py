"""The keywords of a consumer and the handler of a run, checked once, alike for both consumers."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from siltlog.consumers.library.sources.choice import READS, Read
from siltlog.consumers.library.sources.server import Isolation
from siltlog.infra import names
from siltlog.infra.client.calls import topic_list
from siltlog.infra.client.core import READ_TIMEOUT_MS
from siltlog.infra.client.keywords import ConnectionKeywords, check_known, options_of
from siltlog.infra.client.record import TopicPartition, checked_partition
from siltlog.infra.errors import ConfigError
from siltlog.infra.limits import MEMBER_TIMEOUT_MS_MAX, MEMBER_TIMEOUT_MS_MIN

Reset = Literal["earliest", "latest", "error"]
StopAt = Literal["latest"]
OnPartitions = Callable[[list[TopicPartition]], Any]
"""Told of partitions that came or went; of an AsyncConsumer it may be a coroutine function."""

"""The longest timeout of a member that a server takes."""
BUFFER_BYTES_MIN = 64 * 1024


class ConsumerKeywords(ConnectionKeywords, total=False):
    """Both consumers take these options.

    group: the group to read in, with `topics` or `topic_pattern`.
    topics: a topic, or several.
    topic_pattern: a regular expression (RE2) of the topics' whole names.
    assign: the partitions to read, without a group.
    auto_offset_reset: where to begin without a committed offset, or past what is gone: "earliest", "latest", "error".
    auto_commit: whether what is done is committed without being asked to.
    auto_commit_interval_ms: how often.
    isolation: "wal" sees all that is acknowledged, "table" what is in the table.
    read: where rows come from: "auto", "server", or "table".
    stop_at: "latest" ends an iteration at the ends that were seen when it began; None does not.
    idle_timeout_ms: ends an iteration when nothing came for so long; None does not.
    buffer_bytes: so many bytes are fetched ahead.
    session_timeout_ms: the group drops a member that it has not heard of for so long.
    rebalance_timeout_ms: the group waits so long for a member to let go of partitions.
    max_poll_interval_ms: a consumer that is asked for nothing in so long leaves the group, until the next poll.
    retry_timeout_ms: how long calls go on trying while the server cannot be reached.
    request_timeout_ms: how long the server may take for one request, but for those that wait for records or renew the
        session, which have the time of their wait and 5 to 10 s.
    client_id: a name for this consumer, shown with the group's members.
    instance_id: a name that stays: whoever comes back under it within `session_timeout_ms` has its partitions again.
    on_assigned: called with partitions that came.
    on_revoked: called with partitions before they are let go.
    on_lost: called with partitions that are another's already.
    """

    group: str | None
    topics: str | Sequence[str] | None
    topic_pattern: str | None
    assign: Sequence[TopicPartition] | None
    auto_offset_reset: Reset
    auto_commit: bool
    auto_commit_interval_ms: int
    isolation: Isolation
    read: Read
    stop_at: StopAt | None
    idle_timeout_ms: int | None
    buffer_bytes: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    max_poll_interval_ms: int
    retry_timeout_ms: int
    request_timeout_ms: int
    client_id: str | None
    instance_id: str | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    on_lost: OnPartitions | None


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    group: str | None = None
    topics: Sequence[str] = ()
    topic_pattern: str | None = None
    assign: Sequence[TopicPartition] = ()
    auto_offset_reset: Reset = "earliest"
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    isolation: Isolation = "wal"
    read: Read = "auto"
    stop_at: StopAt | None = None
    idle_timeout_ms: int | None = None
    buffer_bytes: int = 32 * 1024 * 1024
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    max_poll_interval_ms: int = 300_000
    retry_timeout_ms: int = 60_000
    request_timeout_ms: int = READ_TIMEOUT_MS
    client_id: str | None = None
    instance_id: str | None = None
    on_assigned: OnPartitions | None = None
    on_revoked: OnPartitions | None = None
    on_lost: OnPartitions | None = None

    @classmethod
    def of(cls, constructor: str, given: ConsumerKeywords) -> Self:
        """Raises TypeError for what is no keyword, else as the class does."""
        check_known(constructor, given, ConsumerKeywords)
        chosen = options_of(given)
        lists = {"topics": topic_list(given.get("topics")), "assign": list(given.get("assign") or ())}
        return cls(**chosen | lists)

    def __post_init__(self) -> None:
        """Raises ConfigError that names the argument."""
        self._check_what()
        for name, choices in (
            ("auto_offset_reset", ("earliest", "latest", "error")),
            ("isolation", ("wal", "table")),
            ("read", READS),
            ("stop_at", (None, "latest")),
        ):
            given = getattr(self, name)
            if given not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(map(str, choices))}, not {given!r}")
        for name, least, most in (
            ("auto_commit_interval_ms", 1, None),
            ("idle_timeout_ms", 0, None),
            ("buffer_bytes", BUFFER_BYTES_MIN, None),
            ("session_timeout_ms", MEMBER_TIMEOUT_MS_MIN, MEMBER_TIMEOUT_MS_MAX),
            ("rebalance_timeout_ms", MEMBER_TIMEOUT_MS_MIN, MEMBER_TIMEOUT_MS_MAX),
            ("max_poll_interval_ms", 1, None),
            ("retry_timeout_ms", 0, None),
            ("request_timeout_ms", 1, None),
        ):
            given = getattr(self, name)
            if given is not None and not isinstance(given, int | float):
                raise ConfigError(f"{name} must be a number, not {given!r}")
            if given is not None and (given < least or (most is not None and given > most)):
                raise ConfigError(
                    f"{name} must be at least {least}{f' and at most {most}' if most else ''}, not {given!r}"
                )

    def _check_what(self) -> None:
        subscribed = bool(self.topics or self.topic_pattern)
        if self.assign and (self.group is not None or subscribed):
            raise ConfigError("give either group= with topics= or topic_pattern=, or assign=, not both")
        if not self.assign and not (self.group and subscribed):
            raise ConfigError(
                "give group= and topics= (or topic_pattern=) to read as a group, "
                "or assign=[TopicPartition(...)] without one"
            )
        if self.instance_id is not None and self.group is None:
            raise ConfigError("instance_id= is of a member of a group; give group=")
        for what, name in (
            ("group", [self.group]),
            ("client_id", [self.client_id]),
            ("instance_id", [self.instance_id]),
        ):
            for given in name:
                wrong = None if given is None else names.name_problem(given)
                if wrong is not None:
                    raise ConfigError(f"{what}: {wrong}")
        for what, topics in (
            ("a topic", self.topics),
            ("assign=", [checked_partition(at).topic for at in self.assign]),
        ):
            for topic in topics:
                wrong = names.readable_topic_problem(topic)
                if wrong is not None:
                    raise ConfigError(f"{what}: {wrong}")
        if len(set(self.assign)) != len(self.assign):
            raise ConfigError("assign= names a partition twice")

    @property
    def sees(self) -> Isolation:
        """The isolation that holds: a consumer that reads only the table sees only the table."""
        return "table" if self.read == "table" else self.isolation

    @property
    def commits_by_itself(self) -> bool:
        return self.auto_commit and self.group is not None


@dataclass(frozen=True, slots=True)
class HandlingOptions:
    """The options of a run, whose defaults stand there."""

    max_attempts: int
    backoff_ms: int
    backoff_ms_max: int
    workers: int

    def __post_init__(self) -> None:
        """Raises ConfigError that names the argument."""
        for name, least in (("max_attempts", 1), ("backoff_ms", 0), ("backoff_ms_max", 0), ("workers", 1)):
            given = getattr(self, name)
            if given < least:
                raise ConfigError(f"{name} must be at least {least}, not {given!r}")

    def backoff_s(self, attempts: int, jitter: float) -> float:
        """How long a record rests after `attempts`, at least one; doubles each time, half of it jittered."""
        ceiling = min(self.backoff_ms_max, self.backoff_ms << min(attempts - 1, 30))
        return ceiling * (1 + jitter) / 2 / 1000


def check_handler(handle: Callable[..., Any], *, awaits: bool) -> None:
    """Raises ConfigError for what cannot be called with one record, or would have to be awaited and is not."""
    if not callable(handle):
        raise ConfigError(f"run takes a function of one record, not {handle!r}")
    called = handle if inspect.isroutine(handle) else type(handle).__call__
    if not awaits and (inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(called)):
        raise ConfigError("the handler is a coroutine function, which only AsyncConsumer.run awaits; give a function")
    try:
        inspect.signature(handle).bind(object())
    except TypeError:
        raise ConfigError(f"run calls {handle!r} with one record, which it does not take alone") from None
    except ValueError:
        # Of some that are written in C nobody knows what they take.
        return
