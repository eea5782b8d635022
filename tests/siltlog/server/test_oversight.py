"""A server that asks who calls: what it audits, across kills and hands that touch it, and what its quotas hold back."""

import base64
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from access_rig import As, Secured, altered, make_first_key, secured_server
from http_rig import NO_REDIS, Http, Reply, exchange
from waiting import until

import siltlog
from siltlog.infra import names
from siltlog.infra.metrics import catalogue
from siltlog.infra.security.audit.chain import PURPOSE, Verifier, read_anchor, told
from siltlog.infra.security.secret import read_secret
from siltlog.testing import running_server

HANGING = """
import asyncio, sys
from pathlib import Path
from siltlog.ingest.topics.topics import Topics
from siltlog.server.audit_log import AuditLog

at, marker = sys.argv[1:]

async def hang(*_, **__):
    Path(marker).touch()
    await asyncio.sleep(3600)

if at == "change":
    Topics.delete = hang
else:
    AuditLog.end = hang
from siltlog.cli.main import main
sys.argv = ["silt", "serve"]
main()
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_server(log_level="info", auto_create_partitions=1) as server:
        yield server


def values_of(admin: Http) -> list[bytes]:
    return [base64.b64decode(record["value_base64"]) for record in admin.read(names.AUDIT_TOPIC)]


def records_of(admin: Http) -> list[dict[str, Any]]:
    members = ("principal", "operation", "resource", "outcome", "status", "detail", "count", "seq")
    return [{name: getattr(told(value), name) for name in members} for value in values_of(admin)]


def last_of(admin: Http, operation: str) -> list[tuple[str, str, int | None, str]]:
    found = [record for record in records_of(admin) if record["operation"] == operation]
    return [(each["resource"], each["outcome"], each["status"], each["detail"]) for each in found]


def faults_of(data_dir: Path, admin: Http, *anchors: str) -> list[str]:
    verifier = Verifier(read_secret(data_dir / "secret").key(PURPOSE), map(read_anchor, anchors), from_start=True)
    found = [finding for at, value in enumerate(values_of(admin)) for finding in verifier.see(at, value)]
    return [finding.fault for finding in (*found, *verifier.end())]


@pytest.mark.rule("A6")
def test_each_change_is_recorded_with_its_end(secured: Secured) -> None:
    admin = secured.admin
    admin.create("changes")
    assert admin.json("PATCH", "/v1/topics/changes", {"partitions": 2}).status == 200
    assert admin.json("PUT", "/v1/topics/changes", {"partitions": 3}).status == 409
    assert admin.call("DELETE", "/v1/topics/changes/partitions/0/records?before_offset=latest").status in (200, 204)
    assert admin.call("DELETE", "/v1/topics/changes").status == 204
    assert admin.call("DELETE", "/v1/topics/changes").status == 404
    assert last_of(admin, "createTopic") == [("topic/changes", "begun", None, ""), ("topic/changes", "done", 201, "")]
    assert last_of(admin, "putTopic")[-1] == ("topic/changes", "refused", 409, "topic_exists")
    assert last_of(admin, "deleteRecords")[-1][:2] == ("topic/changes/partition/0", "done")
    assert last_of(admin, "deleteTopic") == [
        ("topic/changes", "begun", None, ""),
        ("topic/changes", "done", 204, ""),
        ("topic/changes", "begun", None, ""),
        ("topic/changes", "refused", 404, "unknown_topic"),
    ]
    key_id, _ = secured.key("audited", ("viewer", ""))
    assert admin.call("DELETE", f"/v1/access/keys/{key_id}").status == 204
    assert last_of(admin, "revokeKey") == [(f"id/{key_id}", "begun", None, ""), (f"id/{key_id}", "done", 204, "")]
    assert last_of(admin, "createKey")[-1] == ("key/audited", "done", 201, "")
    assert all(record["principal"] == "key:admin" for record in records_of(admin))
    assert faults_of(secured.server.data_dir, admin) == []
    config = admin.get(f"/v1/topics/{names.AUDIT_TOPIC}").json["config"]
    assert config["retention.ms"]["value"] == 400 * 86_400_000


@pytest.mark.rule("A6")
def test_a_topic_that_a_publish_makes_is_recorded_before_it_is_made(secured: Secured) -> None:
    _, caller = secured.key("maker", ("producer", "made"))
    secured.allow("make", "key:maker", "topic", "made", "create", pattern="prefix")
    assert caller.publish("made-by", {"value": "x"}).status == 200
    assert caller.publish("made-by", {"value": "y"}).status == 200
    assert caller.publish("made-never", {"value": 5, "timestamp": "never"}).status == 422
    assert secured.key("only-writes", ("producer", "made"))[1].publish("made-no", {"value": "x"}).status == 403
    made = [record for record in records_of(secured.admin) if record["principal"] == "key:maker"]
    assert [(each["operation"], each["resource"], each["outcome"], each["status"]) for each in made] == [
        ("createTopic", "topic/made-by", "begun", None),
        ("createTopic", "topic/made-by", "done", 201),
    ]


def test_the_log_has_no_value_no_key_of_a_record_and_no_token(secured: Secured) -> None:
    admin = secured.admin
    admin.create("canary")
    assert admin.publish("canary", {"key": "canary-key", "value": "canary-value"}).status == 200
    _, caller = secured.key("canary", ("producer", "canary"))
    assert caller.call("DELETE", "/v1/topics/canary").status == 403
    assert As(admin.url, altered(caller.token or "")).get("/v1/topics").status == 401
    everything = b"\n".join(values_of(admin))
    for secret in (b"canary-key", b"canary-value", (caller.token or "").encode(), (admin.token or "").encode()):
        assert secret not in everything


def test_who_may_not_read_the_log(secured: Secured) -> None:
    path = f"/v1/topics/{names.AUDIT_TOPIC}/partitions/0/records?offset=0"
    _, consumer = secured.key("reader", ("consumer", ""), ("operator", ""))
    assert consumer.get(path).status == 403
    assert consumer.get("/v1/access/audit").status == 403
    secured.allow("may-read", "key:reader", "topic", names.AUDIT_TOPIC, "read")
    assert consumer.get(path).status == 200
    assert consumer.get("/v1/access/audit").status == 403


def test_the_anchor_is_the_last_record(secured: Secured) -> None:
    secured.admin.create("anchored")
    end: dict[str, Any] = {}
    values: list[bytes] = []

    def stands_still() -> bool:
        """Whether none came meanwhile: what was refused before is recorded some seconds later."""
        end.update(secured.admin.get("/v1/access/audit").json)
        values[:] = values_of(secured.admin)
        return end["unwritten"] == 0 and end == secured.admin.get("/v1/access/audit").json

    until(stands_still)
    assert end["seq"] == len([value for value in values if told(value).chain == end["chain"]])
    assert end["anchor"] == f"{end['chain']}:{end['seq']}:{end['mac']}"
    assert faults_of(secured.server.data_dir, secured.admin, end["anchor"]) == []
    cut = f"{end['chain']}:{end['seq'] + 1_000}:{end['mac']}"
    assert faults_of(secured.server.data_dir, secured.admin, cut) == ["cut"]


@pytest.mark.rule("A7")
def test_a_flood_of_refusals_is_a_few_records() -> None:
    with secured_server() as own:
        with ThreadPoolExecutor(4) as pool:
            statuses = list(pool.map(lambda _: own.nobody.get("/v1/topics").status, range(400)))
        assert set(statuses) == {401}
        own.server.stop()
        own.server.restart()
        own.again()
        found = [record for record in records_of(own.admin) if record["status"] == 401]
        assert sum(record["count"] for record in found) == 400
        assert len(found) <= 4
        assert {record["detail"] for record in found} == {"missing"}
        assert "drain" in [record["operation"] for record in records_of(own.admin)]
        assert faults_of(own.server.data_dir, own.admin) == []


@pytest.mark.slow
@pytest.mark.rule("A6")
@pytest.mark.parametrize(("at", "is_there"), [("change", True), ("done", False)])
def test_a_kill_leaves_the_intent(tmp_path: Path, at: str, is_there: bool) -> None:
    """Between the intent and the change, and between the change and the record of its end."""
    settings = {"data_dir": str(tmp_path / "data"), "redis_url": NO_REDIS, "auth": "on"}
    token = make_first_key(**settings)
    with running_server(**settings) as server:
        As(server.url, token).create("killed")
    environment = {
        **os.environ,
        **{f"SILT_{name.upper()}": value for name, value in settings.items()},
        "SILT_PORT": "0",
    }
    marker = tmp_path / "marker"
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, at, str(marker)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        deleting = threading.Thread(target=lambda: _quietly(As(url, token), "/v1/topics/killed"), daemon=True)
        deleting.start()
        until(marker.exists)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with running_server(**settings) as server:
        admin = As(server.url, token)
        assert last_of(admin, "deleteTopic") == [("topic/killed", "begun", None, "")]
        assert admin.get("/v1/topics/killed").status == (200 if is_there else 404)
        admin.create("after")
        assert faults_of(tmp_path / "data", admin) == []


def _quietly(http: Http, path: str) -> None:
    with contextlib.suppress(Exception):
        # The server is killed while it answers.
        http.call("DELETE", path)


# Quotas.


def quota(secured: Secured, name: str, **members: Any) -> None:
    reply = secured.admin.json("PUT", f"/v1/access/quotas/{name}", members)
    assert reply.status == 200, reply


def raw_publish(secured: Secured, caller: As, topic: str, length: int, *, slow: bool) -> bytes:
    """Publishes one record of so many bytes; an additional header takes the request the long way."""
    body = b"x" * length
    more = "X-Long-Way: 1\n" if slow else ""
    head = (
        f"POST /v1/topics/{topic}/records HTTP/1.1\nHost: localhost\nAuthorization: Bearer {caller.token}\n"
        f"Content-Type: application/octet-stream\n{more}Content-Length: {length}"
    )
    with secured.admin.connect() as connection:
        return exchange(connection, head, body)


@pytest.mark.rule("A17")
@pytest.mark.parametrize("slow", [False, True], ids=["fast", "long"])
def test_a_publish_above_a_quota_is_refused_whole_by_either_way(secured: Secured, slow: bool) -> None:
    name = f"limited-{slow}".lower()
    secured.admin.create(name)
    _, caller = secured.key(name, ("producer", name))
    quota(secured, name, principal=f"key:{name}", publish_bytes_per_s=0.5, burst_seconds=2_000)
    assert b"HTTP/1.1 200" in raw_publish(secured, caller, name, 600, slow=slow)
    refused = raw_publish(secured, caller, name, 900, slow=slow)
    head, _, body = refused.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429")
    assert b'"error_code":"rate_limited"' in body
    assert b'"scope":"principal"' in body
    assert b'"limit":"publish_bytes_per_s"' in body
    [after] = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"retry-after")]
    assert 900 <= after <= 1_000, "500 bytes more than there is room for, at half a byte a second"
    assert b"HTTP/1.1 200" in raw_publish(secured, caller, name, 300, slow=slow), "what is refused takes nothing"
    assert secured.admin.end(name) == 2
    quota(secured, name, topic=name, requests_per_s=0.001, burst_seconds=1_000)
    assert b"HTTP/1.1 200" in raw_publish(secured, caller, name, 10_000, slow=slow)
    assert b'"scope":"topic"' in raw_publish(secured, caller, name, 1, slow=slow)
    text = secured.admin.get("/metrics").body.decode()
    assert f'{catalogue.RATE_LIMITED.name}{{scope="topic"}}' in text


@pytest.mark.rule("A17")
def test_one_larger_than_the_burst_passes_once_and_leaves_a_debt(secured: Secured) -> None:
    secured.admin.create("large")
    _, caller = secured.key("large", ("producer", "large"))
    quota(secured, "large", principal="key:large", publish_bytes_per_s=10)
    assert b"HTTP/1.1 200" in raw_publish(secured, caller, "large", 5_000, slow=False)
    assert b"HTTP/1.1 429" in raw_publish(secured, caller, "large", 1, slow=False)


def test_a_body_without_a_length_counts_as_it_comes(secured: Secured) -> None:
    secured.admin.create("chunked")
    _, caller = secured.key("chunked", ("producer", "chunked"))
    quota(secured, "chunked", principal="key:chunked", publish_bytes_per_s=10)

    def chunks() -> Iterator[bytes]:
        yield b"x" * 900
        yield b"y" * 900

    path = "/v1/topics/chunked/records"
    assert caller.call("POST", path, chunks(), Content_Type=names.MEDIA_BYTES).status == 200
    assert caller.call("POST", path, chunks(), Content_Type=names.MEDIA_BYTES).status == 429


def test_what_was_read_counts_for_the_next_read(secured: Secured) -> None:
    secured.admin.create("read")
    assert secured.admin.publish("read", {"value": "x" * 5_000}).status == 200
    _, caller = secured.key("read", ("consumer", "read"))
    quota(secured, "read", principal="key:read", read_bytes_per_s=100)
    path = "/v1/topics/read/partitions/0/records?offset=0"
    assert caller.get(path).status == 200
    refused = caller.get(path)
    assert (refused.status, refused.json["limit"]) == (429, "read_bytes_per_s")
    assert int(refused.headers["retry-after"]) > 20
    assert caller.get("/v1/topics/read").status == 200, "what reads nothing does not wait"


@pytest.mark.rule("A49")
def test_requests_that_are_refused_or_lead_nowhere_count_too(secured: Secured) -> None:
    _, caller = secured.key("knocks", ("viewer", "knocks"))
    quota(secured, "knocks", principal="key:knocks", requests_per_s=0.01, burst_seconds=300)
    ways = ("GET", "/v1/topics/other"), ("GET", "/no/such"), ("POST", "/v1/topics/other/records"), ("GET", "/metrics")
    found = [caller.call(method, path).status for method, path in (*ways, ("GET", "/v1/topics/t/records"))]
    assert found == [403, 404, 403, 429, 429]


@pytest.mark.rule("A50")
def test_what_was_granted_is_recorded(secured: Secured) -> None:
    secured.key("told", ("producer", "told"))
    secured.allow("told-entry", "key:told", "topic", "told", "read", effect="deny")
    quota(secured, "told-quota", principal="key:told", requests_per_s=7)
    found = {each["resource"]: each["detail"] for each in records_of(secured.admin) if each["outcome"] == "begun"}
    assert found["key/told"] == '[{"role":"producer","prefix":"told"}]'
    assert '"principal":"key:told"' in found["acl/told-entry"]
    assert '"operations":["read"]' in found["acl/told-entry"]
    assert '"effect":"deny"' in found["acl/told-entry"]
    assert '"requests_per_s":7.0' in found["quota/told-quota"]
    given = {"principal": "group:told", "role": "viewer", "prefix": "x" * 196}
    assert secured.admin.json("PUT", "/v1/access/bindings/told", given).status == 200
    assert '"role":"viewer"' in last_of(secured.admin, "putBinding")[0][3]


def test_what_is_read_of_several_topics_counts_for_each(secured: Secured) -> None:
    for topic in ("many-a", "many-b"):
        secured.admin.create(topic)
        assert secured.admin.publish(topic, {"value": "x" * 5_000}).status == 200
    _, caller = secured.key("many", ("consumer", "many"))
    _, stranger = secured.key("stranger", ("consumer", "elsewhere"))
    quota(secured, "many-a", topic="many-a", read_bytes_per_s=100)
    quota(secured, "many-b", topic="many-b", requests_per_s=0.01, burst_seconds=200)

    def fetch(who: As, *topics: str) -> Reply:
        return who.json(
            "POST", "/v1/fetch", {"partitions": [{"topic": t, "partition": 0, "offset": 0} for t in topics]}
        )

    for _ in range(3):
        assert fetch(stranger, "many-a", "many-b").status == 200, "who may not read them takes nothing of them"
    quota(secured, "each", topic="*", requests_per_s=1_000)
    assert fetch(caller, "many-a", "many-b", *(f"many-{number}" for number in range(2_000))).status == 200
    refused = fetch(caller, "many-b", "many-a")
    assert (refused.status, refused.json["scope"], refused.json["limit"]) == (429, "topic", "read_bytes_per_s")
    assert fetch(caller, "many-b").status == 200, "what was refused took nothing of the other"
    assert fetch(caller, "many-b").json["limit"] == "requests_per_s"
    path = "/v1/topics/many-a/partitions/0/records?offset=0"
    assert caller.get(path).status == 429, "it is one measure, however it is read"


def test_what_a_member_polls_counts(valkey_url: str) -> None:
    with secured_server(redis_url=valkey_url) as own:
        own.admin.create("polled")
        assert own.admin.publish("polled", {"value": "x" * 5_000}).status == 200
        _, caller = own.key("polled", ("consumer", "polled"))
        quota(own, "polled", principal="key:polled", read_bytes_per_s=100)
        quota(own, "topic", topic="polled", read_bytes_per_s=50)
        asked = {"topics": ["polled"], "wait_ms": 2_000, "auto_offset_reset": "earliest"}
        path = "/v1/groups/polled/members/m/poll"
        polled = caller.json("POST", path, asked)
        while polled.status == 200 and not polled.json["records"]:
            polled = caller.json("POST", path, {**asked, "generation": polled.json["generation"]})
        assert polled.status == 200, polled
        refused = caller.json("POST", path, {**asked, "generation": polled.json["generation"]})
        assert (refused.status, refused.json["scope"]) == (429, "principal")
        read = own.admin.get("/v1/topics/polled/partitions/0/records?offset=0")
        assert (read.status, read.json["scope"]) == (429, "topic")


def test_a_quota_holds_for_streams_that_are_open_already(secured: Secured) -> None:
    secured.admin.create("open")
    _, caller = secured.key("open", ("consumer", "open"))
    head = f"GET /v1/topics/open/tail HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {caller.token}\r\n\r\n"
    with secured.admin.connect() as connection:
        connection.sendall(head.encode())
        assert b"200" in connection.recv(65_536)
        quota(secured, "open", principal="key:open", read_bytes_per_s=100, burst_seconds=0.1)
        assert secured.admin.publish("open", {"value": "x" * 5_000}).status == 200
        got = b""
        while b"event: record" not in got:
            got += connection.recv(65_536)
    refused = caller.get("/v1/topics/open/partitions/0/records?offset=0")
    assert (refused.status, refused.json["limit"]) == (429, "read_bytes_per_s")


def test_a_producer_waits_for_what_it_is_told(secured: Secured) -> None:
    secured.admin.create("patient")
    _, caller = secured.key("patient", ("producer", "patient"))
    quota(secured, "patient", principal="key:patient", requests_per_s=4, burst_seconds=0.5)
    with siltlog.Producer(caller.url, token=caller.token, linger_ms=0) as producer:
        for number in range(12):
            producer.send("patient", str(number)).result(60)
    assert secured.admin.end("patient") == 12


def test_a_stream_rests_instead_of_ending(secured: Secured) -> None:
    """What is more than its quota comes later, all of it."""
    secured.admin.create("streamed")
    for number in range(4):
        assert secured.admin.publish("streamed", {"value": f"{number}" * 2_000}).status == 200
    _, caller = secured.key("streamed", ("consumer", "streamed"))
    quota(secured, "streamed", principal="key:streamed", read_bytes_per_s=4_000, burst_seconds=0.5)
    head = (
        "GET /v1/topics/streamed/tail?offset=earliest HTTP/1.1\nHost: localhost\n"
        f"Authorization: Bearer {caller.token}\nAccept: text/event-stream\n\n"
    )
    began = time.monotonic()
    with secured.admin.connect() as connection:
        connection.sendall(head.replace("\n", "\r\n").encode())
        got = b""
        while got.count(b"event: record") < 4:
            part = connection.recv(65_536)
            assert part, got[-500:]
            got += part
        assert secured.admin.publish("streamed", {"value": "last"}).status == 200
        while b'"last"' not in got:
            part = connection.recv(65_536)
            assert part
            got += part
    assert time.monotonic() - began > 1.2, "eight thousand bytes at four thousand a second are two seconds"


# Caps.


@pytest.mark.rule("A51")
def test_topics_and_partitions_that_somebody_may_make_are_bounded(secured: Secured) -> None:
    _, caller = secured.key("makes", ("producer", "capped"))
    secured.allow("makes", "key:makes", "topic", "capped", "create", "alter", pattern="prefix")
    quota(secured, "makes", principal="key:makes", topics_max=3, partitions_max=5)
    secured.admin.create("capped-by-others")
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda number: caller.json("POST", "/v1/topics", {"name": f"capped-{number}"}).status, range(8))
        assert sorted(made) == [201, 201] + [403] * 6
    refused = caller.publish("capped-by-publishing", {"value": "x"})
    assert (refused.status, refused.error_code, refused.json["limit"]) == (403, "cap_reached", "topics_max")
    refused = caller.json("PUT", "/v1/topics/capped-put", {})
    assert (refused.status, refused.error_code) == (403, "cap_reached")
    assert caller.json("PATCH", "/v1/topics/capped-by-others", {"partitions": 3}).status == 200
    refused = caller.json("PATCH", "/v1/topics/capped-by-others", {"partitions": 4})
    assert (refused.error_code, refused.json["limit"], refused.json["value"]) == ("cap_reached", "partitions_max", 5)
    assert caller.json("PUT", "/v1/topics/capped-by-others", {}).status == 200, "what is there is no new one"
    secured.admin.create("capped-too")
    quota(secured, "makes", principal="key:makes", topics_max=5)
    assert caller.publish("capped-by-publishing", {"value": "x"}).status == 200


@pytest.mark.rule("A51")
def test_groups_that_somebody_may_make_are_bounded(valkey_url: str) -> None:
    with secured_server(redis_url=valkey_url) as own:
        own.admin.create("capped")
        _, caller = own.key("joins", ("consumer", "capped"))
        quota(own, "joins", principal="key:joins", groups_max=2)
        join = {"topics": ["capped"], "generation": 0}

        def joined(who: As, group: str) -> Reply:
            return who.json("PUT", f"/v1/groups/{group}/members/m", join)

        assert joined(own.admin, "elsewhere").status == 200
        assert [joined(caller, f"capped-{number}").status for number in range(2)] == [200, 200]
        refused = joined(caller, "capped-2")
        assert (refused.status, refused.error_code, refused.json["limit"]) == (403, "cap_reached", "groups_max")
        assert caller.json("POST", "/v1/groups/capped-2/members/m/poll", join).error_code == "cap_reached"
        assert joined(caller, "capped-0").status == 200, "one that is there may be joined"
        assert joined(own.admin, "capped-3").status == 200


def test_caps_that_bound_nothing_are_refused(secured: Secured) -> None:
    for wrong in ({"topic": "t", "topics_max": 1}, {"principal": "key:a", "groups_max": -1}, {"principal": "key:a"}):
        assert secured.admin.json("PUT", "/v1/access/quotas/wrong", wrong).status == 422
