"""A topic's configuration: its names, defaults, limits and how it is kept in the table's properties."""

import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple

from siltlog.infra import delta_names
from siltlog.infra.clock import TIME_MAX_US, TIME_MIN_US
from siltlog.infra.errors import problem
from siltlog.infra.settings.suggestion import did_you_mean

Source = Literal["topic", "server", "default"]
Value = int | str

UNLIMITED = -1
PARTITIONS_MAX = 10_000
FLUSH_WAIT_MS_MAX = 300_000
"""How long `flush.files.per.hour` may keep a record from its table (`flush.ms`, where that is longer)."""
TIMESTAMP_BEFORE_MAX_MS = 20_089 * 86_400_000
"""55 years: what is a time in seconds is one of January or February 1970 in milliseconds, and longer ago."""
REMOVED_FILES_MS_MIN = 21_600_000
"""Jobs read the files of one version for so long."""
REMOVED_FILES_MS_MAX = 86_400_000
"""The log forgets then which files it removed when."""
_INTEGER_MAX = 2**53 - 1
_INTEGER = re.compile(r"-?[0-9]+")


class Setting(NamedTuple):
    default: Value
    kind: Literal["int", "choice"]
    meaning: str
    minimum: int = 0
    choices: tuple[str, ...] = ()
    maximum: int = _INTEGER_MAX


LEVELS = ("none", "written", "wal", "object", "table")
"""What an acknowledgement can stand for, the weakest first."""
LOCAL_LEVELS = ("written", "wal")
"""The levels that rest on the disk of one node."""
SETTINGS: dict[str, Setting] = {
    "acks": Setting("wal", "choice", "What an acknowledgement stands for.", choices=LEVELS),
    "compression": Setting(
        "zstd", "choice", "How the table's files are compressed.", choices=("zstd", "lz4", "snappy", "gzip", "none")
    ),
    "fetch.compression": Setting(
        "none",
        "choice",
        "How records are compressed for clients of Kafka that read them.",
        choices=("none", "lz4", "zstd", "snappy", "gzip"),
    ),
    "cleanup.policy": Setting(
        "delete",
        "choice",
        "What expires: old records, all but the last of each key, or both.",
        choices=("delete", "compact", "compact,delete"),
    ),
    "partitioner": Setting(
        "xxhash64",
        "choice",
        "How the partition of a key is found, by Siltlog's clients or by Kafka's; chosen when a topic is made.",
        choices=("xxhash64", "murmur2"),
    ),
    "retention.ms": Setting(604_800_000, "int", "How old a record may become.", UNLIMITED),
    "retention.bytes": Setting(UNLIMITED, "int", "How large a partition may become.", UNLIMITED),
    "retention.records": Setting(UNLIMITED, "int", "How many records a partition may have.", UNLIMITED),
    "delete.retention.ms": Setting(
        86_400_000, "int", "How long a tombstone stays after the compaction that first kept it as the last of its key."
    ),
    "min.compaction.lag.ms": Setting(0, "int", "How old a record is before key compaction touches it."),
    "max.record.bytes": Setting(8_388_608, "int", "The largest record.", 1),
    "flush.ms": Setting(1_000, "int", "How long a record may wait for the table.", 1),
    "flush.bytes": Setting(16_777_216, "int", "How many bytes may wait for the table.", 1),
    "flush.files.per.hour": Setting(
        3_600, "int", "How many small files it may make; past that partitions with little wait longer.", UNLIMITED
    ),
    "removed.files.retention.ms": Setting(
        REMOVED_FILES_MS_MAX,
        "int",
        "How long a file that was compacted or expired stays for those who read an older version.",
        REMOVED_FILES_MS_MIN,
        maximum=REMOVED_FILES_MS_MAX,
    ),
    "timestamp.type": Setting(
        "create", "choice", "Whose time a record has: its publisher's, or the server's.", choices=("create", "append")
    ),
    "timestamp.after.max.ms": Setting(
        3_600_000, "int", "How far ahead of the server's clock a timestamp may be.", UNLIMITED
    ),
    "timestamp.before.max.ms": Setting(
        TIMESTAMP_BEFORE_MAX_MS, "int", "How far behind the server's clock a timestamp may be.", UNLIMITED
    ),
    "producer.expiration.ms": Setting(
        86_400_000, "int", "How long a producer that is silent is known, so that its retries are.", 1
    ),
    "idempotency.expiration.ms": Setting(600_000, "int", "How long an Idempotency-Key is known.", 1),
}


def answered_at(own: str, asked: str) -> str:
    """The level at which a request is answered that asks for `asked`, of a topic whose own is `own`.

    Raises Refused `unsupported_acks` where the topic cannot keep what is asked for.
    """
    if own == "object" and asked in LOCAL_LEVELS:
        return "object"
    if asked != "object" or own == "object":
        return asked
    if own == "table":
        return "table"
    raise problem(
        "unsupported_acks",
        "this topic's records are in the object store only once they are in its table: ask for acks=table, or publish "
        "to a topic that was made with acks=object",
    )


