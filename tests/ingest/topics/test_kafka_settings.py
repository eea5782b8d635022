"""Settings of a topic by Kafka's names: what is taken is ours, what means nothing here is refused."""

import pytest

from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.topic_config import SETTINGS, TopicConfig
from siltlog.ingest.topics.kafka_settings import own_settings, told_settings


def test_kafkas_names_and_values_are_ours() -> None:
    given = {
        "cleanup.policy": "delete, compact",
        "compression.type": "uncompressed",
        "max.message.bytes": "1000",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
        "silt.flush.ms": "50",
        "silt.acks": "table",
    }
    assert own_settings(given) == {
        "cleanup.policy": "compact,delete",
        "compression": "none",
        "max.record.bytes": 1000,
        "timestamp.type": "append",
        "timestamp.before.max.ms": -1,
        "retention.ms": -1,
        "flush.bytes": 52_428_800,
        "flush.ms": 50,
        "acks": "table",
    }
    assert own_settings({"silt.flush.bytes": "7"}) == {"flush.bytes": 7}, "also by the name that it has only here"
    assert own_settings({"compression.type": "producer", "retention.ms": None}) == {}


@pytest.mark.parametrize("name", ["segment.ms", "flush.ms", "silt.", "silt.segment.bytes", "acks"])
def test_what_means_nothing_here_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="means nothing here"):
        own_settings({name: "1"})


def test_what_is_as_it_is_has_no_other_value() -> None:
    assert own_settings({"min.insync.replicas": "1"}) == own_settings({"min.insync.replicas": None}) == {}
    with pytest.raises(ConfigError, match=r"is 1 and has no other value: .*object store"):
        own_settings({"min.insync.replicas": "2"})


@pytest.mark.parametrize("text", ["a week", "", "1_000", "9223372036854775808", "1" * 5_000])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    for name in ("retention.ms", "delete.retention.ms"):
        with pytest.raises(ConfigError, match="must be a whole number"):
            own_settings({name: text})


@pytest.mark.parametrize("name", ["delete.retention.ms", "min.compaction.lag.ms"])
def test_the_largest_number_of_kafka_is_ours_and_reads_back(name: str) -> None:
    largest = "9223372036854775807"
    taken = own_settings({name: largest})
    assert taken == {name: 2**53 - 1}
    told = {each.name: each.value for each in told_settings(TopicConfig(taken))}
    assert told[name] == largest
    assert own_settings({name: "9007199254740990"}) == {name: 2**53 - 2}


def test_a_policy_may_come_in_any_order_and_twice() -> None:
    for text, policy in (("delete,compact", "compact,delete"), ("compact,compact", "compact"), ("delete", "delete")):
        assert own_settings({"cleanup.policy": text}) == {"cleanup.policy": policy}
    for text in ("", "delete,", "delete,gone"):
        with pytest.raises(ConfigError, match=r"cleanup\.policy must be one of"):
            TopicConfig(own_settings({"cleanup.policy": text}))


def test_compression_that_nobody_chose_is_as_the_producer_sends_it() -> None:
    def told(config: TopicConfig) -> list[str]:
        [found] = [each for each in told_settings(config) if each.name == "compression.type"]
        return [found.value, *(text for _, text in found.layers)]

    assert told(TopicConfig(own_settings({"compression.type": "producer"}))) == ["producer"] * 2
    assert told(TopicConfig(own_settings({"compression.type": "zstd"}))) == ["zstd", "zstd", "producer"]
    assert told(TopicConfig({}, {"compression": "none"})) == ["uncompressed", "uncompressed", "producer"]


def test_every_setting_is_told_and_what_is_told_is_taken() -> None:
    config = TopicConfig({"retention.ms": 5, "timestamp.type": "append"}, {"flush.ms": 7})
    told = {each.name: each for each in told_settings(config)}
    fixed = [each.name for each in told.values() if each.is_fixed]
    assert (len(told) - len(fixed), fixed) == (len(SETTINGS), ["min.insync.replicas"])
    assert (told["retention.ms"].value, told["retention.ms"].source) == ("5", "topic")
    assert (told["message.timestamp.type"].value, told["silt.flush.ms"].source) == ("LogAppendTime", "server")
    taken = own_settings({each.name: each.value for each in told.values()})
    # What was not chosen stays so.
    assert taken == {name: config[name] for name in SETTINGS if name != "compression"}
