"""A topic's settings: what is valid, what holds, and how the table keeps it."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from siltlog.infra import delta_names
from siltlog.infra.errors import ConfigError, Refused
from siltlog.infra.settings.topic_config import PARTITIONS_MAX, SETTINGS, TopicConfig, Value, validated_partitions

DEFAULTS: dict[str, Value] = {
    "acks": "wal",
    "compression": "zstd",
    "fetch.compression": "none",
    "cleanup.policy": "delete",
    "partitioner": "xxhash64",
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
    "retention.records": -1,
    "delete.retention.ms": 86_400_000,
    "min.compaction.lag.ms": 0,
    "max.record.bytes": 8_388_608,
    "flush.ms": 1_000,
    "flush.bytes": 16_777_216,
    "flush.files.per.hour": 3_600,
    "removed.files.retention.ms": 86_400_000,
    "timestamp.type": "create",
    "timestamp.after.max.ms": 3_600_000,
    "timestamp.before.max.ms": 1_735_689_600_000,
    "producer.expiration.ms": 86_400_000,
    "idempotency.expiration.ms": 600_000,
}
"""The contract with users, written once more."""


def values_of(name: str) -> st.SearchStrategy[Value]:
    setting = SETTINGS[name]
    return st.integers(setting.minimum, setting.maximum) if setting.kind == "int" else st.sampled_from(setting.choices)


CONFIGS = st.fixed_dictionaries({}, optional={name: values_of(name) for name in SETTINGS})


def test_the_defaults_are_the_contract() -> None:
    described = TopicConfig({}).describe()
    assert {name: entry["value"] for name, entry in described.items()} == DEFAULTS
    assert {entry["source"] for entry in described.values()} == {"default"}


@given(CONFIGS, CONFIGS)
def test_a_topics_own_over_the_servers_over_the_defaults(own: dict[str, Value], server: dict[str, Value]) -> None:
    config = TopicConfig(own, server)
    for name, default in DEFAULTS.items():
        value = own.get(name, server.get(name, default))
        source = "topic" if name in own else "server" if name in server else "default"
        assert config[name] == value
        assert config.describe()[name] == {"value": value, "source": source}
        if isinstance(value, int):
            assert config.integer(name) == value


@given(CONFIGS)
def test_the_tables_properties_keep_what_is_the_topics_own(own: dict[str, Value]) -> None:
    properties = TopicConfig(own, {"acks": "table"}).properties()
    assert all(isinstance(value, str) for value in properties.values())
    others = {
        delta_names.PROPERTY_TOPIC_ID: "x",
        "delta.appendOnly": "false",
        delta_names.PROPERTY_CONFIG_PREFIX + "newer": "1",
    }
    assert TopicConfig.from_properties(properties | others).own == own


@given(CONFIGS, st.dictionaries(st.sampled_from(sorted(SETTINGS)), st.none()), CONFIGS)
def test_a_merge_patch(own: dict[str, Value], removed: dict[str, None], changed: dict[str, Value]) -> None:
    before = TopicConfig(own, {"acks": "table"})
    patch = removed | changed
    assume((own | patch).get("partitioner") in (before["partitioner"], *[None] * (before["partitioner"] == "xxhash64")))
    after = before.patched(patch)
    expected = {name: value for name, value in (own | patch).items() if value is not None}
    assert (after.own, before.own) == (expected, own)
    assert after.entry("acks") == (("topic", expected["acks"]) if "acks" in expected else ("server", "table"))[::-1]
    # What a table keeps after the change, where it keeps what neither names.
    kept = before.properties() | TopicConfig(changed).properties(own.keys() - expected.keys())
    assert TopicConfig.from_properties(kept).own == expected


@pytest.mark.rule("KF23")
@pytest.mark.parametrize(("own", "change"), [({}, "murmur2"), ({"partitioner": "murmur2"}, None)])
def test_the_partitioner_stays(own: dict[str, Value], change: str | None) -> None:
    before = TopicConfig(own)
    with pytest.raises(ConfigError, match="is chosen when a topic is made"):
        before.patched({"flush.ms": 5, "partitioner": change})
    assert before.patched({"partitioner": before["partitioner"]})["partitioner"] == before["partitioner"]


def test_what_cannot_be_put_back() -> None:
    with pytest.raises(ConfigError, match=r"there is no setting 'flush\.seconds'"):
        TopicConfig({}).patched({"flush.seconds": None})
    with pytest.raises(ConfigError, match="whole number"):
        TopicConfig({"flush.ms": 5}).patched({"acks": None, "flush.ms": "fast"})


def test_a_property_that_is_not_valid_is_named() -> None:
    with pytest.raises(ConfigError, match=r"flush\.ms must be a whole number"):
        TopicConfig.from_properties({delta_names.PROPERTY_CONFIG_PREFIX + "flush.ms": "fast"})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"retention.hours": 1}, "there is no setting 'retention.hours'; did you mean 'retention.ms'? there are: acks"),
        ({"colour": "red"}, "there is no setting 'colour'; there are: acks"),
        ({"flush.ms": "1000"}, "flush.ms must be a whole number from 1"),
        ({"flush.ms": 0}, "flush.ms must be a whole number from 1"),
        ({"flush.ms": 1.5}, "whole number"),
        ({"flush.ms": True}, "whole number"),
        ({"flush.ms": None}, "whole number"),
        ({"flush.ms": 2**53}, "whole number"),
        ({"retention.ms": -2}, "(-1 is unlimited)"),
        ({"retention.ms": 2**53}, "from -1 to 9007199254740991 (-1 is unlimited), not 9007199254740992"),
        ({"removed.files.retention.ms": 3_600_000}, "must be a whole number from 21600000 to 86400000, not 3600000"),
        ({"removed.files.retention.ms": 90_000_000}, "to 86400000, not 90000000"),
        ({"acks": "all"}, "acks must be one of none, written, wal, object, table"),
        ({"acks": 1}, "acks must be one of"),
        ({"cleanup.policy": ["delete"]}, "one of delete, compact"),
    ],
)
def test_what_is_not_valid_is_told_with_what_is(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TopicConfig(config)
    assert (caught.value.error_code, caught.value.status) == ("invalid_config", 422)
    assert words in caught.value.detail


@pytest.mark.parametrize("count", [1, PARTITIONS_MAX])
def test_partition_counts(count: int) -> None:
    assert validated_partitions(count) == count


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1, True, 1.0, "1", None])
def test_partition_counts_that_are_none(count: Any) -> None:
    with pytest.raises(Refused, match="from 1 to 10000"):
        validated_partitions(count)
