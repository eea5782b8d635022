"""Access lists of Kafka, which there are none of: whoever asks, makes or deletes some is told so."""

import pytest
from kafka_rig import Tape

from siltlog.infra.kafka.errors import KafkaError

DESCRIBE, CREATE, DELETE = 29, 30, 31
ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_they_are_refused_as_by_a_broker_without(bootstrap: str, version: int) -> None:
    with Tape(bootstrap) as tape:
        described = tape.ask(DESCRIBE, version, **FILTER)
        made = tape.ask(CREATE, version, creations=[ACL, ACL])["results"]
        deleted = tape.ask(DELETE, version, filters=[FILTER])["filter_results"]
    assert (len(made), len(deleted), deleted[0]["matching_acls"]) == (2, 1, [])
    for told in (described, *made, *deleted):
        assert told["error_code"] == KafkaError.SECURITY_DISABLED
        assert "silt access" in told["error_message"]