class ConfigValue(NamedTuple):
    value: Value
    source: Source


class TopicConfig:
    """The settings that hold for one topic: its own over the server's over the defaults. Read-only."""

    def __init__(self, own: Mapping[str, Value], server: Mapping[str, Value] | None = None) -> None:
        """Raises Refused `invalid_config` when a name or value of `own` is not valid."""
        self.own = {name: validated(name, value) for name, value in own.items()}
        self._server = dict(server or {})
        self._values = {name: self.entry(name).value for name in SETTINGS}

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def entry(self, name: str) -> ConfigValue:
        return self.layers(name)[0]

    def layers(self, name: str) -> list[ConfigValue]:
        """Lists every value that a setting has: the one that holds, then those that would without it."""
        found = [ConfigValue(self.own[name], "topic")] if name in self.own else []
        if name in self._server:
            found.append(ConfigValue(self._server[name], "server"))
        return [*found, ConfigValue(SETTINGS[name].default, "default")]

    def times_us(self, now_us: int, *, stored: bool = False) -> tuple[int, int]:
        """The earliest and the latest timestamp that a record may have; for `stored` ones the defaults do not hold."""
        before_ms, after_ms = self.integer("timestamp.before.max.ms"), self.integer("timestamp.after.max.ms")
        if stored:
            before_ms = UNLIMITED if self.entry("timestamp.before.max.ms").source == "default" else before_ms
            after_ms = UNLIMITED if self.entry("timestamp.after.max.ms").source == "default" else after_ms
        return (
            TIME_MIN_US if before_ms == UNLIMITED else now_us - before_ms * 1000,
            TIME_MAX_US if after_ms == UNLIMITED else now_us + after_ms * 1000,
        )

    def describe(self) -> Mapping[str, Mapping[str, Value]]:
        """`{"retention.ms": {"value", "source"}, ...}` of every setting."""
        return self._described

    @cached_property
    def _described(self) -> Mapping[str, Mapping[str, Value]]:
        # A list of topics asks each of many.
        return {name: self.entry(name)._asdict() for name in SETTINGS}

    def with_own(self, own: Mapping[str, Value]) -> "TopicConfig":
        """`own` over the same settings of the server."""
        return TopicConfig(own, self._server)

    def patched(self, changes: Mapping[str, Any]) -> "TopicConfig":
        """A merge patch (RFC 7396) of the topic's own settings: None puts one back. Raises ConfigError, also where
        another partitioner would hold then."""
        own = {**self.own, **changes}
        for name, value in changes.items():
            if value is None:
                _setting(name)
                del own[name]
        changed = self.with_own(own)
        if changed["partitioner"] != self["partitioner"]:
            raise problem(
                "invalid_config",
                f"the partitioner, {self['partitioner']}, is chosen when a topic is made: a key's newer records would "
                "go to another partition than its older ones. Create another topic, and copy the records there",
            )
        return changed

    def properties(self, former: Collection[str] = ()) -> dict[str, str]:
        """The table properties that keep the topic's own settings.

        Those of `former` that are not among them are put back: a property cannot be removed, so it is emptied.
        """
        texts = {name: str(value) for name, value in self.own.items()}
        return {
            delta_names.PROPERTY_CONFIG_PREFIX + name: text
            for name, text in (dict.fromkeys(former, "") | texts).items()
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], server: Mapping[str, Value] | None = None) -> "TopicConfig":
        """Leaves out what this version does not know. Raises Refused `invalid_config` for a value that is not valid."""
        own: dict[str, Value] = {}
        for name, setting in SETTINGS.items():
            text = properties.get(delta_names.PROPERTY_CONFIG_PREFIX + name, "")
            if text:
                own[name] = int(text) if setting.kind == "int" and _INTEGER.fullmatch(text) else text
        return cls(own, server)


def validated(name: str, value: Any) -> Value:
    """`value` when it may be the setting `name`; raises Refused `invalid_config` that says what would be valid."""
    setting = _setting(name)
    if setting.kind == "int":
        if not isinstance(value, int) or isinstance(value, bool) or not setting.minimum <= value <= setting.maximum:
            unlimited = " (-1 is unlimited)" if setting.minimum == UNLIMITED else ""
            raise problem(
                "invalid_config",
                f"{name} must be a whole number from {setting.minimum} to {setting.maximum}{unlimited}, not {value!r}",
            )
        return value
    if value not in setting.choices:
        raise problem("invalid_config", f"{name} must be one of {', '.join(setting.choices)}, not {value!r}")
    assert isinstance(value, str)
    return value


def _setting(name: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        meant = did_you_mean(name, SETTINGS)
        raise problem("invalid_config", f"there is no setting {name!r}{meant or ';'} there are: {', '.join(SETTINGS)}")
    return setting


def validated_partitions(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= PARTITIONS_MAX:
        raise problem("invalid_request", f"partitions must be a whole number from 1 to {PARTITIONS_MAX}, not {count!r}")
    return count
