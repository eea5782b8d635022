"""Settings of topics by Kafka's clients: shown with where they come from, set, put back, replaced, tried."""

from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from http_rig import Http
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from kafka_rig import Tape

from siltlog.infra.kafka.errors import KafkaError
from siltlog.server.kafka.admin.configs import BROKER, TOPIC

DESCRIBE, REPLACE, CHANGE, LIST = 32, 33, 44, 74
SET, DELETE, APPEND, SUBTRACT = AlterConfigOpType


def own(http: Http, topic: str) -> dict[str, Any]:
    """The settings that a topic has of its own, by HTTP."""
    described = http.get(f"/v1/topics/{topic}").json["config"]
    return {name: entry["value"] for name, entry in described.items() if entry["source"] == "topic"}


def change(admin: AdminClient, topic: str, *entries: tuple[str, AlterConfigOpType, str | None]) -> None:
    edits = [ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in entries]
    resource = ConfigResource("topic", topic, incremental_configs=edits)
    [done] = admin.incremental_alter_configs([resource]).values()
    assert done.result() is None


def test_settings_are_set_and_put_back_one_by_one(http: Http, admin: AdminClient) -> None:
    http.create("changed", retention_ms=60_000)
    change(admin, "changed", ("silt.flush.ms", SET, "50"), ("max.message.bytes", SET, "1000"))
    assert own(http, "changed") == {"retention.ms": 60_000, "flush.ms": 50, "max.record.bytes": 1000}
    change(admin, "changed", ("retention.ms", DELETE, None), ("cleanup.policy", APPEND, "compact"))
    assert own(http, "changed") == {"cleanup.policy": "compact,delete", "flush.ms": 50, "max.record.bytes": 1000}
    change(admin, "changed", ("cleanup.policy", SUBTRACT, "compact"), ("compression.type", SET, "producer"))
    assert own(http, "changed") == {"cleanup.policy": "delete", "flush.ms": 50, "max.record.bytes": 1000}


def test_what_a_replacement_does_not_name_is_put_back(http: Http, admin: AdminClient) -> None:
    http.create("replaced", retention_ms=60_000, flush_ms=50)
    [done] = admin.alter_configs([ConfigResource("topic", "replaced", set_config={"retention.bytes": "100"})]).values()
    assert done.result() is None
    assert own(http, "replaced") == {"retention.bytes": 100}


def test_what_is_chosen_when_a_topic_is_made_outlives_a_replacement(http: Http, admin: AdminClient) -> None:
    http.create("chosen", acks="object", partitioner="murmur2", flush_ms=50)
    [done] = admin.alter_configs([ConfigResource("topic", "chosen", set_config={"retention.bytes": "100"})]).values()
    assert done.result() is None
    assert own(http, "chosen") == {"acks": "object", "partitioner": "murmur2", "retention.bytes": 100}


def test_a_client_of_python_changes_and_shows(http: Http, python_admin: Any) -> None:
    http.create("python-changed")
    resource = PythonResource(ConfigResourceType.TOPIC, "python-changed", configs={"retention.ms": "5000"})
    python_admin.alter_configs([resource])
    assert own(http, "python-changed") == {"retention.ms": 5000}
    python_admin.reset_configs([PythonResource(ConfigResourceType.TOPIC, "python-changed", configs=["retention.ms"])])
    assert own(http, "python-changed") == {}


