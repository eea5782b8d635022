"""Catalogs told of a root's tables: AWS Glue as moto plays it, Unity's REST as its document says, Hive by Spark."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import pytest
from chaos import only_with_chaos
from http_rig import Http
from moto import mock_aws
from record_tables import CLOCK, append, claimed, new_id

from siltlog.cli.main import run
from siltlog.infra.errors import ConfigError
from siltlog.infra.settings.settings import ServerSettings
from siltlog.infra.store.store import open_store
from siltlog.infra.table.table import TopicTable
from siltlog.pipelines.catalog.glue import GlueCatalog
from siltlog.pipelines.catalog.opening import catalog_of
from siltlog.pipelines.catalog.plan import CatalogTable
from siltlog.pipelines.catalog.register import Catalog, register_topics
from siltlog.pipelines.catalog.unity import UnityCatalog
from siltlog.testing import running_server

SEEN_SECONDS = 60.0
POLL_SECONDS = 0.05
EACH_SECOND = "* * * * * *"


@pytest.fixture
def settings(tmp_path: Path) -> ServerSettings:
    store = open_store((tmp_path / "root").as_uri())
    for topic in ("events", "Web.clicks", "_jobs"):
        append(store, claimed(store, topic, 1), {0: 3})
    return ServerSettings(root=(tmp_path / "root").as_uri(), data_dir=tmp_path)


@pytest.fixture
def glue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "played")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        yield boto3.client("glue")


class Unity(ThreadingHTTPServer):
    """Tables of one schema, two a page, as the server of the open-source Unity Catalog keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), UnityHandler)
        self.kept: dict[str, dict[str, Any]] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class UnityHandler(BaseHTTPRequestHandler):
    server: Unity
    needed = ("name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns", "storage_location")

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(place.query).items()}
        if self.headers["Authorization"] != "Bearer let-me-in":
            return self.reply(401, {"message": "no"})
        if place.path != "/api/2.1/unity-catalog/tables" or (asked["catalog_name"], asked["schema_name"]) != (
            "main",
            "logs",
        ):
            return self.reply(404, {"error_code": "SCHEMA_NOT_FOUND", "message": "Schema not found"})
        first = int(asked.get("page_token", 0))
        names = sorted(self.server.kept)
        more = {"next_page_token": str(first + 2)} if len(names) > first + 2 else {"next_page_token": None}
        return self.reply(200, {"tables": [self.server.kept[name] for name in names[first : first + 2]], **more})

    def do_POST(self) -> None:
        table = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if lacking := [name for name in self.needed if not table.get(name)]:
            return self.reply(400, {"message": f"{lacking} lacking"})
        if table["name"] in self.server.kept:
            return self.reply(409, {"error_code": "TABLE_ALREADY_EXISTS", "message": "Table already exists"})
        self.server.kept[table["name"]] = table
        return self.reply(200, table)

    def do_DELETE(self) -> None:
        gone = self.server.kept.pop(unquote(self.path.rpartition("/tables/main.logs.")[2]), None)
        return self.reply(200 if gone else 404, {})


