"""The options of `format("siltlog")`."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

import siltlog.spark
from siltlog.infra.errors import ConfigError
from siltlog.spark.options import Moment, Moments, read_options, write_options

URL = {"url": "http://silt.example:7070/"}


def test_options_are_kafkas_where_they_can_be() -> None:
    options = read_options(
        {
            "subscribe": "a, b",
            "startingOffsets": '{"a": {"0": 42, "1": -2}}',
            "maxOffsetsPerTrigger": "500",
            "FailOnDataLoss": "FALSE",
            **URL,
        },
        streaming=True,
    )
    assert options.topics == ("a", "b")
    assert options.url == "http://silt.example:7070"
    assert options.starting == {"a": {0: 42, 1: -2}}
    assert (options.max_offsets_per_trigger, options.fail_on_data_loss) == (500, False)


def test_a_batch_is_all_there_is_unless_said() -> None:
    options = read_options({"path": "a", **URL}, streaming=False)
    assert (options.starting, options.ending, options.isolation, options.read) == ("earliest", "latest", "wal", "auto")
    assert read_options({"path": "a", "read": "table", **URL}, streaming=False).isolation == "table"


@pytest.mark.parametrize("text", ["1767225600000", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"])
def test_times(text: str) -> None:
    options = read_options({"topic": "a", "startingTimestamp": text, **URL}, streaming=False)
    assert options.starting == Moment(1_767_225_600_000_000)


def test_a_time_for_each_partition() -> None:
    given = {"topic": "a", "startingOffsetsByTimestamp": '{"a": {"1": 1767225600000}}', **URL}
    assert read_options(given, streaming=True).starting == Moments({"a": {1: 1_767_225_600_000_000}})


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({}, False, "name what to read"),
        ({"topic": "a", "path": "b"}, False, "once"),
        ({"topic": " , "}, False, "no topic"),
        ({"topic": "a/b"}, False, "characters"),
        ({"topic": "a", "kafka.bootstrap.servers": "x:9092"}, False, "kafka.bootstrap.servers"),
        ({"topic": "a", "startingOffsets": "latest"}, False, "startingOffsets"),
        ({"topic": "a", "endingOffsets": "earliest"}, False, "endingOffsets"),
        ({"topic": "a", "endingOffsets": "latest"}, True, "no end"),
        ({"topic": "a", "startingOffsets": "{}", "startingTimestamp": "1"}, True, "not both"),
        ({"topic": "a", "startingOffsets": '{"a": 1}'}, True, "startingOffsets"),
        ({"topic": "a", "startingTimestamp": "yesterday"}, True, "startingTimestamp"),
        ({"topic": "a", "startingTimestamp": "99999999999999999999"}, True, "years 1 to 9999"),
        ({"topic": "a", "startingOffsets": '{"b": {"0": 1}}'}, True, "'b'"),
        ({"topic": "a", "startingOffsets": '{"a": {"0": -3}}'}, False, "the offset -3"),
        ({"topic": "a", "endingOffsets": '{"a": {"0": -2}}'}, False, "the offset -2"),
        ({"topic": "a", "startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"a": {"0": 8}}'}, False, "before it"),
        ({"topic": "a", "startingOffsetsByTimestamp": "1"}, True, "milliseconds as"),
        ({"topic": "a", "startingOffsetsByTimestamp": "{}", "startingOffsets": "latest"}, True, "not both"),
        ({"topic": "a", "endingOffsetsByTimestamp": "{}"}, True, "no end"),
        ({"topic": "a", "maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger"),
        ({"topic": "a", "maxOffsetsPerTrigger": "5"}, False, "for streams"),
        ({"topic": "a", "failOnDataLoss": "no"}, True, "failondataloss"),
        ({"topic": "a", "isolation": "dirty"}, True, "isolation"),
        ({"topic": "a", "url": "localhost"}, True, "URL"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, str], streaming: bool, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(URL | given, streaming=streaming)
    assert words.lower() in str(refused.value).lower()


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ({"checkpointLocation": "/data/check point/"}, "file:///data/check%20point/siltlog"),
        ({"checkpointLocation": "s3a://b/c"}, "s3://b/c/siltlog"),
        ({"checkpointLocation": "hdfs://n/c", "stagingLocation": "s3://b/s"}, "s3://b/s"),
        ({"stagingLocation": "file:/data/s"}, "file:///data/s"),
        ({"writerId": "w", "checkpointLocation": "hdfs://n/c"}, None),
    ],
)
def test_where_a_stream_stages(given: dict[str, str], location: str | None) -> None:
    assert write_options(URL | {"topic": "a"} | given, streaming=True).staging_location == location


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"topic": "a,b", "writerId": "w"}, True, "one topic"),
        ({"topic": "a"}, True, "checkpointLocation"),
        ({"topic": "a", "checkpointLocation": "hdfs://n/c"}, True, "stagingLocation"),
        ({"topic": "a", "checkpointLocation": "relative"}, True, "no place"),
        ({"topic": "a", "writerId": "w", "batchId": "1"}, True, "batchId"),
        ({"topic": "a", "batchId": "1"}, False, "together"),
        ({"topic": "a", "writerId": "w"}, False, "together"),
        ({"topic": "a", "writerId": "a b", "batchId": "0"}, False, "writerId"),
        ({"topic": "a", "writerId": "w", "batchId": "-1"}, False, "batchId"),
        ({"topic": "a", "acks": "none"}, False, "acks"),
        ({"topic": "a", "startingOffsets": "latest"}, False, "startingoffsets"),
    ],
)
def test_a_write_that_makes_no_sense_is_refused(given: dict[str, str], streaming: bool, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        write_options(URL | given, streaming=streaming)
    assert words in str(refused.value)


def test_the_names_that_users_hold_on_to() -> None:
    given = {name: inspect.signature(getattr(siltlog.spark, name)).parameters for name in siltlog.spark.__all__}
    assert {name: " ".join(f"{'*' * one.kind.name.startswith('KEY')}{one.name}" for one in parameters.values())
            for name, parameters in given.items()} == {
        "SiltlogSource": "options",
        "read": "spark topic *url *root",
        "readStream": "spark topic *url *root",
        "register": "spark",
    }  # fmt: skip
    assert siltlog.spark.SiltlogSource.name() == "siltlog"


@pytest.mark.rule("X8")
def test_a_token_is_of_a_file_or_given_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "token").write_text("canary\n")
    safe = {"topic": "a", "url": "https://silt.example"}
    for options in (read_options, write_options):
        made: Any = options({**safe, "token": "canary"}, streaming=False)
        assert made.credentials.token == "canary" and "canary" not in repr(made)
        made = options({**safe, "tokenFile": str(tmp_path / "token")}, streaming=False)
        assert pickle.loads(pickle.dumps(made)).credentials.token() == "canary"
        assert b"canary" not in pickle.dumps(made), "a task reads the file where it runs"
        monkeypatch.setenv("SILT_TOKEN", "of-the-driver")
        assert options(safe, streaming=False).credentials.token == "of-the-driver"
        monkeypatch.delenv("SILT_TOKEN")
        for given, words in (
            ({"token": "a", "tokenFile": "b"}, "not both"),
            ({"tokenFile": str(tmp_path / "none")}, "tokenFile"),
            ({"token": "canary", **URL}, "plain http"),
            ({"ca": str(tmp_path / "ca.pem"), **URL}, "https"),
        ):
            with pytest.raises(ConfigError, match=words) as refused:
                options({**safe, **given}, streaming=False)
            assert "canary" not in str(refused.value)
