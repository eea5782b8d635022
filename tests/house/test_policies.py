"""Servers and jobs at work under the policies of terraform/, enforced: they allow what is needed, and nothing else."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from http_rig import Http
from record_tables import append, claimed
from s3_policies import FOLDER, Policed, Statement, names_of, parse, policed, statements
from s3_server import S3Server, with_new_bucket

from siltlog.cli.main import run
from siltlog.cli.records.location import files_below
from siltlog.infra import names
from siltlog.infra.clock import SystemClock
from siltlog.infra.cluster.view import ClusterView, encode_view
from siltlog.infra.errors import SiltlogError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.once import put_once
from siltlog.infra.store.probe import check_shared_root
from siltlog.infra.store.store import ObjectStore, Put, delete_all, open_store
from siltlog.infra.table.delta import commit_actions, open_handle
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.audit.audit import audit_topics
from siltlog.pipelines.retention.journals import left_journals
from siltlog.pipelines.retention.leftovers import FINISHED_REPLAY_MS, leftovers
from siltlog.pipelines.retention.retain import retain_topics
from siltlog.pipelines.retention.vacuum import PERIOD_MS_MAX, vacuum, vacuum_topics
from siltlog.pipelines.schedule.lease import KEPT_ENTRIES, ScheduleLease
from siltlog.server_process import ServerProcess
from siltlog.spark.options import write_options
from siltlog.spark.sink import Sink

pytestmark = pytest.mark.s3
LATER_US = 3 * 24 * 3_600_000_000
ONLY_AFTER_FAILURES = {"s3:AbortMultipartUpload"}
"""What nobody needs while all goes well: of uploads in parts that were cut short nothing is to stay."""


class Later(SystemClock):
    """Days ahead, when logs are cut and files that were removed go."""

    def now_us(self) -> int:
        return super().now_us() + LATER_US


@dataclass
class Place:
    """A root, and a folder for backups and exports, on an S3 that enforces a policy."""

    s3: S3Server
    prefix: str

    @property
    def root(self) -> str:
        return self.s3.root_uri(self.prefix)

    @property
    def elsewhere(self) -> str:
        return self.s3.root_uri(f"{self.prefix}-places")

    def policy(self, name: str) -> list[Statement]:
        text = "\n".join(file.read_text("utf-8") for file in sorted(FOLDER.glob("*.tf")))
        places = [{"bucket_arn": f"arn:aws:s3:::{self.s3.bucket}", "prefix": f"{self.prefix}-places", "key": "0"}]
        found = statements(parse(text, names_of(self.s3.bucket, self.prefix)), name, places)
        return [statement for statement in found if not statement["actions"][0].startswith("kms:")]

    def store(self, by: Policed | None = None) -> ObjectStore:
        return open_store(self.root, s3_endpoint=self.s3.endpoint if by is None else by.endpoint)

    def settings(self, by: Policed) -> dict[str, Any]:
        return {"root": self.root, "s3_endpoint": by.endpoint, "s3_region": self.s3.region}


@pytest.fixture
def place(s3_server: S3Server) -> Place:
    name = f"policy-{uuid.uuid4().hex[:8]}"
    return Place(with_new_bucket(s3_server, name), name)


@pytest.fixture
def server_policy(place: Place) -> Iterator[Policed]:
    with policed(place.s3.endpoint, place.policy("server")) as found:
        yield found


@pytest.fixture
def jobs_policy(place: Place) -> Iterator[Policed]:
    with policed(place.s3.endpoint, place.policy("jobs")) as found:
        yield found


@pytest.fixture
def server(tmp_path: Path, place: Place, server_policy: Policed) -> Iterator[ServerProcess]:
    settings = {**place.settings(server_policy), "flush_ms": 50, "redis_url": "redis://127.0.0.1:1/0"}
    process = ServerProcess(tmp_path / "data", settings)
    process.start()
    yield process
    process.stop()


def not_needed(by: Policed) -> set[tuple[str, str]]:
    """What a policy allows and nobody asked for."""
    granted = {
        (action, resource)
        for statement in by.policy
        for action in statement["actions"]
        for resource in statement["resources"]
        if action not in ONLY_AFTER_FAILURES
    }
    return granted - by.allowed


def publish(http: Http, topic: str, count: int, first: int = 0, *, once: bool = True) -> None:
    """`once`: each with an idempotency key; a record without one may go as soon as it has expired."""
    for number in range(first, first + count):
        record = {"key": f"k{number % 3}", "value": f"v{number}"}
        headers = {"Idempotency_Key": f"{topic}-{number}"} if once else {}
        reply = http.publish(topic, record, query="?acks=table", **headers)
        assert reply.status == 200, reply


def cut(store: ObjectStore, by: ObjectStore, topic: str) -> None:
    """Its log is old days later: `by` whom it is cut twice, so that a mark takes the place of another."""
    for _ in range(2):
        open_handle(store, topic).create_checkpoint()
        TopicTable.open(by, topic, Later()).clean_log(Later().now_us() // 1000)
        commit_actions(open_handle(store, topic), [], {"another": 1}, str(uuid.uuid4()))


@pytest.mark.slow
def test_a_server_lives_by_its_policy(place: Place, server: ServerProcess, server_policy: Policed) -> None:
    http = Http(server.url)
    for topic in ("logs", "gone"):
        http.create(topic, 1)
    publish(http, "gone", 1)
    for number in range(4):  # of producer state the newest two objects stay
        publish(http, "logs", 6, 6 * number)
        path = f"/v1/topics/logs/partitions/0/records?before_offset={6 * number + 5}"
        assert http.call("DELETE", path).status == 200
    assert http.call("GET", "/v1/topics/logs/partitions/0/records?offset=23").status == 200
    assert http.json("PATCH", "/v1/topics/logs", {"config": {"flush.ms": 60}}).status == 200
    assert http.call("DELETE", "/v1/topics/gone").status == 204
    server.restart()
    publish(http, "logs", 1, 99)
    assert server.stop() == 0
    cut(place.store(), place.store(server_policy), "logs")
    shared(place.store(server_policy))
    assert server_policy.denied == []
    assert not_needed(server_policy) == set()


def shared(store: ObjectStore) -> None:
    """What nodes share is put, raced for and let go by its names."""
    check_shared_root(store, "start")
    put_once(store, f"{names.SHARED_STRANDED_FOLDER}/{names.stranded_file('t', 'id', 0, 1, 2)}", b"x")
    for path in (
        names.access_object(1),
        names.beat_object("n1"),
        names.view_object(1),
        names.journal_object("n1", "start", 0),
    ):
        assert store.put_if_absent(path, b"x") is Put.WRITTEN
        store.delete(path)


@pytest.fixture
def jobs_place(
    place: Place, jobs_policy: Policed, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """What the jobs of the command line go by."""
    for name, value in {**place.settings(jobs_policy), "url": server.url, "data_dir": tmp_path / "jobs"}.items():
        monkeypatch.setenv(names.ENV_PREFIX + name.upper(), str(value))
    return place


def done(*arguments: str) -> None:
    assert run([*arguments]) == 0, arguments


def filled(http: Http) -> None:
    http.create("logs", 1, retention_ms=-1)
    http.create("copy", 1)
    publish(http, "logs", 6, once=False)


def by_spark_alone(by: Policed, place: Place) -> set[tuple[str, str]]:
    return {("s3:PutObject", f"arn:aws:s3:::{place.s3.bucket}/{place.prefix}/topics/*/rewrite-*")} & not_needed(by)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_of_spark_do_their_work_by_their_policy(
    spark: Any, jobs_place: Place, server: ServerProcess, jobs_policy: Policed
) -> None:
    http = Http(server.url)
    filled(http)
    http.json("PATCH", "/v1/topics/logs", {"config": {"cleanup.policy": "compact"}})
    done("compact", "--topic", "logs")
    done("replay", "--topic", "logs", "--into", "copy", "--run", "some", "--where", "key = 'k1'")
    assert http.end("copy") == 1
    assert jobs_policy.denied == []
    assert by_spark_alone(jobs_policy, jobs_place) == set()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_do_their_work_by_their_policy(jobs_place: Place, server: ServerProcess, jobs_policy: Policed) -> None:
    http, place = Http(server.url), jobs_place
    filled(http)
    done("replay", "--topic", "logs", "--into", "copy", "--run", "all")
    sink = Sink(write_options({"topic": "copy", "url": server.url, "writerId": "sink"}, streaming=True), ["value"])
    for batch in range(2):
        sink.publish(batch, [sink.stage(iter([pa.record_batch({"value": ["a", "b"]})]))])
    assert http.end("copy") == 6 + 4
    done("audit")
    done("export", "--topic", "logs", "--to", f"{place.elsewhere}/export")
    done("import", f"{place.elsewhere}/export", "--topic", "copy")
    for _ in range(2):
        done("backup", "--to", f"{place.elsewhere}/backups", "--keep", "1")
    done("restore", "--from", f"{place.elsewhere}/backups", "--root", f"{place.root}/restored", "--dry-run")
    assert http.json("PATCH", "/v1/topics/logs", {"config": {"retention.ms": 1}}).status == 200
    done("retain")
    done("vacuum")
    lease = ScheduleLease(place.store(jobs_policy), "holder", "here", SystemClock())
    assert lease.take() and all(lease.renew({}) for _ in range(KEPT_ENTRIES + 1))
    lease.release({})
    assert server.stop() == 0
    later(place, jobs_policy)
    # S3 does not tie a list of uploads to a prefix, so that nobody may have it: the bucket's own rule ends them.
    assert {asked.action for asked in jobs_policy.denied} == {"s3:ListBucketMultipartUploads"}
    assert not_needed(jobs_policy) == by_spark_alone(jobs_policy, place)


def later(place: Place, policy: Policed) -> None:
    """What vacuum removes is old enough only after days."""
    clock, store, lake = Later(), place.store(policy), place.store()
    now_ms = clock.now_us() // 1000
    table = TopicTable.open(store, "logs", clock)
    assert table.snapshot.files == {}, "retention has emptied it"
    lake.put(f"{names.topic_path('logs')}/{names.rewrite_folder('cut-short')}/a.parquet", b"x")
    for offset in range(3):
        lake.put(f"{names.topic_path('logs')}/{names.state_object(table.topic_id, 0, offset)}", b"x")
    lake.put(f"{names.STAGING_FOLDER}/gone/{names.STAGED_FILES}/run/a.arrow", b"x")
    lake.put(names.probe_object("killed-0"), b"x")
    lake.put(
        names.view_object(1), encode_view(ClusterView(number=1, cluster_id="c", controller="", journal="", nonce=""))
    )
    lake.put(names.journal_object("gone", "start", 0), b"x" * 2_000)
    cut(lake, store, "logs")
    vacuum(store, "logs", retention_ms=PERIOD_MS_MAX, now_ms=now_ms, dry_run=False, clock=clock)
    later_ms = now_ms + FINISHED_REPLAY_MS
    left = [*leftovers(store, cutoff_ms=now_ms, now_ms=later_ms), *left_journals(store, store, later_ms)]
    delete_all(store, left)


def denied_by(error: SiltlogError | None, action: str, place: Place) -> None:
    assert error is not None and (error.error_code, error.retryable) == ("store_denied", "no"), error
    assert f"does not allow {action} on " in error.detail and place.prefix in error.detail, error.detail


@pytest.mark.parametrize("action", ["s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"])
def test_a_permission_that_is_missing_is_named(
    place: Place,
    server_policy: Policed,
    jobs_policy: Policed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
) -> None:
    table = claimed(place.store(server_policy), "logs", 1)
    append(place.store(server_policy), table, {0: 5})
    gone = f"{names.topic_path('logs')}/{names.rewrite_folder('run')}/a.parquet"
    place.store().put(gone, b"x")
    settings = ServerSettings(data_dir=tmp_path, **place.settings(jobs_policy))
    for policy in (server_policy, jobs_policy):
        policy.denied_actions = {action}

    def refused(what: Callable[[], object]) -> None:
        with pytest.raises(SiltlogError) as raised:
            what()
        denied_by(raised.value, action, place)

    if action == "s3:PutObject":
        refused(lambda: append(place.store(server_policy), table, {0: 5}))
        refused(lambda: table.release({0: 1}, str(uuid.uuid4())))
        refused(lambda: claimed(place.store(server_policy), "more", 1))
    elif action == "s3:DeleteObject":
        refused(lambda: place.store(jobs_policy).delete(gone))
        refused(lambda: delete_all(place.store(jobs_policy), place.store().list(gone.rpartition("/")[0])))
    elif action == "s3:GetObject":
        [report] = audit_topics(settings, ["logs"])
        denied_by(report.error, action, place)
        refused(table.refresh)
    else:
        for job in (audit_topics, retain_topics):
            refused(lambda job=job: job(settings))  # type: ignore[misc]
        refused(lambda: vacuum_topics(settings))
        monkeypatch.setenv(names.ENV_S3_ENDPOINT, jobs_policy.endpoint)
        refused(lambda: files_below(f"{place.elsewhere}/export"))


def test_a_server_tells_of_a_permission_that_is_missing_and_goes_on_with_it(
    server: ServerProcess, server_policy: Policed, place: Place
) -> None:
    http = Http(server.url)
    http.create("logs", 1)
    publish(http, "logs", 1)
    server_policy.denied_actions = {"s3:PutObject"}
    assert http.publish("logs", {"value": "kept in the log"}).status == 200
    while "does not allow s3:PutObject on " not in str(http.get("/readyz").json["warnings"]):
        assert server.running
    reply = http.json("POST", "/v1/topics", {"name": "more", "partitions": 1})
    assert (reply.error_code, reply.json["retryable"]) == ("store_denied", "no")
    server_policy.denied_actions = set()
    publish(http, "logs", 1, 7)
    assert http.bounds("logs")["table_offset"] == 3
    assert server.stop() == 0


@pytest.mark.slow
def test_a_server_tells_of_a_clock_that_is_wrong_and_goes_on_once_it_is_set(
    server: ServerProcess, server_policy: Policed, place: Place
) -> None:
    http = Http(server.url)
    http.create("logs", 1)
    publish(http, "logs", 1)
    server_policy.reason = "RequestTimeTooSkewed"
    server_policy.denied_actions = {"s3:GetObject", "s3:PutObject", "s3:ListBucket", "s3:DeleteObject"}
    assert http.publish("logs", {"value": "kept in the log"}).status == 200
    # It is asked by a HEAD, whose answer says no more than 403.
    while "the object store at" not in (warnings := str(http.get("/readyz").json["warnings"])):
        assert server.running
    assert "set the clock of this machine" in warnings and "does not allow" not in warnings
    reply = http.json("POST", "/v1/topics", {"name": "more", "partitions": 1})
    assert (reply.status, reply.error_code, reply.json["retryable"]) == (503, "topic_unavailable", "yes")
    assert "set the clock of this machine" in reply.json["detail"]
    server_policy.denied_actions = set()
    publish(http, "logs", 1, 7)
    assert http.bounds("logs")["table_offset"] == 3
    assert server.stop() == 0