def test_a_change_may_be_tried(http: Http, bootstrap: str) -> None:
    http.create("tried")
    entry = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    wrong = {**entry, "value": "never"}
    with Tape(bootstrap) as tape:
        for tried, code in ((entry, KafkaError.NONE), (wrong, KafkaError.INVALID_CONFIG)):
            resource = {"resource_type": TOPIC, "resource_name": "tried", "configs": [tried]}
            [answer] = tape.ask(CHANGE, 1, resources=[resource], validate_only=True)["responses"]
            assert answer["error_code"] == code
    assert own(http, "tried") == {}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([("segment.ms", SET, "1")], KafkaError.INVALID_CONFIG),
        ([("retention.ms", SET, "a week")], KafkaError.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], KafkaError.INVALID_CONFIG),
        ([("cleanup.policy", SUBTRACT, "delete")], KafkaError.INVALID_CONFIG),
        ([("silt.acks", SET, "object")], KafkaError.INVALID_CONFIG),
        ([("retention.ms", SET, "1"), ("silt.retention.ms", SET, "2")], KafkaError.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_set_says_why_and_nothing_is_set(
    http: Http, admin: AdminClient, entries: list[tuple[str, AlterConfigOpType, str | None]], code: KafkaError
) -> None:
    if http.get("/v1/topics/kept").status == 404:
        http.create("kept")
    with pytest.raises(KafkaException) as failed:
        change(admin, "kept", ("silt.flush.ms", SET, "50"), *entries)
    assert failed.value.args[0].code() == code
    assert failed.value.args[0].str()
    assert own(http, "kept") == {}


def test_requests_that_are_none_are_refused_one_by_one(http: Http, bootstrap: str) -> None:
    http.create("one")
    good = {"name": "retention.ms", "config_operation": 0, "value": "5"}

    def resource(name: str, *entries: dict[str, Any], kind: int = TOPIC) -> dict[str, Any]:
        return {"resource_type": kind, "resource_name": name, "configs": list(entries)}

    with Tape(bootstrap) as tape:
        asked = [
            resource("one", good, good),
            resource("one", {**good, "config_operation": 9}),
            resource("one", {**good, "value": None}),
            resource("1", good, kind=BROKER),
            resource("absent", good),
            resource("_offsets", good),
        ]
        found = [tape.ask(CHANGE, 1, resources=[each])["responses"][0]["error_code"] for each in asked]
        assert found == [
            KafkaError.INVALID_REQUEST,
            KafkaError.INVALID_REQUEST,
            KafkaError.INVALID_REQUEST,
            KafkaError.INVALID_REQUEST,
            KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ]
        twice = tape.ask(CHANGE, 1, resources=[resource("one", good), resource("one", good)])["responses"]
        assert [each["error_code"] for each in twice] == [KafkaError.INVALID_REQUEST] * 2
        null = {"name": "retention.ms", "value": None}
        [answer] = tape.ask(REPLACE, 2, resources=[resource("one", null)])["responses"]
        assert answer["error_code"] == KafkaError.INVALID_REQUEST
    assert own(http, "one") == {}


def test_a_setting_shows_its_other_values_and_what_it_means(http: Http, bootstrap: str) -> None:
    http.create("shown", flush_ms=50)
    resource = {"resource_type": TOPIC, "resource_name": "shown", "configuration_keys": ["silt.flush.ms"]}
    with Tape(bootstrap) as tape:

        def asked(**more: bool) -> dict[str, Any]:
            [found] = tape.ask(DESCRIBE, 4, resources=[resource], **more)["results"]
            [config] = found["configs"]
            shown: dict[str, Any] = config
            return shown

        told = asked(include_synonyms=True, include_documentation=True)
        # The rig's server has a setting of its own below the topic's.
        assert [(each["value"], each["source"]) for each in told["synonyms"]] == [("50", 1), ("200", 4), ("1000", 5)]
        assert told["documentation"]
        plain = asked()
        assert (plain["synonyms"], plain["documentation"], plain["read_only"]) == ([], None, False)


def test_what_is_as_it_is_shows_and_may_be_asked_for_as_it_is(http: Http, bootstrap: str, admin: AdminClient) -> None:
    http.create("fixed")
    [described] = admin.describe_configs([ConfigResource("topic", "fixed")]).values()
    found = described.result()["min.insync.replicas"]
    assert (found.value, found.is_read_only, found.is_default) == ("1", True, True)
    change(admin, "fixed", ("min.insync.replicas", SET, "1"), ("silt.flush.ms", SET, "50"))
    change(admin, "fixed", ("min.insync.replicas", DELETE, None))
    assert own(http, "fixed") == {"flush.ms": 50}
    with pytest.raises(KafkaException, match="has no other value"):
        change(admin, "fixed", ("min.insync.replicas", SET, "2"))


def test_throttles_of_copies_are_put_back_and_never_set(http: Http, bootstrap: str) -> None:
    http.create("throttled", flush_ms=50)

    def codes(kind: int, resource: str, setting: str) -> list[int]:
        """Puts it back, and sets it; gives what each is answered."""
        found = []
        for operation, value in ((1, None), (0, "5")):
            entry = {"name": setting, "config_operation": operation, "value": value}
            named = {"resource_type": kind, "resource_name": resource, "configs": [entry]}
            [answer] = tape.ask(CHANGE, 1, resources=[named])["responses"]
            assert bool(answer["error_message"]) == bool(answer["error_code"])
            found.append(answer["error_code"])
        return found

    with Tape(bootstrap) as tape:
        assert codes(BROKER, "1", "leader.replication.throttled.rate") == [0, KafkaError.INVALID_REQUEST]
        assert codes(BROKER, "1", "log.cleaner.threads") == [KafkaError.INVALID_REQUEST] * 2
        of_topic = codes(TOPIC, "throttled", "follower.replication.throttled.replicas")
        assert of_topic == [0, KafkaError.INVALID_CONFIG]
    assert own(http, "throttled") == {"flush.ms": 50}


def test_what_has_settings_is_listed(http: Http, bootstrap: str) -> None:
    http.create("has-settings")
    metrics = 16
    with Tape(bootstrap) as tape:

        def listed(version: int, **more: Any) -> set[tuple[str, int]]:
            found = tape.ask(LIST, version, **more)
            assert found["error_code"] == 0
            return {(each["resource_name"], each["resource_type"]) for each in found["config_resources"]}

        assert listed(0) == set()
        assert {("has-settings", TOPIC), ("1", BROKER)} <= listed(1, resource_types=[])
        assert listed(1, resource_types=[BROKER, metrics]) == {("1", BROKER)}
        for kind, sentence in ((8, "log_level"), (32, "timeouts"), (9, "topics (2)")):
            asked = {"resource_type": kind, "resource_name": "x", "configuration_keys": None}
            [told] = tape.ask(DESCRIBE, 4, resources=[asked])["results"]
            assert (told["error_code"], sentence in told["error_message"]) == (KafkaError.INVALID_REQUEST, True)
        asked = {"resource_type": metrics, "resource_name": "x", "configuration_keys": None}
        [told] = tape.ask(DESCRIBE, 4, resources=[asked])["results"]
        assert (told["error_code"], told["configs"]) == (0, [])


def test_what_there_is_not_is_refused_as_by_kafkas_brokers(http: Http, bootstrap: str) -> None:
    http.create("described")
    with Tape(bootstrap) as tape:

        def described(kind: int, name: str, keys: list[str] | None = None) -> Any:
            asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            [told] = tape.ask(DESCRIBE, 4, resources=[asked])["results"]
            assert bool(told["error_message"]) == bool(told["error_code"])
            return told

        for kind in (7, 0, -1):
            answer = tape.ask(LIST, 1, resource_types=[TOPIC, kind])
            assert (answer["error_code"], answer["config_resources"]) == (KafkaError.UNSUPPORTED_VERSION, [])
        for name, code in (("1", 0), ("", 0), ("7", KafkaError.INVALID_REQUEST), ("x", KafkaError.INVALID_REQUEST)):
            assert described(BROKER, name)["error_code"] == code
        for name in ("", "a/b", "."):
            assert described(TOPIC, name)["error_code"] == KafkaError.INVALID_TOPIC_EXCEPTION
        assert described(TOPIC, "absent")["error_code"] == KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        # No names are all of them, as with none named.
        assert described(TOPIC, "described", [])["configs"] == described(TOPIC, "described")["configs"]
        assert len(described(TOPIC, "described", [])["configs"]) > 10
        assert described(TOPIC, "described", ["nothing"])["configs"] == []