@pytest.fixture
def unity() -> Iterator[Unity]:
    server = Unity()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(params=["glue", "unity"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    server = request.getfixturevalue(request.param)
    return UnityCatalog(server.url, "main.logs", "let-me-in") if request.param == "unity" else GlueCatalog("logs", None)


def test_tables_come_stay_are_put_right_and_go_with_their_topics(settings: ServerSettings, catalog: Catalog) -> None:
    def done(**more: Any) -> dict[str, str]:
        return {change.table: change.action for change in register_topics(settings, catalog, **more)}

    store = open_store(settings.root_uri)
    assert done(dry_run=True) == {"web_clicks": "create", "events": "create"}
    assert catalog.tables() == []
    assert done() == {"web_clicks": "create", "events": "create"}
    assert done() == {"web_clicks": "keep", "events": "keep"}
    assert {table.topic: table.location for table in catalog.tables()} == {
        topic: store.uri(f"topics/{topic}") for topic in ("Web.clicks", "events")
    }
    assert done(topics=["_jobs"]) == {"_jobs": "create"}
    events = next(table for table in catalog.tables() if table.name == "events")
    catalog.drop("events")
    catalog.create(type(events)(events.name, events.topic, events.root, "s3://elsewhere/events"))
    assert done(topics=["events"]) == {"events": "update"}
    TopicTable.open(store, "Web.clicks", CLOCK).delete(new_id())
    assert done() == {"events": "keep", "web_clicks": "drop"}
    assert sorted(table.name for table in catalog.tables()) == ["_jobs", "events"]


def test_a_table_that_cannot_be_read_now_stays_in_the_catalog(settings: ServerSettings, catalog: Catalog) -> None:
    register_topics(settings, catalog)
    for entry in Path(settings.root_uri.removeprefix("file://"), "topics", "events", "_delta_log").glob("*.json"):
        entry.write_text("{", "utf-8")
    done = {change.table: change.action for change in register_topics(settings, catalog)}
    assert done["web_clicks"] == "keep" and done.get("events", "refuse") == "refuse"
    assert sorted(table.name for table in catalog.tables()) == ["events", "web_clicks"]


def test_glue_has_what_athena_spark_and_trino_go_by(settings: ServerSettings, glue: Any) -> None:
    register_topics(settings, GlueCatalog("logs", None), ["events"])
    table = glue.get_table(DatabaseName="logs", Name="events")["Table"]
    assert table["TableType"] == "EXTERNAL_TABLE"
    kept = table["Parameters"]
    assert (kept["table_type"], kept["spark.sql.sources.provider"], kept["EXTERNAL"]) == ("DELTA", "delta", "TRUE")
    place = f"{settings.root_uri}/topics/events"
    assert table["StorageDescriptor"]["Location"] == place
    assert table["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == place
    assert table["StorageDescriptor"]["Columns"][1] == {"Name": "offset", "Type": "bigint"}


def test_a_table_of_somebody_else_stays_as_it_is(settings: ServerSettings, glue: Any) -> None:
    glue.create_database(DatabaseInput={"Name": "logs"})
    glue.create_table(DatabaseName="logs", TableInput={"Name": "events", "Description": "mine"})
    told = {change.table: change.action for change in register_topics(settings, GlueCatalog("logs", None))}
    assert told == {"web_clicks": "create", "events": "refuse"}
    assert glue.get_table(DatabaseName="logs", Name="events")["Table"]["Description"] == "mine"


def _token(folder: Path) -> Path:
    token = folder / "token"
    token.write_text("let-me-in\n", "utf-8")
    token.chmod(0o600)
    return token


def test_the_command_tells_of_each_topic(
    settings: ServerSettings, unity: Unity, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = _token(tmp_path)
    place = ["catalog", "register", "--root", settings.root_uri]
    to_unity = [*place, "--unity", unity.url, "--schema", "main.logs", "--token-file", str(token)]
    assert run([*to_unity, "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"]
    assert [(row["topic"], row["outcome"]) for row in rows] == [("Web.clicks", "created"), ("events", "created")]
    assert json.loads(unity.kept["events"]["columns"][5]["type_json"])["type"]["type"] == "array"
    assert run([*to_unity, "--output", "value"]) == 0
    assert capsys.readouterr().out == "", "nothing changed"
    unity.kept["events"]["properties"] = {}
    assert run(to_unity) == 1
    assert "did not make" in " ".join(capsys.readouterr().out.split())
    assert run([*place, "--unity", unity.url, "--schema", "main.none", "--token-file", str(token)]) == 1
    assert "refuses GET /tables with 404: Schema not found" in capsys.readouterr().err
    assert run([*place, "--glue", "logs"]) == 1
    assert "reads S3, and the root is file://" in capsys.readouterr().err
    assert run(place) == 2


def test_the_command_tells_the_catalog_that_the_settings_name(
    settings: ServerSettings,
    unity: Unity,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SILT_CATALOG_UNITY", unity.url)
    monkeypatch.setenv("SILT_CATALOG_SCHEMA", "main.logs")
    monkeypatch.setenv("SILT_CATALOG_TOKEN_FILE", str(_token(tmp_path)))
    assert run(["catalog", "register", "--root", settings.root_uri, "--output", "value"]) == 0
    assert sorted(capsys.readouterr().out.split()) == ["events", "web_clicks"] == sorted(unity.kept)
    monkeypatch.setenv("SILT_CATALOG_TOKEN_FILE", str(tmp_path / "none"))
    assert run(["catalog", "register", "--root", settings.root_uri]) == 1
    assert "the file of the catalog's token" in capsys.readouterr().err


def test_glue_is_asked_where_the_settings_say(glue: Any, tmp_path: Path) -> None:
    named = {"root": "s3://bucket/log", "catalog_glue": "logs", "catalog_region": "eu-west-1", "data_dir": tmp_path}
    place = catalog_of(ServerSettings.model_validate(named))
    assert isinstance(place, GlueCatalog) and place.tables() == []
    place.create(CatalogTable("events", "events", "s3://bucket/log", "s3://bucket/log/topics/events"))
    there = boto3.client("glue", region_name="eu-west-1")
    assert there.get_table(DatabaseName="logs", Name="events")["Table"]["Name"] == "events"
    with pytest.raises(ConfigError, match="no catalog is named"):
        catalog_of(ServerSettings(data_dir=tmp_path))


def eventually(seen: Callable[[], Any]) -> Any:
    """What is seen, once it is anything."""
    end = time.monotonic() + SEEN_SECONDS
    while not (found := seen()):
        assert time.monotonic() < end
        time.sleep(POLL_SECONDS)
    return found


@pytest.mark.rule("H9")
def test_the_schedule_tells_the_catalog(unity: Unity, tmp_path: Path) -> None:
    named = {"catalog_unity": unity.url, "catalog_schema": "main.logs", "catalog_token_file": str(_token(tmp_path))}
    times = dict.fromkeys(("schedule_compact", "schedule_retain", "schedule_vacuum", "schedule_audit"), "off")
    data_dir = tmp_path / "data"
    with running_server(
        data_dir=data_dir, flush_ms=20, schedule="on", schedule_catalog=EACH_SECOND, **named, **times
    ) as server:
        http = Http(server.url)
        http.create("events")
        http.publish("events", {"value": "a"}, query="?acks=table")
        eventually(lambda: "events" in unity.kept)
        http.call("DELETE", "/v1/topics/events")
        eventually(lambda: "events" not in unity.kept)
        runs = eventually(lambda: [each for each in http.get("/v1/jobs").json["jobs"] if "dropped" in each["done"]])
        assert (runs[0]["job"], runs[0]["outcome"], runs[0]["trigger"]) == ("catalog", "succeeded", "schedule")
        assert runs[0]["results"] == [{"topic": "events", "done": {"dropped": 1}, "error": None}]
        assert [each["job"] for each in http.get("/v1/schedule").json["jobs"]] == ["catalog"]
        assert 'silt_job_runs_total{name="catalog",outcome="succeeded"}' in http.call("GET", "/metrics").body.decode()


@pytest.mark.parametrize(
    ("url", "schema", "said"),
    [
        ("unity", "a.b", "no address"),
        ("https://unity", "logs", "CATALOG.SCHEMA"),
        ("http://127.0.0.1:9", "a.b", "asked"),
    ],
)
def test_what_is_no_unity_catalog_is_said_to_be_none(url: str, schema: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        UnityCatalog(url, schema).tables()


IN_HIVE = """
import sys
from pyspark.sql import SparkSession
where, *statements = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").enableHiveSupport()
    .config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", where + "/warehouse")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home=" + where)
    .config("spark.databricks.delta.snapshotPartitions", "1").config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.jars", JARS).getOrCreate()
)
for statement in statements:
    rows = spark.sql(statement).collect()
print("found", [list(row) for row in rows])
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@only_with_chaos
@pytest.mark.timeout(900)
def test_a_hive_metastore_keeps_what_spark_is_told(
    settings: ServerSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from siltlog.pipelines.spark.jars import DELTA, resolve

    assert run(["catalog", "register", "--sql", "--schema", "logs", "--root", settings.root_uri]) == 0
    statements = [line.removesuffix(";") for line in capsys.readouterr().out.splitlines()]
    assert len(statements) == 2
    program = IN_HIVE.replace("JARS", repr(",".join(map(str, resolve(DELTA)))))

    def spark(*sql: str) -> str:
        command = [sys.executable, "-c", program, str(tmp_path), *sql]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    spark("CREATE SCHEMA logs", *statements, *statements)
    # Another process finds them by name: the metastore is on disk.
    assert "found [[3, 2]]" in spark("SELECT count(*), max(`offset`) FROM logs.events")
